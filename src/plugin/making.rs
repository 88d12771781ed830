//! How a guest comes into its lane, off the way of requests: started, configured, given what the last one saved, told who lives and what has
//! happened since, all of which may fail; then one instant lets it decide. And what the maintenance thread does for an attachment: new instances, saves,
//! parking.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sequor_core::policy::columns;
use sequor_core::{Hooks, Time};

use super::attachment::{Attachment, Saved};
use super::background::give_way;
use super::guest::{Events, Source, Struck};
use super::guest_services::GuestServices;
use super::invalid_answer;
use super::journal::Level;
use super::lane::{AT_ONCE, Lane, Occupant};
use super::load_link::Subscription;
use super::report::State;
use crate::telemetry::Hook;

/// A guest is asked so often what it would hand on.
const SAVES: Duration = Duration::from_secs(10);
/// The most that a guest may hand on.
const SAVED_MOST: usize = 1 << 20;

/// Why a version does not come to decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it needs the feature \"{feature}\", which the model's sequor.toml does not name{}", names(.has))]
    Feature { feature: String, has: Vec<String> },
    #[error("configure: \"{0}\"")]
    Configure(String),
    #[error("{hook}: {struck}")]
    Failed { hook: &'static str, struck: Struck },
    #[error("on a recorded round its {0}")]
    Nonsense(String),
    /// The load was unloaded meanwhile.
    #[error("the model was unloaded meanwhile")]
    Gone,
}

/// An instance that can decide, and is asked nothing yet. Without it everything stays as it is.
#[derive(Debug)]
pub struct Ready {
    lane: Arc<Lane>,
    /// It is told what happens until it decides.
    subscription: Option<Subscription>,
}

fn names(has: &[String]) -> String {
    if has.is_empty() { " (it names none)".to_owned() } else { format!(" (it names {})", has.join(", ")) }
}

fn failed(hook: &'static str) -> impl Fn(Struck) -> Unfit {
    move |struck| Unfit::Failed { hook, struck }
}

impl Attachment {
    /// What the core is to call for with this version: what it wants, with the model's features.
    pub(super) fn hooks_for(&self, source: &dyn Source) -> Hooks {
        let wants = source.manifest().hooks;
        let count = |names: &[String]| u8::try_from(names.len()).unwrap_or(u8::MAX);
        Hooks {
            // A shadow does not decide who gets a slot.
            admit: wants.admit && !self.terms.shadow,
            columns: wants.columns & columns::ALL,
            numbers: count(&self.facts.numbers),
            keys: count(&self.facts.keys),
            ..wants
        }
    }

    /// The first instance, and it decides. An error changes nothing.
    pub fn open(&self) -> Result<(), Unfit> {
        let ready = self.prepare()?;
        self.succeed(ready, None, &mut || {});
        Ok(())
    }

    /// The first instance; it decides nothing yet.
    pub fn prepare(&self) -> Result<Ready, Unfit> {
        let _making = self.making.lock();
        let source = Arc::clone(&self.source.lock());
        self.made(source.as_ref(), None)
    }

    /// Lets it decide, in the place of whoever did; `with` is done in the same instant. From here on nothing can fail, and no round is lost.
    pub fn succeed(&self, ready: Ready, old: Option<&Attachment>, with: &mut dyn FnMut()) {
        let _making = self.making.lock();
        // Whatever it was about to change of what the core calls for is done by now, or will not be.
        let _old = old.map(|old| old.making.lock());
        if let Some(old) = old {
            old.closed.store(true, Ordering::Release);
        }
        self.put_in_place(ready, with);
        // Whoever was about to ask it still may: its lane goes with the last of them.
        if let Some(old) = old {
            old.memory.set(0);
        }
    }

    /// Puts another version in the place of the one that serves, which goes on if this fails.
    pub fn replace(&self, source: &Arc<dyn Source>) -> Result<(), Unfit> {
        self.dry_run(source.as_ref())?;
        let ready = self.ready_for(source)?;
        self.take_over(source, ready);
        Ok(())
    }

    /// An instance of a version that was tried, given what the one that serves hands on; none where nobody is to decide.
    pub(super) fn ready_for(&self, source: &Arc<dyn Source>) -> Result<Option<Ready>, Unfit> {
        let _making = self.making.lock();
        let saved = self.save();
        let parked = self.health.lock().state() == State::Parked;
        if parked { Ok(None) } else { self.made(source.as_ref(), saved).map(Some) }
    }

    /// Lets that version decide from now on.
    pub(super) fn take_over(&self, source: &Arc<dyn Source>, ready: Option<Ready>) {
        let _making = self.making.lock();
        *self.source.lock() = Arc::clone(source);
        if let Some(ready) = ready {
            self.put_in_place(ready, &mut || {});
        }
    }

