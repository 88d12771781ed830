//! Starts a guest and puts it in place, off the request path. The guest is configured, gets its predecessor's saved state, and reads the
//! live sequences and the events since then. Each of these steps can fail and then changes nothing. One swap lets the guest decide.
//! `supervision` and `versions` decide when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_core::Hooks;
use sequor_core::policy::columns;
use sequor_wasm::background::give_way;
use sequor_wasm::call_error::CallError;
use sequor_wasm::journal::Level;
use sequor_wasm::room::{NoGuestRoom, RoomPurpose, RoomShare, RoomTicket};

use super::active_guest::{AT_ONCE, ActiveGuest, CALLS_AT_START, GuestCell};
use super::binding::{Decider, SchedulerBinding};
use super::guest::{Events, Source};
use super::guest_services::PluginServices;
use super::invalid_answer;
use super::load_policy::LoadPolicy;
use super::port::Subscription;
use super::report::{BindingState, PluginError};
use crate::telemetry::Hook;

/// The name of the hook that restores a saved state, for messages.
pub(super) const RESTORE: &str = "restore";

/// Why a version cannot decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it needs the feature \"{feature}\", which the model's sequor.toml does not name{}", names(.has))]
    Feature { feature: String, has: Vec<String> },
    #[error("configure: {0}")]
    Configure(String),
    #[error("{hook}: {error}")]
    Failed { hook: &'static str, error: CallError },
    #[error("on a recorded round its {0}")]
    Nonsense(String),
    /// There is no room for its guest now.
    #[error("{0}")]
    NoRoom(NoGuestRoom),
    /// The load was unloaded meanwhile.
    #[error("the model was unloaded meanwhile")]
    Gone,
}

impl Unfit {
    /// A sentence about this version at this model.
    pub(super) fn describe(&self, version: &str, model: &str) -> String {
        match self {
            Unfit::NoRoom(why) => format!("{version} did not start for {model}: {why}"),
            unfit => format!("{version} failed its dry run on {model} ({unfit})"),
        }
    }

    /// The refusal of an operation, with this text.
    pub fn refusal(&self, text: String) -> PluginError {
        match self {
            Unfit::NoRoom(_) => PluginError::Unavailable(text),
            _ => PluginError::Invalid(text),
        }
    }
}

/// Room for a guest that has not started.
#[derive(Debug)]
pub(super) struct GuestSeat {
    /// The share, unless it is that of the binding.
    share: Option<RoomShare>,
    room: RoomTicket,
}

/// An instance that can decide, but gets no questions yet. If it is dropped, nothing changes.
#[derive(Debug)]
pub struct Ready {
    active: Arc<ActiveGuest>,
    /// Keeps the core reporting events to it until it decides.
    subscription: Option<Subscription<Decider>>,
    /// The share of its room, unless it uses that of the binding.
    share: Option<RoomShare>,
    /// Whether it refused the saved state.
    pub(super) refused: bool,
}

/// The effect of a new version on a parked binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parked {
    /// It stays parked, because no operator unparked it.
    Stays,
    /// It decides again, because an operator put this version in place.
    Decides,
}

/// A guest for the place of one that decides, or of a parked one.
#[derive(Debug)]
pub struct Successor {
    ready: Ready,
    unparks: bool,
}

fn names(has: &[String]) -> String {
    if has.is_empty() { " (it names none)".to_owned() } else { format!(" (it names {})", has.join(", ")) }
}

/// Room for a guest beside the one that serves.
fn room_beside(source: &dyn Source) -> Result<GuestSeat, Unfit> {
    let share = source.open_share(RoomPurpose::Replacement).map_err(Unfit::NoRoom)?;
    let room = share.ticket().map_err(Unfit::NoRoom)?;
    Ok(GuestSeat { share: Some(share), room })
}

fn failed(hook: &'static str) -> impl Fn(CallError) -> Unfit {
    move |error| Unfit::Failed { hook, error }
}

impl SchedulerBinding {
    /// The hooks that the core must call for this version: its own, with the model's features.
    pub(super) fn hooks_for(&self, source: &dyn Source) -> Hooks {
        let wants = source.manifest().hooks;
        let count = |names: &[String]| u8::try_from(names.len()).unwrap_or(u8::MAX);
        Hooks {
            // A shadow does not decide admissions.
            admit: wants.admit && !self.options.shadow,
            columns: wants.columns & columns::ALL,
            max_wait: self.options.max_wait,
            numbers: count(&self.facts.numbers),
            keys: count(&self.facts.keys),
            ..wants
        }
    }

    /// Starts the first guest and lets it decide. An error changes nothing.
    pub fn open(self: &Arc<Self>) -> Result<(), Unfit> {
        let ready = self.prepare()?;
        self.succeed(ready);
        Ok(())
    }

    /// Takes room for the guest of this load. An error changes nothing.
    pub fn claim(&self, purpose: RoomPurpose) -> Result<(), Unfit> {
        let source = Arc::clone(&self.source.lock());
        *self.share.lock() = Some(source.open_share(purpose).map_err(Unfit::NoRoom)?);
        Ok(())
    }

