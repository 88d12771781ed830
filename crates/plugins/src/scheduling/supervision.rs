//! Supervises a binding, off the request path. The maintenance thread saves, restarts a failed or full guest, and writes failed questions
//! to disk. Operators park, unpark and close.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sequor_core::Time;
use sequor_wasm::journal::Level;

use super::binding::{Saved, SchedulerBinding};
use super::guest::{Strike, fault_of};
use super::report::BindingState;
use super::startup::{RESTORE, Ready, Unfit};
use crate::telemetry::Hook;

/// Time between two saves of a guest's state.
pub const SAVES: Duration = Duration::from_secs(10);
/// Time between two tries to start a guest, while the engine has no room for it.
const WITHOUT_ROOM: Duration = Duration::from_secs(1);

impl SchedulerBinding {
    /// Saves the state of the guest that serves. If it cannot save, returns the last saved state.
    pub(super) fn save(&self) -> Option<Vec<u8>> {
        let now = self.clock.now();
        if let Some(active) = self.active() {
            let saved = active.call_long(|cell| cell.call(|guest| guest.save()));
            self.timed(Hook::Save, now);
            match saved {
                Some(Ok(bytes)) => *self.saved.lock() = Saved { bytes: Some(bytes), at: now },
                Some(Err(error)) => {
                    self.saved.lock().at = now;
                    self.strike(Some(&active), &error.into());
                }
                None => {}
            }
        }
        self.saved.lock().bytes.clone()
    }

    // === the maintenance thread ===

    /// Does what is due. Returns the next due time.
    pub fn maintain(self: &Arc<Self>) -> Option<Time> {
        if !self.decides() {
            return None;
        }
        self.write_down();
        let now = self.clock.now();
        let (state, due) = {
            let health = self.health.lock();
            (health.state(), health.due())
        };
        match (state, due) {
            (BindingState::Parked, _) => {
                self.clear_hooks_if_parked();
                None
            }
            (_, Some(due)) if due > now => Some(due),
            (_, Some(_)) => self.recover(),
            _ => self.look_after(now),
        }
    }

    /// Periodic maintenance of a binding that serves.
    fn look_after(self: &Arc<Self>, now: Time) -> Option<Time> {
        let reports = self.report_left();
        let recycles = self.full.load(Ordering::Acquire).then(|| self.health.lock().recycles_at(now));
        if recycles.is_some_and(|at| at <= now) {
            return self.recycle();
        }
        let mut saves = self.saved.lock().at + SAVES;
        if saves <= now {
            self.save();
            saves = now + SAVES;
        }
        recycles.into_iter().chain(reports).chain([saves]).min()
    }

    /// Writes the failed questions to disk.
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

    fn recover(self: &Arc<Self>) -> Option<Time> {
        let _making = self.making.lock();
        // Another guest may have been put in its place meanwhile.
        if self.health.lock().due().is_none() {
            return Some(self.clock.now());
        }
        match self.made_again() {
            Ok(ready) => self.put_in_place(ready),
            Err(unfit) => self.did_not_come_back(unfit),
        }
        Some(self.clock.now())
    }

    /// A guest in place of one that is gone, with its saved state. If it cannot restore that, the state is dropped, and the guest starts
    /// from nothing.
    fn made_again(&self) -> Result<Ready, Unfit> {
        let source = Arc::clone(&self.source.lock());
        let saved = self.saved.lock().bytes.clone();
        match self.start_decider(source.as_ref(), saved) {
            Ok(ready) => {
                if ready.refused {
                    self.saved.lock().bytes = None;
                }
                Ok(ready)
            }
            Err(Unfit::Failed { hook: RESTORE, error }) => {
                self.saved.lock().bytes = None;
                let what = format!("restore: {error}; what was saved is dropped, and it starts from nothing");
                self.journal.write(Level::Warn, &what);
                self.start_decider(source.as_ref(), None)
            }
            Err(unfit) => Err(unfit),
        }
    }

    fn did_not_come_back(&self, unfit: Unfit) {
        let strike = match unfit {
            Unfit::NoRoom(why) => {
                self.health.lock().postpone(self.clock.now() + WITHOUT_ROOM);
                return self.journal.write(Level::Warn, &format!("{why}; the next try comes in a second"));
            }
            Unfit::Failed { error, hook } => {
                Strike { fault: fault_of(error.fault), what: format!("{hook}: {}", error.what) }
            }
            Unfit::Gone => return self.health.lock().park(),
            other => Strike { fault: sequor_core::PolicyFault::Trap, what: other.to_string() },
        };
        self.strike(None, &strike);
    }

    /// Replaces an instance that has grown too large.
    fn recycle(self: &Arc<Self>) -> Option<Time> {
        let _making = self.making.lock();
        let source = Arc::clone(&self.source.lock());
        let seat = match self.room_for(source.as_ref()) {
            Ok(seat) => seat,
            Err(why) => return Some(self.recycles_later(&why)),
        };
        self.health.lock().recycled(self.clock.now());
        let saved = self.save();
        let had = self.active().map_or(0, |active| active.at_start);
        match self.start_seated(source.as_ref(), seat, saved) {
            Ok(ready) => {
                self.put_in_place(ready);
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

    /// Keeps the grown instance for now, because there is no room for another one. Returns the time of the next try.
    fn recycles_later(&self, why: &Unfit) -> Time {
        let next = self.clock.now() + WITHOUT_ROOM;
        self.health.lock().postpone_recycling(next);
        self.journal.write(Level::Warn, &format!("no new instance in the place of the grown one: {why}"));
        next
    }

    // === operations of operators ===

    /// Lets the built-in policy decide at once, without waiting for a start or a call of a guest. The next guest gets the last saved state.
    pub fn park(&self) {
        self.health.lock().park();
        self.clear_hooks_if_parked();
        self.journal.write(Level::Warn, &format!("parked on {} by an operator", self.facts.name));
    }

    /// Clears the strikes and starts a new instance at once.
    pub fn unpark(self: &Arc<Self>) -> Result<(), Unfit> {
        let _making = self.making.lock();
        self.health.lock().unpark(self.clock.now());
        if self.health.lock().due().is_none() {
            return Ok(());
        }
        let ready = self.made_again().inspect_err(|_| self.health.lock().park())?;
        self.put_in_place(ready);
        // Supervision resumes.
        self.alarm.raise();
        Ok(())
    }

    /// Lets the built-in policy decide from now on. A guest that is being started for this binding will not decide either.
    pub fn close(&self) {
        let guest = self.port.change(|policy| {
            policy.decider().filter(|decider| decider.is_of(self))?;
            let mut before = policy.swap(None, None)?;
            let guest = before.retire_guest();
            Some((before, guest))
        });
        drop(guest);
    }
}