    /// Puts this version in the place of the one that serves, if it is another.
    pub fn keep_to(&self, current: &Arc<dyn Source>) -> Result<(), Unfit> {
        let same = self.source.lock().sha256() == current.sha256();
        if same { Ok(()) } else { self.replace(current) }
    }

    /// Whether this version stands the questions that were asked last. It is tried on an instance of its own.
    pub fn dry_run(&self, source: &dyn Source) -> Result<(), Unfit> {
        let mut occupant = self.started(source)?;
        for mut round in self.recent.lock().for_hooks(self.hooks_for(source)) {
            let hook = if matches!(round.asked, sequor_core::Asked::Plan(_)) { "plan" } else { "admit" };
            give_way();
            let said = occupant.answer(&mut round).ok_or(Unfit::Gone)?.map_err(failed(hook))?;
            round.check(&said).map_err(|fault| Unfit::Nonsense(invalid_answer::sentence(&round, &said, fault)))?;
        }
        Ok(())
    }

    /// A configured instance.
    fn started(&self, source: &dyn Source) -> Result<Occupant, Unfit> {
        let has: Vec<String> = self.facts.numbers.iter().chain(&self.facts.keys).cloned().collect();
        if let Some(feature) = source.manifest().features.iter().find(|name| !has.contains(name)) {
            return Err(Unfit::Feature { feature: feature.clone(), has });
        }
        let services = GuestServices::new(self);
        let guest = source.start(Arc::new(services), self.terms.limits).map_err(failed("start"))?;
        give_way();
        let mut occupant = Occupant::new(guest, self.facts.keys.len());
        let began = self.clock.now();
        let configured = occupant.call(|guest| guest.configure(&self.terms.config, &self.facts));
        self.timed(Hook::Configure, began);
        configured.ok_or(Unfit::Gone)?.map_err(failed("configure"))?.map_err(Unfit::Configure)?;
        Ok(occupant)
    }

    /// An instance that can decide: it has what was saved, and knows who lives and what has happened since.
    fn made(&self, source: &dyn Source, saved: Option<Vec<u8>>) -> Result<Ready, Unfit> {
        let hooks = self.hooks_for(source);
        let mut occupant = self.started(source)?;
        if let Some(saved) = saved.filter(|saved| !saved.is_empty()) {
            let began = self.clock.now();
            let restored = occupant.call(|guest| guest.restore(&saved));
            let restored = restored.ok_or(Unfit::Gone)?.map_err(failed("restore"))?;
            self.timed(Hook::Restore, began);
            if let Err(why) = restored {
                self.journal.write(Level::Warn, &format!("restore: \"{why}\"; it starts from nothing"));
            }
        }
        let subscription = if hooks.observe { Some(self.inform(&mut occupant)?) } else { None };
        Ok(Ready { lane: Arc::new(occupant.into_lane(hooks)), subscription })
    }

    /// Tells a new guest who lives, and what has happened since; whoever serves meanwhile is asked as before.
    fn inform(&self, occupant: &mut Occupant) -> Result<Subscription, Unfit> {
        // From here on whatever happens is told, and kept for it.
        let reader = self.link.reader();
        let subscription = self.link.subscribe();
        let mut roster = self.link.live().ok_or(Unfit::Gone)?;
        let live = roster.take_in_order();
        reader.goes_on_from(roster);
        occupant.reads(reader);
        for some in live.chunks(AT_ONCE) {
            let mut events = Events::default();
            some.iter().for_each(|one| events.add(one, self.facts.keys.len()));
            occupant.tell(&events).ok_or(Unfit::Gone)?.map_err(failed("observe"))?;
            give_way();
        }
        occupant.catch_up().ok_or(Unfit::Gone)?.map_err(failed("observe"))?;
        Ok(subscription)
    }

    /// One instant: the core calls for what it wants, and its lane is the one that is asked. Nothing, if it was closed or parked meanwhile.
    fn put_in_place(&self, ready: Ready, with: &mut dyn FnMut()) {
        if self.closed.load(Ordering::Acquire) || !self.health.lock().serves() {
            return;
        }
        let Ready { lane, subscription } = ready;
        // Kept, so that no guest is torn down in that instant.
        let mut before = None;
        self.link.call_for(&self.closed, Some(lane.hooks()), &mut || {
            before = self.lane.swap(Some(Arc::clone(&lane)));
            with();
        });
        drop(subscription);
        self.full.store(false, Ordering::Release);
    }

    /// Has the core call for nothing, and does `with` in the same instant.
    fn call_for_none(&self, with: &mut dyn FnMut()) {
        let mut before = None;
        self.link.call_for(&self.closed, None, &mut || {
            with();
            before = self.lane.swap(None);
        });
        self.memory.set(0);
    }

