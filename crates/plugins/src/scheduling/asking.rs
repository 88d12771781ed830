//! Asks a guest the core's questions, on the request path, and checks the answers. If the call fails or the answer is wrong, the built-in
//! policy decides that round. No request fails because of a plug-in.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sync::MutexGuard;
use sequor_core::{Decision, Observed, PolicyAnswer, PolicyFault, PolicyQuestion, Req, Round, Time};
use sequor_wasm::call_error::CallError;

use super::active_guest::{ActiveGuest, CALLS_AT_ONCE, CaughtUp, GuestCell};
use super::binding::{Decider, SchedulerBinding};
use super::guest::Strike;
use super::invalid_answer;
use crate::executor::OwnTime;
use crate::telemetry::Hook;

/// If a call may take longer than this, no thread with other work makes one.
const MAY_HOLD_UP: Duration = Duration::from_millis(10);

/// The answer for the core, and the decision of a shadow.
#[derive(Debug)]
pub struct RoundAnswer {
    pub answer: PolicyAnswer,
    pub shadow: Option<Shadow>,
}

/// The decision that a shadow would have made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shadow {
    /// The built-in policy's decision.
    Default,
    /// Run nothing now.
    Wait,
    /// Run these requests. The flag: whether it also rejects some.
    Fire(Vec<Req>, bool),
}

/// Why the guest gave no answer.
enum NoAnswer {
    /// There is no guest just now.
    Absent,
    /// Another call held the guest for too long.
    Busy,
    /// The guest has used more than its share of a core.
    PassedOver,
    Failed(Strike),
}

impl Decider {
    /// Asks the guest a question. It takes at most the time of two calls: the guest may observe events in a call before the question. It waits
    /// for other calls at most as long as a call may take. A guest that is further behind with its events is not asked: the maintenance thread
    /// reports them.
    pub fn ask(&self, round: &mut Round) -> RoundAnswer {
        let losses = self.take_news(round);
        let Some(guest) = self.current_guest(losses) else {
            return self.binding.no_answer(round, &NoAnswer::Absent);
        };
        if self.binding.is_passed_over() {
            return self.binding.no_answer(round, &NoAnswer::PassedOver);
        }
        let answer = match guest.enter(self.binding.options.limits.time) {
            Some(cell) => self.binding.call(guest, cell, round),
            None => Err(NoAnswer::Busy),
        };
        self.binding.judge(guest, round, answer)
    }

    /// Asks the guest a question for a thread that has other work: it never waits for another call. `None`: another call has the guest.
    /// Then nothing has happened, and the question is unchanged.
    pub fn try_ask(&self, round: &mut Round) -> Option<RoundAnswer> {
        let Some(guest) = self.guest.as_ref().filter(|guest| !guest.is_retired()) else {
            self.take_news(round);
            return Some(self.binding.no_answer(round, &NoAnswer::Absent));
        };
        let cell = guest.try_enter()?;
        let losses = self.take_news(round);
        if guest.has_missed(losses) {
            drop(cell);
            self.binding.renew(guest);
            return Some(self.binding.no_answer(round, &NoAnswer::Absent));
        }
        if self.binding.is_passed_over() {
            drop(cell);
            return Some(self.binding.no_answer(round, &NoAnswer::PassedOver));
        }
        let answer = self.binding.call(guest, cell, round);
        Some(self.binding.judge(guest, round, answer))
    }

    /// Whether a connection's thread may ask: no guest runs, or the guest answers quickly and is not in a call.
    pub fn is_quick(&self) -> bool {
        let Some(guest) = &self.guest else { return true };
        let binding = &self.binding;
        let is_open = binding.options.limits.time <= MAY_HOLD_UP && binding.inline_gate.is_open(binding.clock.now());
        is_open && !guest.is_busy()
    }

    /// Delivers events, from this serial number on. `lost`: an event before them is missing for good.
    pub fn notify(&self, first: u64, news: Vec<Observed>, lost: bool) {
        let losses = self.binding.port.append(first, news, lost);
        // Events go with questions. A guest that gets no questions observes them in a call of its own: now if that is quick, else on the
        // maintenance thread.
        let Some(guest) = self.current_guest(losses).filter(|guest| !guest.hooks().plan && !guest.hooks().admit) else {
            return;
        };
        if self.is_quick() && self.binding.has_share() {
            self.binding.report(guest);
        } else {
            self.binding.report_later();
        }
    }

