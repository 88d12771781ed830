//! The core's record of a load: its instances with their slots, and the sequences that wait for one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::event::SlotOp;
use crate::faults::{Planted, fault};
use crate::idle_lists::IdleSequences;
use crate::ids::{LoadId, Req, RoundId, Seq, Slot};
use crate::level_queue::LevelQueue;
use crate::list::List;
use crate::observed::EventLog;
use crate::policies;
use crate::policy::{Columns, Hooks, Picks, Policy};
use crate::round::{Candidate, Round};
use crate::run_time::{LastRun, RunTime};
use crate::spec::{Hold, LoadSpec, Strategy};
use crate::time::Time;

#[derive(Debug)]
pub(crate) struct LoadState {
    pub(crate) key: LoadId,
    /// Serial number of the load under this name: the newest has the highest.
    pub(crate) born: u64,
    pub(crate) spec: LoadSpec,
    pub(crate) policy: Box<dyn Policy>,
    /// The policy for a round in which a request has waited for too long: first ready, first run.
    pub(crate) forced: Box<dyn Policy>,
    /// Since when a slot has been free; see [`LoadState::note_room`].
    room_since: Option<Time>,
    /// The hooks of the external policy, if one is attached.
    pub(crate) external: Option<Hooks>,
    /// The number of requests that must wait before anything runs.
    pub(crate) holding: Option<Hold>,
    pub(crate) instances: Vec<InstanceState>,
    /// Slots in use.
    pub(crate) used: u32,
    /// Live sequences.
    pub(crate) live: u32,
    /// Sequences that wait for a slot, in the order of their START.
    pub(crate) backlog: LevelQueue,
    /// Whether free slots are being given to the backlog.
    pub(crate) admitting: bool,
    pub(crate) backlog_bytes: u64,
    /// Sequences or stateless requests in preparation that have no slot or place yet. They count as waiting.
    pub(crate) preparing: u32,
    pub(crate) idle: IdleSequences,
    /// Ready stateless requests.
    pub(crate) ready: LevelQueue,
    /// Requests whose answers leave in the order in which they were taken, and whether each is done. `None` is a refused one.
    pub(crate) turns: VecDeque<(Option<Req>, bool)>,
    pub(crate) first_turn: u64,
    pub(crate) retired: Option<Time>,
    /// Whether the time limit of its retirement has passed.
    pub(crate) ended: bool,
    /// Whether the load stays until that limit after it is retired, for sequences that only it can continue.
    pub(crate) stays: bool,
    pub(crate) armed: Time,
    /// Events for its policy.
    pub(crate) log: EventLog,
    pub(crate) consulting: Consulting,
    /// How long a full batch takes.
    pub(crate) run_time: RunTime,
    // Kept from plan to plan, to reuse their memory.
    pub(crate) see: Columns,
    pub(crate) picks: Picks,
    pub(crate) keys: Vec<Candidate>,
    pub(crate) spare: Option<Box<Round>>,
}

#[derive(Debug, Default)]
pub(crate) struct InstanceState {
    /// Slots used so far. The table grows with the number of sequences that are live together.
    slots: Vec<SlotState>,
    /// The number of slots, including those not in the table yet.
    size: u32,
    /// Free slots of the table, lowest first.
    free: BinaryHeap<Reverse<u32>>,
    /// Sequences that can run, in the order in which they became ready.
    pub(crate) ready: List,
    /// Slot operations that wait for the owning thread.
    pub(crate) ops: Vec<SlotOp>,
    pub(crate) in_flight: u8,
    /// Whether its thread sleeps and was not woken yet.
    pub(crate) asleep: bool,
    pub(crate) gone: bool,
    /// Whether it is out of service, because its accelerator has failed.
    pub(crate) lost: bool,
    /// The question that its thread has open with the policy.
    pub(crate) asked: Option<RoundId>,
    /// The external policy wants no question before this time, unless a request arrives or completes.
    pub(crate) hold: Option<Time>,
    pub(crate) last_run: LastRun,
}

/// The state of the admission question to an external policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Consulting {
    No,
    /// The driver was notified to fetch it.
    Announced,
    /// The policy has it. `news`: whether something changed since that the question does not show.
    Out {
        round: RoundId,
        news: bool,
    },
}

impl InstanceState {
    /// Number of free slots. An instance out of service offers none.
    fn room(&self) -> u32 {
        if self.lost {
            return 0;
        }
        u32::try_from(self.free.len()).unwrap_or(u32::MAX).saturating_add(self.unused())
    }

    /// Number of slots never used. Their indices follow those of the table.
    fn unused(&self) -> u32 {
        self.size.saturating_sub(u32::try_from(self.slots.len()).unwrap_or(u32::MAX))
    }