    /// Room for a guest of this version that is to decide: that of the binding, or a share of its own while another guest uses that.
    pub(super) fn room_for(&self, source: &dyn Source) -> Result<GuestSeat, Unfit> {
        if let Some(room) = self.own_room(source.weight()) {
            return Ok(GuestSeat { share: None, room });
        }
        room_beside(source)
    }

    fn own_room(&self, weight: u32) -> Option<RoomTicket> {
        let share = self.share.lock();
        share.as_ref().filter(|share| share.weight() == weight)?.first_ticket()
    }

    /// The first instance; it does not decide yet.
    pub fn prepare(&self) -> Result<Ready, Unfit> {
        let _making = self.making.lock();
        let source = Arc::clone(&self.source.lock());
        self.start_decider(source.as_ref(), None)
    }

    /// Lets the guest decide for the load, and returns the previous binding. This cannot fail, and no round is lost.
    pub fn succeed(self: &Arc<Self>, ready: Ready) -> Option<Arc<SchedulerBinding>> {
        Some(self.swap(ready, |_| true)?.binding)
    }

    /// Lets the binding decide for the load as soon as there is room for its guest. Until then the built-in policy decides. Returns the
    /// previous binding.
    pub fn succeed_without_guest(self: &Arc<Self>) -> Option<Arc<SchedulerBinding>> {
        let before = self.port.change(|policy| {
            let decider = Decider { binding: Arc::clone(self), guest: None };
            let mut before = policy.swap(Some(decider), None);
            let off = before.as_mut().and_then(Decider::retire_guest);
            Some((before, off))
        });
        Some(before.flatten()?.0?.binding)
    }

    /// Replaces the version that serves by another one. If this fails, the old one continues.
    pub fn replace(self: &Arc<Self>, source: &Arc<dyn Source>) -> Result<(), Unfit> {
        self.dry_run(source.as_ref())?;
        let ready = self.ready_for(source, Parked::Stays)?;
        self.take_over(source, ready);
        Ok(())
    }

    /// A guest of a tried version, with the saved state of the one that serves; `None` if the binding stays parked.
    pub(super) fn ready_for(&self, source: &Arc<dyn Source>, parked: Parked) -> Result<Option<Successor>, Unfit> {
        let _making = self.making.lock();
        let unparks = self.is_parked();
        if unparks && parked == Parked::Stays {
            return Ok(None);
        }
        let saved = self.save();
        let ready = self.start_decider(source.as_ref(), saved)?;
        Ok(Some(Successor { ready, unparks }))
    }

    /// Lets that version decide from now on. Strikes of the previous version do not count against it.
    pub(super) fn take_over(self: &Arc<Self>, source: &Arc<dyn Source>, successor: Option<Successor>) {
        let _making = self.making.lock();
        *self.source.lock() = Arc::clone(source);
        let Some(Successor { ready, unparks }) = successor else { return };
        self.health.lock().forgive(self.clock.now(), unparks);
        *self.last_fault.lock() = None;
        self.put_in_place(ready);
        if unparks {
            // Supervision resumes.
            self.alarm.raise();
        }
    }

    /// Replaces the version that serves by this one, if they differ.
    pub fn keep_to(self: &Arc<Self>, current: &Arc<dyn Source>) -> Result<(), Unfit> {
        if self.is_of_version(current) { Ok(()) } else { self.replace(current) }
    }

    pub fn is_of_version(&self, version: &Arc<dyn Source>) -> bool {
        self.source.lock().sha256() == version.sha256()
    }

    /// Tests a version with the last recorded questions, on an instance of its own.
    pub fn dry_run(&self, source: &dyn Source) -> Result<(), Unfit> {
        let GuestSeat { share, room } = room_beside(source)?;
        let mut cell = self.started(source, room)?;
        // The guest on trial keeps its room.
        drop(share);
        // Copied first: requests take that lock, and must not wait for a guest on trial.
        let rounds = self.recent.lock().for_hooks(self.hooks_for(source));
        for mut round in rounds {
            let hook = if matches!(round.asked, sequor_core::PolicyQuestion::Plan(_)) { "plan" } else { "admit" };
            give_way();
            let answer = cell.answer(&mut round).ok_or(Unfit::Gone)?.map_err(failed(hook))?;
            round.check(&answer).map_err(|fault| Unfit::Nonsense(invalid_answer::sentence(&round, &answer, fault)))?;
        }
        Ok(())
    }

