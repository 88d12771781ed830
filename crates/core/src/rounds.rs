//! Rounds: questions to an external policy, and the use of its answers. An answer that contradicts its question is the policy's fault. A
//! pick that became stale meanwhile is not.

use crate::core::{Core, load_in};
use crate::ending::EndReason;
use crate::event::{Effect, Next, Note, Refusal};
use crate::faults::{Planted, fault};
use crate::ids::{Instance, LoadId, Req, Seq};
use crate::load::Consulting;
use crate::plan::PlannedStep;
use crate::policy::{Admission, Columns, Decision, Hooks, Picks, PolicyFault, Rejection, columns};
use crate::request::{RequestStage, RunPlan};
use crate::round::{Candidate, PolicyAnswer, PolicyQuestion, Round};
use crate::sequence::{Sequence, Stage};
use crate::time::Time;

impl Core {
    // === plan ===

    pub(crate) fn ask(&mut self, now: Time, who: Instance, hooks: Hooks) -> Box<Round> {
        let id = self.rounds.insert(who);
        let mut round = self.round(who.load, id, PolicyQuestion::Plan(who), hooks);
        let (mut see, mut keys) = (std::mem::take(&mut round.see), std::mem::take(&mut round.keys));
        let limit = self.load(who.load).map_or(0, |l| l.spec.limits.candidates);
        self.fill(now, who, Hooks { window: hooks.shown(limit), ..hooks }, &mut see, &mut keys);
        (round.see, round.keys) = (see, keys);
        if let Some(instance) = self.instance_mut(who) {
            instance.asked = Some(id);
        }
        round
    }

    /// An empty round, in the memory of an earlier one.
    fn round(&mut self, load: LoadId, id: crate::ids::RoundId, asked: PolicyQuestion, hooks: Hooks) -> Box<Round> {
        let state = load_in(&mut self.loads, load);
        let (spare, (first, news, lost)) = state.map(|l| (l.spare.take(), l.log.take())).unwrap_or_default();
        match spare {
            Some(mut round) => {
                (round.id, round.asked, round.hooks) = (id, asked, hooks);
                (round.news, round.first, round.lost) = (news, first, lost);
                round.picks.clear();
                round.victims.clear();
                round
            }
            None => Box::new(Round {
                id,
                asked,
                see: Columns::default(),
                hooks,
                news,
                first,
                lost,
                picks: Picks::default(),
                keys: Vec::new(),
                victims: Vec::new(),
            }),
        }
    }

    /// Takes the answer to a round and returns the next step of its instance. After an admission question that is [`Next::Sleep`].
    pub fn answer(&mut self, now: Time, round: Box<Round>, answer: PolicyAnswer, out: &mut Vec<Effect>) -> Next {
        self.expire(now, out);
        let Some(who) = self.rounds.remove(round.id) else { return Next::Sleep(None) };
        let next = match (answer, &round.asked) {
            (PolicyAnswer::Plan(answer), PolicyQuestion::Plan(_)) => self.planned(now, who, &round, answer, out),
            (PolicyAnswer::Admit(answer), PolicyQuestion::Admit { .. }) => {
                self.admitted(now, who.load, &round, answer, out);
                Next::Sleep(None)
            }
            (_, PolicyQuestion::Plan(_)) => self.planned(now, who, &round, Err(PolicyFault::Trap), out),
            (_, PolicyQuestion::Admit { .. }) => {
                self.admitted(now, who.load, &round, Err(PolicyFault::Trap), out);
                Next::Sleep(None)
            }
        };
        if let Some(state) = load_in(&mut self.loads, who.load) {
            state.spare = Some(round);
        }
        next
    }