    /// What the guest that serves would hand on; what one handed on before, if it cannot say.
    fn save(&self) -> Option<Vec<u8>> {
        let now = self.clock.now();
        if let Some(lane) = self.lane.load_full() {
            let saved = lane.wait().call(|guest| guest.save());
            self.timed(Hook::Save, now);
            match saved {
                Some(Ok(bytes)) if bytes.len() <= SAVED_MOST => {
                    *self.saved.lock() = Saved { bytes: Some(bytes), at: now };
                }
                Some(Ok(bytes)) => {
                    let what = format!("save: {} bytes are more than the {SAVED_MOST} that are kept", bytes.len());
                    self.journal.write(Level::Warn, &what);
                    self.saved.lock().at = now;
                }
                Some(Err(struck)) => {
                    self.saved.lock().at = now;
                    self.strike(Some(&lane), &struck);
                }
                None => {}
            }
        }
        self.saved.lock().bytes.clone()
    }

    // === the maintenance thread ===

    /// Does what is due; when something is due next.
    pub fn tend(&self) -> Option<Time> {
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        self.write_down();
        let now = self.clock.now();
        let (state, due) = {
            let health = self.health.lock();
            (health.state(), health.due())
        };
        match (state, due) {
            (State::Parked, _) => {
                self.call_for_none(&mut || {});
                None
            }
            (_, Some(due)) if due > now => Some(due),
            (_, Some(_)) => self.recover(),
            _ if self.full.load(Ordering::Acquire) => self.recycle(),
            _ => {
                let next = self.saved.lock().at + SAVES;
                if next > now {
                    return Some(next);
                }
                self.save();
                Some(now + SAVES)
            }
        }
    }

    /// Writes down the questions that went wrong.
    fn write_down(&self) {
        let wrong = std::mem::take(&mut *self.wrong.lock());
        let Some(folder) = &self.rounds else { return };
        for file in wrong {
            let line = match file.write(folder) {
                Ok(path) => {
                    let (path, name) = (path.display(), self.journal.plugin());
                    format!("Replay: sequor simulate --replay-round {path} --policy {name}.wasm")
                }
                Err(e) => format!("the round that went wrong is not kept: {}: {e}", folder.display()),
            };
            self.journal.write(Level::Info, &line);
        }
    }

    fn recover(&self) -> Option<Time> {
        let _making = self.making.lock();
        // Somebody may have put another in its place meanwhile.
        self.health.lock().due()?;
        let source = Arc::clone(&self.source.lock());
        let saved = self.saved.lock().bytes.clone();
        match self.made(source.as_ref(), saved) {
            Ok(ready) => self.put_in_place(ready, &mut || {}),
            Err(unfit) => self.did_not_come_back(unfit),
        }
        Some(self.clock.now())
    }

    fn did_not_come_back(&self, unfit: Unfit) {
        let struck = match unfit {
            Unfit::Failed { struck, hook } => Struck { what: format!("{hook}: {}", struck.what), ..struck },
            Unfit::Gone => return self.health.lock().park(),
            other => Struck { fault: sequor_core::Fault::Trap, what: other.to_string() },
        };
        self.strike(None, &struck);
    }

    /// A new instance in the place of one that has grown too large.
    fn recycle(&self) -> Option<Time> {
        let _making = self.making.lock();
        let source = Arc::clone(&self.source.lock());
        let saved = self.save();
        let had = self.lane.load().as_ref().map_or(0, |lane| lane.at_start);
        match self.made(source.as_ref(), saved) {
            Ok(ready) => {
                self.put_in_place(ready, &mut || {});
                let what = format!("a new instance took the place of one that had grown from {had} bytes");
                self.journal.write(Level::Info, &what);
            }
            Err(unfit) => {
                self.full.store(false, Ordering::Release);
                self.journal.write(Level::Warn, &format!("no new instance in the place of the grown one: {unfit}"));
            }
        }
        Some(self.clock.now())
    }

    // === what operators say ===

    /// The built-in policy decides from now on.
    pub fn park(&self) {
        let _making = self.making.lock();
        self.save();
        self.health.lock().park();
        self.call_for_none(&mut || {});
        self.journal.write(Level::Warn, &format!("parked on {} by an operator", self.facts.name));
    }

    /// What was is forgiven: a new instance is made at once.
    pub fn unpark(&self) -> Result<(), Unfit> {
        let _making = self.making.lock();
        self.health.lock().unpark(self.clock.now());
        if self.health.lock().due().is_none() {
            return Ok(());
        }
        let source = Arc::clone(&self.source.lock());
        let saved = self.saved.lock().bytes.clone();
        let ready = self.made(source.as_ref(), saved).inspect_err(|_| self.health.lock().park())?;
        self.put_in_place(ready, &mut || {});
        Ok(())
    }

    /// It decides no more, and nobody does in its place; `with` is done in the same instant.
    pub fn close(&self, with: &mut dyn FnMut()) {
        let _making = self.making.lock();
        self.call_for_none(with);
        self.closed.store(true, Ordering::Release);
    }
}