    /// Starts and configures an instance.
    fn started(&self, source: &dyn Source, room: RoomTicket) -> Result<GuestCell, Unfit> {
        let has: Vec<String> = self.facts.numbers.iter().chain(&self.facts.keys).cloned().collect();
        if let Some(feature) = source.manifest().features.iter().find(|name| !has.contains(name)) {
            return Err(Unfit::Feature { feature: feature.clone(), has });
        }
        let services = PluginServices::of_binding(self);
        let guest = source.start(Arc::new(services), self.options.limits).map_err(failed("start"))?;
        give_way();
        let mut cell = GuestCell::new(guest, room, self.facts.keys.len());
        let began = self.clock.now();
        let configured = cell.call(|guest| guest.configure(&self.options.config, &self.facts));
        self.timed(Hook::Configure, began);
        configured.ok_or(Unfit::Gone)?.map_err(failed("configure"))?.map_err(Unfit::Configure)?;
        Ok(cell)
    }

    /// Makes an instance that can decide: it has the saved state, the live sequences and the events since then.
    pub(super) fn start_decider(&self, source: &dyn Source, saved: Option<Vec<u8>>) -> Result<Ready, Unfit> {
        self.start_seated(source, self.room_for(source)?, saved)
    }

    /// The same, in this room.
    pub(super) fn start_seated(
        &self,
        source: &dyn Source,
        GuestSeat { share, room }: GuestSeat,
        saved: Option<Vec<u8>>,
    ) -> Result<Ready, Unfit> {
        let hooks = self.hooks_for(source);
        let mut cell = self.started(source, room)?;
        let mut refused = false;
        if let Some(saved) = saved.filter(|saved| !saved.is_empty()) {
            let began = self.clock.now();
            let restored = cell.call(|guest| guest.restore(&saved));
            let restored = restored.ok_or(Unfit::Gone)?.map_err(failed(RESTORE))?;
            self.timed(Hook::Restore, began);
            if let Err(why) = restored {
                self.journal.write(Level::Warn, &format!("restore: \"{why}\"; it starts from nothing"));
                refused = true;
            }
        }
        let subscription = if hooks.observe { Some(self.inform(&mut cell)?) } else { None };
        let codes = Arc::clone(&source.manifest().codes);
        Ok(Ready { active: Arc::new(cell.into_active(hooks, codes)), subscription, share, refused })
    }

    /// Reports the live sequences and the events since then to a new guest. The guest that serves continues meanwhile.
    fn inform(&self, cell: &mut GuestCell) -> Result<Subscription<Decider>, Unfit> {
        // From here on every event is reported, and kept for the new guest.
        let reader = self.port.reader();
        let subscription = self.port.subscribe();
        let mut roster = self.port.live().ok_or(Unfit::Gone)?;
        let live = roster.take_in_order();
        reader.goes_on_from(roster);
        cell.reads(reader);
        for some in live.chunks(AT_ONCE) {
            let mut events = Events::default();
            some.iter().for_each(|one| events.add(one, self.facts.keys.len()));
            cell.observe(&events).ok_or(Unfit::Gone)?.map_err(failed("observe"))?;
            give_way();
        }
        cell.catch_up_within(CALLS_AT_START).ok_or(Unfit::Gone)?.map_err(failed("observe"))?;
        Ok(subscription)
    }

    pub(super) fn is_parked(&self) -> bool {
        self.health.lock().state() == BindingState::Parked
    }

    /// Lets this guest decide, in place of the previous one. Does nothing if another plug-in decides by now, or if the binding is parked.
    pub(super) fn put_in_place(self: &Arc<Self>, ready: Ready) {
        self.swap(ready, |policy| policy.decider().is_some_and(|decider| decider.is_of(self)));
    }

    /// Changes the core's hooks and the guest in one step, if `may` allows it and the binding is not parked. Returns the previous decider.
    fn swap(self: &Arc<Self>, ready: Ready, may: impl FnOnce(&LoadPolicy<Decider>) -> bool) -> Option<Decider> {
        let Ready { active, subscription, mut share, .. } = ready;
        let before = self.port.change(|policy| {
            // A `park` at this moment clears the hooks afterwards.
            if !may(policy) || !self.health.lock().serves() {
                return None;
            }
            let decider = Decider { binding: Arc::clone(self), guest: Some(Arc::clone(&active)) };
            let mut before = policy.swap(Some(decider), Some(active.hooks()));
            let off = before.as_mut().and_then(Decider::retire_guest);
            if share.is_some() {
                std::mem::swap(&mut *self.share.lock(), &mut share);
            }
            self.port.set_codes(active.codes());
            self.full.store(false, Ordering::Release);
            self.inline_gate.forget();
            self.shows_memory(active.memory());
            Some((before, off))
        });
        drop((subscription, share));
        before.flatten()?.0
    }

    /// Makes the core ask nothing, if the binding is still parked.
    pub(super) fn clear_hooks_if_parked(&self) {
        let guest = self.port.change(|policy| {
            let is_due = policy.is_asked() && self.is_parked();
            let decider = policy.decider().filter(|decider| is_due && decider.is_of(self))?;
            let parked = Decider { binding: Arc::clone(&decider.binding), guest: None };
            policy.swap(Some(parked), None)?.retire_guest()
        });
        drop(guest);
    }
}