    /// Moves the events of a question to the feed. Returns the number of losses.
    fn take_news(&self, round: &mut Round) -> u64 {
        let (news, lost) = (std::mem::take(&mut round.news), std::mem::take(&mut round.lost));
        self.binding.port.append(round.first, news, lost)
    }

    /// The guest, if it still decides. A guest that has missed events is replaced.
    fn current_guest(&self, losses: u64) -> Option<&Arc<ActiveGuest>> {
        let guest = self.guest.as_ref().filter(|guest| !guest.is_retired())?;
        if guest.has_missed(losses) {
            self.binding.renew(guest);
            return None;
        }
        Some(guest)
    }
}

impl SchedulerBinding {
    /// Compares the decision of a shadow with what was done. `ran`: the requests that run now, if any.
    pub fn compare(&self, shadow: &Shadow, ran: Option<&[Req]>) {
        let same = match (shadow, ran) {
            (Shadow::Default, _) | (Shadow::Wait, None) => true,
            (Shadow::Fire(fire, rejects), ran) => {
                let ran = ran.unwrap_or_default();
                !rejects && fire.len() == ran.len() && fire.iter().all(|req| ran.contains(req))
            }
            (Shadow::Wait, Some(_)) => false,
        };
        let (differs, all) = &mut self.meter.lock().differs;
        *differs += u64::from(!same);
        *all += 1;
    }

    fn call(
        &self,
        guest: &ActiveGuest,
        mut cell: MutexGuard<'_, GuestCell>,
        round: &mut Round,
    ) -> Result<PolicyAnswer, NoAnswer> {
        let (entered, own_time) = (self.clock.now(), OwnTime::begin());
        let CaughtUp { observed, is_behind } = match cell.catch_up().ok_or(NoAnswer::Absent)? {
            Ok(caught_up) => caught_up,
            Err(error) => {
                drop(cell);
                self.count_time(&own_time, entered);
                return Err(NoAnswer::Failed(error.into()));
            }
        };
        if is_behind {
            let memory = cell.memory();
            drop(cell);
            let now = self.count_time(&own_time, entered);
            self.count_call(guest, Hook::Observe, (entered, now), memory);
            self.report_later();
            return Err(NoAnswer::Absent);
        }
        let began = if observed { self.timed(Hook::Observe, entered) } else { entered };
        let answer = cell.answer(round).ok_or(NoAnswer::Absent)?;
        let memory = cell.memory();
        drop(cell);
        let now = self.count_time(&own_time, entered);
        let hook = if matches!(round.asked, PolicyQuestion::Plan(_)) { Hook::Plan } else { Hook::Admit };
        self.count_call(guest, hook, (began, now), memory);
        if guest.hooks().plan && matches!(hook, Hook::Plan) {
            self.recent.lock().keep(now, round);
        }
        answer.map_err(|error| NoAnswer::Failed(error.into()))
    }

    /// Counts the time of a call that began at `entered`, for the share of a core and for connections' threads. Returns the time now.
    fn count_time(&self, own_time: &OwnTime, entered: Time) -> Time {
        let (now, used) = (self.clock.now(), own_time.elapsed());
        self.cpu_share.add(used);
        self.inline_gate.note(used.min(now - entered), now);
        now
    }

    fn count_call(&self, guest: &ActiveGuest, hook: Hook, (began, ended): (Time, Time), memory: u64) {
        guest.remember(memory);
        self.meter.lock().called(ended, ended - began);
        self.metrics.called(hook, ended - began);
        if !guest.is_retired() {
            self.shows_memory(memory);
        }
        if guest.is_full(memory) {
            self.outgrown();
        }
    }

    /// Whether the guest is within its share of a core.
    fn has_share(&self) -> bool {
        self.cpu_share.allows(|| self.clock.now())
    }

    /// Whether the guest has exceeded its share of a core. Such a round is counted.
    fn is_passed_over(&self) -> bool {
        let is_over = !self.has_share();
        if is_over {
            self.metrics.passed_over();
        }
        is_over
    }

    /// Reports the events since the last call. If another call has the guest, the maintenance thread reports them.
    fn report(&self, guest: &Arc<ActiveGuest>) {
        match guest.try_enter() {
            Some(mut cell) => {
                // One call: this is a connection's thread.
                let reported = self.observe(guest, &mut cell, 1);
                drop(cell);
                self.judge_report(guest, reported);
            }
            None => self.report_later(),
        }
    }

