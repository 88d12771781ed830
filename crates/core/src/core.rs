//! [`Core`]: the scheduling state of one model name, and the methods through which drivers use it.

use std::collections::HashMap;

use crate::ending::{EndReason, Tombstone};
use crate::event::{Effect, Event, Refusal};
use crate::faults::{Planted, fault};
use crate::ids::{BatchId, Id, Instance, LoadId, Req, RoundId, Seq, Slot};
use crate::list::Links;
use crate::load::{InstanceState, LoadState};
use crate::loads::Loads;
use crate::request::{RequestStage, RequestTable};
use crate::sequence::{Sequence, Stage};
use crate::slab::Slab;
use crate::spec::LoadSpec;
use crate::time::Time;
use crate::timer::{Due, Timers, VOID};
use crate::tombstones::Tombstones;
use crate::transitions::Transitions;

/// Everything that is scheduled under one model name: all loads of it, their sequences, slots and queues.
#[derive(Debug, Default)]
pub struct Core {
    pub(crate) seqs: Slab<Seq, Sequence>,
    pub(crate) seq_links: Links,
    // Only looked up, never iterated, so the map's order has no effect.
    pub(crate) ids: HashMap<Id, Seq>,
    /// Ended sequences that still have a request past its queue, counted by id.
    pub(crate) leaving: HashMap<Id, u32>,
    pub(crate) reqs: RequestTable,
    pub(crate) req_links: Links,
    pub(crate) loads: Loads,
    pub(crate) batches: Slab<BatchId, RunningBatch>,
    pub(crate) rounds: Slab<RoundId, Instance>,
    pub(crate) tombstones: Tombstones,
    pub(crate) timers: Timers,
    pub(crate) transitions: Transitions,
    pub(crate) born: u64,
    births: u64,
}

/// A batch that was handed out and has not completed.
#[derive(Debug)]
pub(crate) struct RunningBatch {
    pub(crate) instance: Instance,
    /// Its real rows. After the run, the rows that wait to be sealed.
    pub(crate) reqs: Vec<Req>,
    /// Rows of all requests together.
    pub(crate) rows: u32,
    pub(crate) taken: Time,
    pub(crate) sealing: bool,
}

/// How full a load is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Live sequences, including those in the backlog.
    pub live: u32,
    pub backlog: u32,
    pub slots_used: u32,
    pub slots: u32,
    /// Ready requests that wait for an instance.
    pub ready: u32,
}

/// The place of a sequence's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateAt {
    pub instance: Instance,
    pub slot: Slot,
    /// The last committed step.
    pub step: u64,
}

impl Core {
    pub fn new() -> Core {
        Core::default()
    }

    /// Applies an event. Effects are appended to `out`. Any thread may act on them, in any order, once the lock is released.
    pub fn apply(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) {
        self.expire(now, out);
        match event {
            Event::Loaded(load, spec) => self.loaded(load, spec),
            Event::Retire { load, until } => self.retire(now, load, until, out),
            Event::Stay(load) => self.stay(load),
            Event::MoveStart(seq, to) => self.move_start(now, seq, to, out),
            Event::Attach(load, hooks) => self.attach(now, load, hooks, out),
            Event::Submit(submit) => self.submit(now, &submit, out),
            Event::Cancel(req) => self.cancel(now, req, Refusal::Cancelled, EndReason::Cancelled, out),
            Event::Prepared(req, prepared) => self.prepared(now, req, prepared, out),
            Event::FirstShape(req, shape) => self.first_shape(req, shape),
            Event::NextRun(req, meta) => self.next_run(req, meta),
            Event::Ran { batch, rows } => self.ran(now, batch, &rows, out),
            Event::Sealed(batch, failed) => self.sealed(now, batch, &failed, out),
            Event::Posted(req) => self.posted(now, req, out),
            Event::Replied(req, failed) => self.replied(now, req, failed, out),
            Event::InstanceLost(who) => self.instance_lost(now, who, out),
            Event::End(seq, why) => self.leave(now, seq, why, Refusal::of_end(why), out),
            Event::Tick => {}
        }
        self.drop_void_timers();
    }