    fn planned(
        &mut self,
        now: Time,
        who: Instance,
        round: &Round,
        answer: Result<Decision, PolicyFault>,
        out: &mut Vec<Effect>,
    ) -> Next {
        let asked = self.instance_mut(who).map(|i| (i.asked.take(), i.lost));
        if asked != Some((Some(round.id), false)) {
            return self.next(now, who, out);
        }
        let checked = round.check(&PolicyAnswer::Plan(answer)).and(answer);
        match checked {
            Err(fault) => {
                self.note(who.load, Note::Fault(who.load, fault), out);
                self.fall_back(now, who, out)
            }
            Ok(Decision::Default) => self.built_in_turn(now, who, out),
            Ok(Decision::Wait(until)) if until <= now => {
                // A wait that is over decides nothing. Asking again at once would never stop.
                self.reject(now, round, out);
                self.built_in_turn(now, who, out)
            }
            Ok(Decision::Wait(until)) => {
                self.reject(now, round, out);
                self.hold(who, until);
                self.rest(who, self.held_until(who))
            }
            Ok(Decision::Fire) => {
                self.reject(now, round, out);
                self.fire(now, who, round, out)
            }
        }
    }

    fn fire(&mut self, now: Time, who: Instance, round: &Round, out: &mut Vec<Effect>) -> Next {
        let picked = round.picks.fire.iter().filter_map(|i| round.keys.get(*i as usize)).map(|c| c.req);
        let picked: Vec<Req> = picked.collect();
        let standing: Vec<Req> = picked.iter().copied().filter(|req| self.stands(*req, who)).collect();
        let stale = picked.len() - standing.len();
        if stale > 0 {
            self.note(who.load, Note::Stale(who.load, u32::try_from(stale).unwrap_or(u32::MAX)), out);
        }
        if !standing.is_empty() {
            return Next::Run(self.take(now, who, &standing, out));
        }
        if picked.is_empty() {
            // It fired nothing, which equals a wait for the next event.
            self.hold(who, Time::NEVER);
            return self.rest(who, self.held_until(who));
        }
        self.next(now, who, out)
    }

    /// Whether a candidate can still run on this instance.
    fn stands(&self, req: Req, who: Instance) -> bool {
        if fault(Planted::StalePickAccepted) {
            return self.reqs.get(req).is_some();
        }
        let Some(r) = self.reqs.get(req).filter(|r| r.stage == RequestStage::Queued && r.load == who.load) else {
            return false;
        };
        match r.seq.map(|seq| self.seqs.get(seq)) {
            None => matches!(r.plan, Some(RunPlan::Run(_))),
            Some(None) => false,
            Some(Some(s)) => {
                s.stage == Some(Stage::Ready)
                    && s.queue.front() == Some(req.ix)
                    && s.placement.is_some_and(|(n, _)| n == who.n)
            }
        }
    }

    /// Refuses the candidates that the policy rejected, if they still wait. The policy decides whether each one's sequence ends too.
    fn reject(&mut self, now: Time, round: &Round, out: &mut Vec<Effect>) {
        for Rejection { candidate, code, ends } in &round.picks.reject {
            let ends = *ends || fault(Planted::KeptSequenceEnded);
            if let Some(candidate) = round.keys.get(*candidate as usize) {
                self.turn_away(now, candidate.req, Refusal::Policy(*code), EndReason::Rejected, ends, out);
            }
        }
    }

    fn hold(&mut self, who: Instance, until: Time) {
        if let Some(instance) = self.instance_mut(who) {
            instance.hold = Some(until);
        }
    }

    /// The time at which a holding instance asks again: no request waits longer than the load's limit.
    fn held_until(&self, who: Instance) -> Option<Time> {
        let state = self.load(who.load)?;
        let hold = state.instances.get(usize::from(who.n))?.hold?;
        let limit = self.oldest_ready(who).map_or(Time::NEVER, |ready| ready + state.max_wait());
        let until = hold.min(limit);
        (until < Time::NEVER).then_some(until)
    }

    fn fall_back(&mut self, now: Time, who: Instance, out: &mut Vec<Effect>) -> Next {
        self.note(who.load, Note::Fallback(who.load), out);
        if fault(Planted::FallbackForgotten) {
            return self.rest(who, None);
        }
        self.built_in_turn(now, who, out)
    }