    /// Lets the maintenance thread report the events.
    fn report_later(&self) {
        if !self.unreported.swap(true, Ordering::AcqRel) {
            self.alarm.raise();
        }
    }

    /// Reports events that were left to the maintenance thread. Returns the time of the next try, if the guest has used up its share of a
    /// core.
    pub(super) fn report_left(&self) -> Option<Time> {
        if !self.unreported.load(Ordering::Acquire) {
            return None;
        }
        if !self.has_share() {
            return Some(self.cpu_share.window_end());
        }
        self.unreported.store(false, Ordering::Release);
        let guest = self.active()?;
        let reported = guest.call_long(|cell| self.observe(&guest, cell, CALLS_AT_ONCE));
        self.judge_report(&guest, reported);
        None
    }

    /// Lets the guest observe the events since the last call, if there are any, in at most this many calls.
    fn observe(&self, guest: &ActiveGuest, cell: &mut GuestCell, calls: usize) -> Option<Result<CaughtUp, CallError>> {
        let (entered, own_time) = (self.clock.now(), OwnTime::begin());
        let reported = cell.catch_up_within(calls)?;
        if !matches!(reported, Ok(CaughtUp { observed: false, .. })) {
            let now = self.count_time(&own_time, entered);
            self.count_call(guest, Hook::Observe, (entered, now), cell.memory());
        }
        Some(reported)
    }

    /// After a report: a failure is a strike, and the maintenance thread continues what is left.
    fn judge_report(&self, guest: &Arc<ActiveGuest>, reported: Option<Result<CaughtUp, CallError>>) {
        match reported {
            Some(Err(error)) => self.strike(Some(guest), &error.into()),
            Some(Ok(CaughtUp { is_behind: true, .. })) => self.report_later(),
            _ => {}
        }
    }

    /// The answer for the core. A failed call is a strike.
    fn judge(
        &self,
        guest: &Arc<ActiveGuest>,
        round: &mut Round,
        answer: Result<PolicyAnswer, NoAnswer>,
    ) -> RoundAnswer {
        match answer {
            Ok(answer) => self.accept_answer(guest, round, answer),
            Err(why) => {
                if let NoAnswer::Failed(strike) = &why {
                    self.record(round, None, strike);
                    self.strike(Some(guest), strike);
                }
                self.no_answer(round, &why)
            }
        }
    }

    /// Checks an answer against its question.
    fn accept_answer(&self, guest: &Arc<ActiveGuest>, round: &mut Round, answer: PolicyAnswer) -> RoundAnswer {
        if let Err(fault) = round.check(&answer) {
            let what = invalid_answer::sentence(round, &answer, fault);
            let strike = Strike { fault, what };
            self.record(round, Some(&answer), &strike);
            self.strike(Some(guest), &strike);
            return self.no_answer(round, &NoAnswer::Failed(Strike { fault, what: String::new() }));
        }
        let PolicyAnswer::Plan(Ok(decision)) = answer else { return RoundAnswer { answer, shadow: None } };
        if !self.options.shadow {
            return RoundAnswer { answer, shadow: None };
        }
        let shadow = match decision {
            Decision::Default => Shadow::Default,
            Decision::Wait(_) => Shadow::Wait,
            Decision::Fire => Shadow::Fire(round.fired().collect(), !round.picks.reject.is_empty()),
        };
        round.picks.clear();
        RoundAnswer { answer: PolicyAnswer::Plan(Ok(Decision::Default)), shadow: Some(shadow) }
    }

    /// The answer in the guest's place: the built-in policy decides, in this same round.
    fn no_answer(&self, round: &mut Round, why: &NoAnswer) -> RoundAnswer {
        round.picks.clear();
        let fault = match why {
            NoAnswer::Absent | NoAnswer::Busy | NoAnswer::PassedOver => PolicyFault::Busy,
            NoAnswer::Failed(strike) => strike.fault,
        };
        let answer = match &round.asked {
            // A failed shadow costs no round.
            PolicyQuestion::Plan(_) if self.options.shadow => PolicyAnswer::Plan(Ok(Decision::Default)),
            // The core counts the other fallbacks, because it knows whether the round is still valid.
            PolicyQuestion::Plan(_) => PolicyAnswer::Plan(Err(fault)),
            PolicyQuestion::Admit { .. } => PolicyAnswer::Admit(Err(fault)),
        };
        RoundAnswer { answer, shadow: None }
    }
}