    /// The lowest free slot.
    fn lowest(&self) -> Option<u32> {
        match self.free.peek().filter(|_| !self.lost) {
            Some(Reverse(n)) => Some(*n),
            None => (self.unused() > 0 && !self.lost).then(|| u32::try_from(self.slots.len()).ok()).flatten(),
        }
    }

    /// Takes the lowest free slot.
    fn take_lowest(&mut self) -> Option<u32> {
        let n = self.lowest()?;
        if self.free.pop().is_some() {
            return Some(n);
        }
        self.slots.push(SlotState { generation: NonZeroU32::MIN, seq: None });
        Some(n)
    }
}

#[derive(Debug)]
struct SlotState {
    generation: NonZeroU32,
    seq: Option<Seq>,
}

impl LoadState {
    pub(crate) fn new(key: LoadId, born: u64, spec: LoadSpec) -> LoadState {
        let size = spec.slots();
        let instance = || InstanceState { size, ..InstanceState::default() };
        LoadState {
            key,
            born,
            forced: policies::forced(&spec),
            policy: policies::built_in(&spec),
            external: spec.external,
            holding: spec.hold,
            instances: (0..spec.instances.max(1)).map(|_| instance()).collect(),
            used: 0,
            live: 0,
            backlog: LevelQueue::default(),
            admitting: false,
            backlog_bytes: 0,
            preparing: 0,
            idle: IdleSequences::default(),
            ready: LevelQueue::default(),
            turns: VecDeque::new(),
            first_turn: 0,
            retired: None,
            ended: false,
            stays: false,
            armed: Time::NEVER,
            log: EventLog::default(),
            consulting: Consulting::No,
            run_time: RunTime::default(),
            see: Columns::default(),
            picks: Picks::default(),
            keys: Vec::new(),
            spare: None,
            room_since: None,
            spec,
        }
    }

    pub(crate) fn has_free_slot(&self) -> bool {
        self.instances.iter().any(|i| i.room() > 0)
    }

    /// Number of slots of the instances in service.
    pub(crate) fn slots(&self) -> u32 {
        let of_one = self.spec.slots();
        self.instances.iter().filter(|i| !i.lost).map(|_| of_one).fold(0, u32::saturating_add)
    }

    /// Takes an instance out of service, unless it is the last one.
    pub(crate) fn lose(&mut self, n: u16) {
        let has_others = (0..).zip(&self.instances).any(|(other, i)| other != n && !i.lost);
        if let Some(instance) = self.instances.get_mut(usize::from(n)).filter(|_| has_others) {
            instance.lost = true;
        }
        if !self.has_free_slot() {
            self.room_since = None;
        }
    }

    pub(crate) fn free_slots(&self) -> u32 {
        self.instances.iter().map(InstanceState::room).fold(0, u32::saturating_add)
    }

    /// Records the time since which a slot has been free, if one is free now.
    pub(crate) fn note_room(&mut self, now: Time) {
        if self.has_free_slot() {
            self.room_since.get_or_insert(now);
        }
    }

    /// The time since which a slot has been free.
    pub(crate) fn room_since(&self) -> Time {
        self.room_since.unwrap_or(Time::ZERO)
    }

    /// Free slots of each instance.
    pub(crate) fn room(&self) -> Vec<u32> {
        self.instances.iter().map(InstanceState::room).collect()
    }

    /// Whether this instance has a free slot.
    pub(crate) fn has_room(&self, instance: u16) -> bool {
        self.instances.get(usize::from(instance)).is_some_and(|i| i.room() > 0)
    }

    /// The instance with the lowest free slot. On a tie the lowest instance wins, so that instances fill evenly.
    fn roomiest(&self) -> Option<u16> {
        let lowest = (0u16..).zip(&self.instances).filter_map(|(i, instance)| Some((instance.lowest()?, i)));
        if fault(Planted::SlotOutOfOrder) { lowest.max() } else { lowest.min() }.map(|(_, i)| i)
    }

    /// Gives `seq` the lowest free slot, of this instance if one is named.
    pub(crate) fn take_slot(&mut self, seq: Seq, of: Option<u16>) -> Option<(u16, Slot)> {
        let i = of.or_else(|| self.roomiest())?;
        let instance = self.instances.get_mut(usize::from(i))?;
        let n = instance.take_lowest()?;
        let slot = instance.slots.get_mut(n as usize)?;
        slot.seq = Some(seq);
        let slot = Slot::new(n, slot.generation);
        self.used += 1;
        if !self.has_free_slot() {
            self.room_since = None;
        }
        Some((i, slot))
    }