    fn built_in_turn(&mut self, now: Time, who: Instance, out: &mut Vec<Effect>) -> Next {
        if self.oldest_ready(who).is_none() {
            return self.rest(who, None);
        }
        match self.plan_built_in(now, who, false) {
            PlannedStep::Run(keys) => Next::Run(self.take(now, who, &keys, out)),
            PlannedStep::Ask(_) | PlannedStep::Nothing(None) => self.rest(who, None),
            PlannedStep::Nothing(Some(until)) => {
                self.hold(who, until);
                self.rest(who, self.held_until(who))
            }
        }
    }

    // === admit ===

    /// Notifies the driver of an admission question, if there is something to decide.
    pub(crate) fn announce_consult(&mut self, load: LoadId, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        let possible = state.has_free_slot() || !state.idle.is_empty();
        if state.backlog.is_empty() || !possible {
            return;
        }
        match &mut state.consulting {
            Consulting::No => {
                state.consulting = Consulting::Announced;
                out.push(Effect::Consult(load));
                // A sleeping instance can ask it. An instance that is awake finds it before its next step.
                if let Some((n, sleeper)) = (0u16..).zip(&mut state.instances).find(|(_, i)| i.asleep) {
                    sleeper.asleep = false;
                    out.push(Effect::Wake(Instance { load, n }));
                }
            }
            Consulting::Announced => {}
            Consulting::Out { news, .. } => *news = !fault(Planted::ConsultForgotten),
        }
    }

    /// The waiting admission question of this load, if any. Answer it with [`Core::answer`].
    pub fn consult(&mut self, now: Time, load: LoadId) -> Option<Box<Round>> {
        let state = load_in(&mut self.loads, load).filter(|l| l.consulting == Consulting::Announced)?;
        // If the waiting sequences are gone, there is no question.
        let Some(hooks) = state.external.filter(|h| h.admit && !state.backlog.is_empty()) else {
            state.consulting = Consulting::No;
            return None;
        };
        let room = state.room();
        let window = hooks.shown(state.spec.limits.candidates) as usize;
        let heads: Vec<u32> = state.backlog.iter(&self.seq_links).take(window).collect();
        let state = self.load(load)?;
        let idle: Vec<Seq> = self.idle_in_order(state).take(window).collect();
        let mut victims = Columns { now: now.0, ..Columns::default() };
        let mut behind = Vec::new();
        for seq in idle {
            self.show_victim(seq, hooks, &mut victims);
            behind.push(seq);
        }
        victims.len = u32::try_from(behind.len()).unwrap_or(u32::MAX);
        let id = self.rounds.insert(Instance { load, n: 0 });
        let mut round = self.round(load, id, PolicyQuestion::Admit { load, room, victims: Box::new(victims) }, hooks);
        round.victims = behind;
        round.see.clear();
        round.keys.clear();
        let (mut see, mut keys) = (std::mem::take(&mut round.see), std::mem::take(&mut round.keys));
        for ix in heads {
            self.show(ix, true, hooks, &mut see, &mut keys);
        }
        let state = load_in(&mut self.loads, load)?;
        state.consulting = Consulting::Out { round: id, news: false };
        state.describe(now, &mut see);
        see.len = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        see.not_shown = state.backlog.len().saturating_sub(see.len);
        (round.see, round.keys) = (see, keys);
        Some(round)
    }

    /// Shows an idle sequence to a policy: handle, step, slot, size, and since when it is idle (in `ready`).
    fn show_victim(&self, seq: Seq, hooks: Hooks, see: &mut Columns) {
        let Some(s) = self.seqs.get(seq) else { return };
        let asked = |column: u32| hooks.columns & column != 0;
        if asked(columns::SEQ) {
            see.seq.push(seq.handle());
        }
        if asked(columns::STEP) {
            see.step.push(s.step);
        }
        if asked(columns::SLOT) {
            see.slot.push(s.placement.map_or(u32::MAX, |(_, slot)| slot.ix));
        }
        if asked(columns::READY) {
            see.ready.push(s.touched.0);
        }
        if asked(columns::STATE_BYTES) {
            see.state_bytes.push(s.state_bytes);
        }
    }

