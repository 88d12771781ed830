//! Admission and opening of a new sequence with its first request.

use std::time::Duration;

use crate::chain_links::ChainLinks;
use crate::core::{Core, load_in};
use crate::ending::Tombstone;
use crate::event::{Effect, Note, Refusal, Submit};
use crate::faults::{Planted, fault};
use crate::id_chains::IdLookup;
use crate::ids::{Id, LoadId};
use crate::list::List;
use crate::load::LoadState;
use crate::request_meta::FEATURES;
use crate::sequence::{FirstState, Sequence};
use crate::spec::{Expiry, OnEnding, WhenFull};
use crate::time::Time;

impl Core {
    /// Checks whether a new sequence may start, without changing anything.
    pub(crate) fn may_start(&self, now: Time, load: LoadId, found: &IdLookup, submit: &Submit) -> Result<(), Refusal> {
        let Some(load) = self.load(load) else { return Err(Refusal::Stopping) };
        let limits = &load.spec.limits;
        let count = || match limits.live {
            limit if limit > 0 && load.live >= limit + u32::from(fault(Planted::LimitOffByOne)) => {
                Err(Refusal::TooMany { limit })
            }
            _ => Ok(()),
        };
        if submit.dialect.count_first {
            count()?;
        }
        if found.ending.is_some() && submit.dialect.ending == OnEnding::Refuse {
            return Err(Refusal::Ending);
        }
        count()?;
        // Sequences that are being prepared will want a slot as well.
        let (free, waiting) = (load.free_slots(), load.backlog.len() + load.preparing);
        if limits.store > 0 && load.used + waiting >= limits.store {
            return Err(Refusal::StoreFull { limit: limits.store });
        }
        if waiting < free || (waiting == 0 && self.evictable(now, load).is_some()) {
            return Ok(());
        }
        if submit.dialect.full == WhenFull::Refuse {
            return Err(Refusal::TooMany { limit: load.slots() });
        }
        if waiting - free >= limits.backlog
            || load.backlog_bytes.saturating_add(submit.meta.bytes) > limits.backlog_bytes
        {
            return Err(Refusal::BacklogFull { sequences: load.backlog.len(), bytes: load.backlog_bytes });
        }
        Ok(())
    }

    /// Handles a step of an id that has no live sequence. The step is refused as unknown unless the driver or a tier may hold its
    /// sequence's state.
    pub(crate) fn activate(
        &mut self,
        now: Time,
        load: LoadId,
        id: Id,
        found: &IdLookup,
        submit: &Submit,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        // After an END was admitted, no step may join. A copy that a tier still keeps must not be found either.
        let kept = submit.adopt.is_some() || self.load(load).is_some_and(|l| l.spec.stages.activate);
        if found.ending.is_some() || !kept {
            return Err(Refusal::Unknown(self.remembered(now, load, &id)));
        }
        check_step(submit)?;
        self.may_start(now, load, found, submit)?;
        self.begin(now, load, id, submit, out);
        Ok(())
    }

    /// The tombstone of an id, if it is not too old.
    pub(crate) fn remembered(&self, now: Time, load: LoadId, id: &Id) -> Option<Tombstone> {
        let age = self.load(load)?.spec.limits.tomb_age;
        self.tombstones.find(id).filter(|stone| now - stone.at <= age)
    }

    /// Opens a sequence with its first request.
    pub(crate) fn begin(&mut self, now: Time, load: LoadId, id: Id, submit: &Submit, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        state.live += 1;
        self.born += 1;
        let adopts = submit.adopt.filter(|_| !submit.start);
        let announced = submit.start || (adopts.is_some() && !submit.prepare);
        let first = submit.step.or(adopts.map(|step| step.saturating_add(1))).unwrap_or(1);
        let sequence = Sequence {
            id,
            load,
            born: self.born,
            placement: None,
            stage: None,
            queue: List::default(),
            current: None,
            bytes: 0,
            ending: None,
            leaving: None,
            ran: false,
            holds_state: false,
            begun: false,
            first_state: (!submit.start).then_some(FirstState::Adopt(submit.req)),
            adopted: !submit.start,
            announced,
            held: submit.reserves(),
            level: submit.queue.level,
            next_step: first,
            first,
            starts: 0,
            step: first.saturating_sub(1),
            turn: None,
            began: now,
            touched: now,
            idle: state.idle_of(submit),
            idle_entry: 0,
            backlogged_at: now,
            backlog_until: Time::NEVER,
            state_shape: state.spec.initial_state_shape,
            state_bytes: 0,
            keys: [0; FEATURES],
            armed: Time::NEVER,
            chain: ChainLinks::default(),
        };
        let seq = self.seqs.insert(sequence);
        self.link(seq);
        self.queue(now, seq, load, submit);
        if announced {
            self.note(load, Note::Started(seq, submit.req), out);
        }
        if self.reqs.is_prepared(submit.req) || (submit.reserves() && !fault(Planted::ReservedLate)) {
            self.assign_slot_or_wait(now, seq, out);
        } else {
            self.will_want_room(load);
            self.prepare(submit.req, Some(seq), out);
        }
    }

    pub(crate) fn will_want_room(&mut self, load: LoadId) {
        if let Some(state) = load_in(&mut self.loads, load) {
            state.preparing += 1;
        }
    }

    pub(crate) fn wants_no_room(&mut self, load: LoadId) {
        if let Some(state) = load_in(&mut self.loads, load) {
            state.preparing = state.preparing.saturating_sub(1);
        }
    }
}

/// Compares the step number that a client counts with the step of the state that it adopts. A repeated step passes if the driver prepares
/// it, because the driver then has its answer.
fn check_step(submit: &Submit) -> Result<(), Refusal> {
    let Some((kept, step)) = submit.adopt.zip(submit.step) else { return Ok(()) };
    let want = kept.saturating_add(1);
    match step {
        step if step > want => Err(Refusal::StepGap { want }),
        step if step < kept || (step == kept && !submit.prepare) => Err(Refusal::StepGone { want }),
        _ => Ok(()),
    }
}

impl LoadState {
    /// The idle time of sequences that ask for none.
    pub(crate) fn default_idle(&self) -> Option<Duration> {
        if let Expiry::Idle(default) = self.spec.expiry { Some(default) } else { None }
    }

    /// The idle time of the sequence that this request opens. A START, or a step that adopts a state, may ask for one, up to
    /// `idle_longest`. Otherwise, or without `idle_longest`, it is the load's own.
    pub(crate) fn idle_of(&self, submit: &Submit) -> Option<Duration> {
        if let Expiry::TwoScans { .. } = self.spec.expiry {
            return None;
        }
        let default = self.default_idle();
        let asked = submit.idle.filter(|_| submit.start || submit.adopt.is_some()).zip(self.spec.idle_longest);
        let Some((asked, longest)) = asked else { return default };
        Some(if fault(Planted::IdleUncapped) { asked } else { asked.min(longest) })
    }
}