    /// The latest time for the next [`Event::Tick`]. The tick may find nothing due, because deadlines are armed lazily.
    pub fn due(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Length of the table of loads: the maximum number of loads of this model name at one time. Every submit goes through all of it.
    pub fn load_capacity(&self) -> usize {
        self.loads.capacity()
    }

    /// Number of armed deadlines, including void ones. At most this many ticks find nothing due. There are at most 64, plus two for each
    /// open request, live sequence and load.
    pub fn armed(&self) -> usize {
        self.timers.len()
    }

    pub fn usage(&self, load: LoadId) -> Usage {
        let Some(state) = self.load(load) else { return Usage::default() };
        let ready: u32 = state.instances.iter().map(|i| i.ready.len()).sum();
        Usage {
            live: state.live,
            backlog: state.backlog.len(),
            slots_used: state.used,
            slots: state.slots(),
            ready: ready + state.ready.len(),
        }
    }

    /// The live sequence that a request with this id and `version` would join.
    pub fn find(&self, id: &Id, version: Option<u64>) -> Option<Seq> {
        self.lookup(id, version).live
    }

    /// The sequence of this id that ends with the requests which are queued. No further request joins it.
    pub fn find_ending(&self, id: &Id) -> Option<Seq> {
        self.lookup(id, None).ending
    }

    /// The id of a sequence.
    pub fn id_of(&self, seq: Seq) -> Option<&Id> {
        self.seqs.get(seq).map(|s| &s.id)
    }

    /// The place of a sequence's state, once its slot holds it: from the end of the first run of its life. A batch that was only handed out
    /// does not count. Until its thread has done the slot operations, the slot still holds an older state.
    pub fn state_of(&self, seq: Seq) -> Option<StateAt> {
        let s = self.seqs.get(seq).filter(|s| s.holds_state || (s.ran && fault(Planted::StateShownEarly)))?;
        let (n, slot) = s.placement?;
        Some(StateAt { instance: Instance { load: s.load, n }, slot, step: s.step })
    }

    /// Whether a request of several runs has run in part. The state is then neither that of before the request nor that of after it.
    pub fn is_between_runs(&self, seq: Seq) -> bool {
        let Some(s) = self.seqs.get(seq) else { return false };
        let head = s.queue.front().and_then(|ix| self.reqs.at(ix));
        let current = s.current.and_then(|req| self.reqs.get(req));
        head.is_some_and(|r| r.ran > 0) || current.is_some_and(|r| r.ran > 0 && r.stage == RequestStage::Running)
    }

    /// The sequences with a row in a batch that runs.
    pub fn sequences_in(&self, batch: BatchId) -> Vec<Seq> {
        let reqs = self.batches.get(batch).map_or(&[][..], |batch| &batch.reqs);
        reqs.iter().filter_map(|req| self.reqs.get(*req)?.seq).collect()
    }

    /// Whether this sequence has a slot.
    pub fn has_slot(&self, seq: Seq) -> bool {
        self.seqs.get(seq).is_some_and(|s| s.placement.is_some())
    }

    /// Whether the driver is preparing a request.
    pub fn is_preparing(&self, req: Req) -> bool {
        self.reqs.get(req).is_some_and(|r| r.stage == RequestStage::Preparing)
    }

    /// The request's step number, counted from 1 unless the client counts differently. 0 for a stateless request or one that is over.
    pub fn step_of_request(&self, req: Req) -> u64 {
        self.reqs.get(req).map_or(0, |r| r.step)
    }

    /// Tombstones kept.
    pub fn tombstones(&self) -> usize {
        self.tombstones.len()
    }

    /// The tombstone of an id that has no sequence now.
    pub fn tombstone(&self, id: &Id) -> Option<Tombstone> {
        self.tombstones.find(id)
    }

    /// Every live sequence with the stage it is in, in table order.
    pub fn sequences(&self) -> impl Iterator<Item = (Seq, &Id, Stage)> {
        self.seqs.iter().filter_map(|(key, s)| Some((key, &s.id, s.stage?)))
    }

    /// Counts of the transitions between stages.
    pub fn transitions(&self) -> &Transitions {
        &self.transitions
    }

    // === inside ===

    pub(crate) fn load(&self, key: LoadId) -> Option<&LoadState> {
        self.loads.get(key)
    }

    pub(crate) fn load_mut(&mut self, key: LoadId) -> Option<&mut LoadState> {
        load_in(&mut self.loads, key)
    }

    pub(crate) fn instance_mut(&mut self, who: Instance) -> Option<&mut InstanceState> {
        self.load_mut(who.load)?.instances.get_mut(usize::from(who.n))
    }

    fn loaded(&mut self, key: LoadId, spec: LoadSpec) {
        self.births += 1;
        self.loads.insert(LoadState::new(key, self.births, spec));
    }

    /// The load that takes new sequences of this version, or of any version if none is named: the newest load of the highest version.
    pub(crate) fn target(&self, version: Option<u64>) -> Option<LoadId> {
        let open = self.loads.iter().filter(|l| l.retired.is_none());
        let fits = open.filter(|l| version.is_none_or(|v| l.spec.version == v));
        fits.max_by_key(|l| (l.spec.version, l.born)).map(|l| l.key)
    }

    pub(crate) fn set_stage(&mut self, seq: Seq, to: Stage) {
        if let Some(s) = self.seqs.get_mut(seq) {
            self.transitions.count(s.stage, Some(to));
            s.stage = Some(to);
        }
    }

    /// Drops void deadlines once they may outnumber the live ones, so that the cost of an event stays bounded.
    fn drop_void_timers(&mut self) {
        let armed = self.timers.len();
        if armed <= VOID || fault(Planted::DeadlinesKept) {
            return;
        }
        let owners = self.reqs.len() + self.seqs.len() + self.loads.capacity();
        if armed > VOID + 2 * owners {
            let Core { timers, seqs, reqs, loads, .. } = self;
            timers.keep(|due| match due {
                Due::Seq(seq) => seqs.get(seq).map(|s| s.armed),
                Due::Req(req) => reqs.get(req).map(|r| r.armed),
                Due::Load(load) => loads.get(load).map(|l| l.armed),
            });
        }
    }

    /// Handles every deadline that has passed.
    pub(crate) fn expire(&mut self, now: Time, out: &mut Vec<Effect>) {
        while let Some((at, due)) = self.timers.pop(now) {
            match due {
                Due::Seq(seq) => self.sequence_due(now, at, seq, out),
                Due::Req(req) => self.request_due(now, at, req, out),
                Due::Load(load) => self.load_due(now, at, load, out),
            }
        }
    }
}

pub(crate) fn load_in(loads: &mut Loads, key: LoadId) -> Option<&mut LoadState> {
    loads.get_mut(key)
}