    fn admitted(
        &mut self,
        now: Time,
        load: LoadId,
        round: &Round,
        answer: Result<Vec<Admission>, PolicyFault>,
        out: &mut Vec<Effect>,
    ) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        let Consulting::Out { round: asked, news } = state.consulting else { return };
        if asked != round.id {
            return;
        }
        state.consulting = Consulting::No;
        self.admit(now, load, round, answer, out);
        if news {
            self.announce_consult(load, out);
        }
        // The slots it gave away are no longer free. The rest may have been free for longer.
        self.arm_load(load, now);
    }

    fn admit(
        &mut self,
        now: Time,
        load: LoadId,
        round: &Round,
        answer: Result<Vec<Admission>, PolicyFault>,
        out: &mut Vec<Effect>,
    ) {
        let answer = PolicyAnswer::Admit(answer);
        if let Err(fault) = round.check(&answer) {
            return self.admit_fault(now, load, fault, out);
        }
        let PolicyAnswer::Admit(Ok(answers)) = answer else { return };
        let mut stale = 0;
        for (candidate, answer) in round.keys.iter().zip(answers) {
            if !self.admit_one(now, load, candidate, answer, &round.victims, out) {
                stale += 1;
            }
        }
        if stale > 0 {
            self.note(load, Note::Stale(load, stale), out);
        }
    }

    fn admit_fault(&mut self, now: Time, load: LoadId, fault: PolicyFault, out: &mut Vec<Effect>) {
        self.note(load, Note::Fault(load, fault), out);
        self.note(load, Note::Fallback(load), out);
        self.admit_in_order(now, load, out);
    }

    /// Applies the policy's decision about one backlogged sequence. False if the decision is stale.
    fn admit_one(
        &mut self,
        now: Time,
        load: LoadId,
        candidate: &Candidate,
        answer: Admission,
        victims: &[Seq],
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(seq) = self.reqs.get(candidate.req).and_then(|r| r.seq) else { return false };
        // A START that has moved waits for another load, which this policy does not decide for.
        let waits =
            |s: &Sequence| s.stage == Some(Stage::Backlogged) && (s.load == load || fault(Planted::MovedStillAdmitted));
        if !self.seqs.get(seq).is_some_and(waits) {
            return false;
        }
        match answer {
            Admission::Defer => true,
            Admission::Reject(code) => {
                self.leave(now, seq, EndReason::Rejected, Refusal::Policy(code), out);
                true
            }
            Admission::Take { instance } => {
                let has_room = self.load(load).is_some_and(|l| l.has_room(instance));
                has_room && self.admit_now(now, load, seq, Some(instance), out)
            }
            Admission::Evict { victim } => {
                let Some(victim) = victims.get(victim as usize).copied() else { return false };
                let soft = self.load(load).and_then(|l| self.soft_idle(victim, l));
                let idle = self.seqs.get(victim).is_some_and(|s| s.stage == Some(Stage::Idle));
                if !idle || soft.is_none_or(|at| at > now) {
                    return false;
                }
                let of = self.seqs.get(victim).and_then(|s| s.placement).map(|(n, _)| n);
                self.unlist(victim);
                self.remove(now, victim, EndReason::Evicted, Refusal::Ended(EndReason::Evicted), out);
                self.admit_now(now, load, seq, of, out)
            }
        }
    }

    fn admit_now(&mut self, now: Time, load: LoadId, seq: Seq, of: Option<u16>, out: &mut Vec<Effect>) -> bool {
        self.unbacklog(load, seq);
        self.assign_slot(now, seq, of, out)
    }
}