    /// Frees a slot. If it was given a state, its thread drops that state later. A stale slot frees nothing.
    pub(crate) fn free_slot(&mut self, instance: u16, slot: Slot, ran: bool) {
        let Some(owner) = self.instances.get_mut(usize::from(instance)) else { return };
        let Some(state) = owner.slots.get_mut(slot.ix as usize) else { return };
        if state.generation != slot.generation || state.seq.is_none() {
            return;
        }
        state.seq = None;
        // Wrapping is safe: no key outlives four thousand million uses of its slot.
        state.generation = state.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        if ran && !fault(Planted::FreeForgotten) {
            owner.ops.push(SlotOp::Free(slot));
        }
        let times = if fault(Planted::SlotReleasedTwice) { 2 } else { 1 };
        (0..times).for_each(|_| owner.free.push(Reverse(slot.ix)));
        self.used = self.used.saturating_sub(1);
    }

    /// Fills in the facts about the load that every round shows.
    pub(crate) fn describe(&self, now: Time, see: &mut Columns) {
        (see.now, see.max_batch) = (now.0, self.spec.max_batch.max(1));
        (see.live, see.backlog, see.free_instances) = (self.live, self.backlog.len(), self.free_instances());
        see.run_time = self.run_time.nanos();
    }

    /// The maximum wait of a ready request. After it the request runs next, against any policy.
    pub(crate) fn max_wait(&self) -> Duration {
        let own = self.external.and_then(|hooks| hooks.max_wait).filter(|_| !fault(Planted::OwnMaxWaitIgnored));
        own.unwrap_or(self.spec.limits.max_wait)
    }

    fn free_instances(&self) -> u32 {
        u32::try_from(self.instances.iter().filter(|i| i.in_flight == 0 && !i.lost).count()).unwrap_or(u32::MAX)
    }

    /// Gives a request the next place in the order of answers, if the load keeps one.
    pub(crate) fn take_turn(&mut self, req: Req) -> Option<u64> {
        let (Strategy::Oldest { in_order: true, .. } | Strategy::Stateless { in_order: true, .. }) = self.spec.strategy
        else {
            return None;
        };
        self.turns.push_back((Some(req), false));
        Some(self.first_turn + self.turns.len() as u64 - 1)
    }

    /// Whether an instance may take a batch now: nothing is in flight, or `depth` allows one more and the ready requests fill it. A smaller
    /// batch should wait for the running one, because requests that become ready meanwhile can join it. Two half batches would cost two
    /// runs.
    pub(crate) fn may_take(&self, n: u16) -> bool {
        let Some(instance) = self.instances.get(usize::from(n)) else { return false };
        let ready = if self.spec.is_stateful() { instance.ready.len() } else { self.ready.len() };
        if instance.lost && !fault(Planted::LostInstanceRuns) {
            return false;
        }
        match instance.in_flight {
            0 => true,
            flying => flying < self.spec.depth && (ready >= self.spec.full_batch() || fault(Planted::HalvesTaken)),
        }
    }

    /// Whether the load is retired and has nothing left to do. `open`: number of its requests that are not over.
    pub(crate) fn is_over(&self, open: u32) -> bool {
        self.retired.is_some() && self.live == 0 && open == 0 && (self.ended || !self.stays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::SlabKey;
    fn load(slots: u32, instances: u16) -> LoadState {
        let strategy = Strategy::Oldest { slots, preferred: vec![], delay: Duration::ZERO, in_order: false };
        let spec = LoadSpec { instances, ..LoadSpec::new(1, strategy, 4) };
        LoadState::new(LoadId::FIRST, 0, spec)
    }

    #[test]
    fn slots_are_given_lowest_first_over_all_instances() {
        let mut load = load(2, 2);
        let seq = |ix| Seq::make(ix, NonZeroU32::MIN);
        let given: Vec<_> = (0..4).map(|n| load.take_slot(seq(n), None).map(|(i, s)| (i, s.ix)).unwrap()).collect();
        assert_eq!(given, [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert!(load.take_slot(seq(4), None).is_none());
    }

    #[test]
    fn the_slot_table_grows_only_with_the_number_of_live_sequences() {
        let mut load = load(i32::MAX.unsigned_abs(), 1);
        let seq = |ix| Seq::make(ix, NonZeroU32::MIN);
        let mut take = |n| load.take_slot(seq(n), None).unwrap().1;
        let slots = [0, 1, 2].map(&mut take);
        load.free_slot(0, slots[1], true);
        assert_eq!(load.take_slot(seq(3), None).unwrap().1.ix, 1);
        assert_eq!((load.instances[0].slots.len(), load.room()), (3, vec![i32::MAX.unsigned_abs() - 3]));
    }

    #[test]
    fn a_slot_is_freed_once() {
        let mut load = load(1, 1);
        let seq = Seq::make(0, NonZeroU32::MIN);
        let (i, slot) = load.take_slot(seq, None).unwrap();
        load.free_slot(i, slot, true);
        load.free_slot(i, slot, true);
        assert_eq!((load.used, load.room(), load.instances[0].ops.len()), (0, vec![1], 1));
        let (_, again) = load.take_slot(seq, None).unwrap();
        assert_ne!(again, slot);
    }
}
