//! The last steps of each sequence, for operators: when its requests waited and ran, in which batch, and who chose the batch.
//!
//! A step costs one write into an array of its sequence. Only the first step of a sequence allocates. The steps of an ended sequence stay for a while:
//! those of sequences that their clients ended, and those of all others, each up to a limit.

use std::collections::VecDeque;

use sequor_core::{BatchId, EndReason, Id, Seq, Time};

use crate::model::sequences::jobs::{BatchOfStep, Job};

/// Steps that are kept of a sequence.
const STEPS: usize = 8;
/// Ended sequences whose steps are kept, if their clients ended them or if they moved to the store.
const ORDERLY: usize = 256;
/// Ended sequences whose steps are kept, if they ended in another way.
const OTHERS: usize = 1024;
/// Number of ended sequences among which a late answer looks for its own.
const LATE: usize = 16;

/// A step that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model::sequences) struct StepRecord {
    pub(in crate::model::sequences) batch: BatchOfStep,
    pub(in crate::model::sequences) arrived: Time,
    /// When its batch was taken.
    pub(in crate::model::sequences) taken: Time,
    pub(in crate::model::sequences) answered: Time,
}

impl StepRecord {
    /// The step of a request that is answered now.
    pub(super) fn new(now: Time, job: &Job) -> StepRecord {
        let batch = BatchOfStep { failed: matches!(job.answer, Some(Err(_))), ..job.batch };
        StepRecord { batch, arrived: job.arrived, taken: job.taken, answered: now }
    }
}

/// The steps of one sequence. A new step overwrites the oldest.
#[derive(Debug, Clone)]
struct SequenceSteps {
    seq: Seq,
    id: Id,
    /// Steps that were ever added.
    count: usize,
    steps: [Option<StepRecord>; STEPS],
}

impl SequenceSteps {
    fn new(seq: Seq, id: &Id) -> SequenceSteps {
        SequenceSteps { seq, id: id.clone(), count: 0, steps: [None; STEPS] }
    }

    fn push(&mut self, step: StepRecord) {
        if let Some(place) = self.steps.get_mut(self.count % STEPS) {
            *place = Some(step);
        }
        self.count += 1;
    }

    /// The latest first.
    fn latest(&self) -> Vec<StepRecord> {
        (1..=STEPS.min(self.count)).filter_map(|back| *self.steps.get((self.count - back) % STEPS)?).collect()
    }

    fn is_in(&self, batch: BatchId) -> bool {
        self.steps.iter().flatten().any(|step| step.batch.id == Some(batch))
    }
}

/// The last steps of the sequences of one model.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct RecentSteps {
    /// By the index of a sequence's key.
    live: Vec<Option<Box<SequenceSteps>>>,
    orderly: VecDeque<Box<SequenceSteps>>,
    others: VecDeque<Box<SequenceSteps>>,
}

impl RecentSteps {
    /// Adds the step of a sequence. A sequence that is not live has ended with this step or shortly before its answer.
    pub(super) fn add(&mut self, (seq, is_live): (Seq, bool), id: &Id, step: StepRecord) {
        let ix = seq.ix as usize;
        if let Some(Some(steps)) = self.live.get_mut(ix).filter(|place| is_of(place, seq)) {
            return steps.push(step);
        }
        if !is_live {
            let mut late = self.orderly.iter_mut().rev().take(LATE).chain(self.others.iter_mut().rev().take(LATE));
            if let Some(steps) = late.find(|steps| steps.seq == seq) {
                steps.push(step);
            }
            return;
        }
        if self.live.len() <= ix {
            self.live.resize_with(ix + 1, || None);
        }
        if let Some(place) = self.live.get_mut(ix) {
            place.insert(Box::new(SequenceSteps::new(seq, id))).push(step);
        }
    }

    /// Moves the steps of a sequence that has ended to those of ended ones.
    pub(super) fn end(&mut self, seq: Seq, why: EndReason) {
        let Some(steps) = self.live.get_mut(seq.ix as usize).filter(|place| is_of(place, seq)).and_then(Option::take)
        else {
            return;
        };
        let is_orderly = why.continues_from_store() || matches!(why, EndReason::End | EndReason::Restarted);
        let (ended, limit) = if is_orderly { (&mut self.orderly, ORDERLY) } else { (&mut self.others, OTHERS) };
        if ended.len() >= limit {
            ended.pop_front();
        }
        ended.push_back(steps);
    }

    /// The last steps of the live sequence of this key. Without a key, those of the last ended sequence of an id. The latest comes first.
    pub(in crate::model::sequences) fn of(&self, live: Option<Seq>, id: &Id) -> Vec<StepRecord> {
        if let Some(seq) = live {
            let steps = self.live.get(seq.ix as usize).filter(|place| is_of(place, seq));
            return steps.and_then(Option::as_deref).map(SequenceSteps::latest).unwrap_or_default();
        }
        let ended = [&self.orderly, &self.others]
            .map(|ended| ended.iter().rev().find(|steps| steps.id == *id).map(Box::as_ref));
        let last = |steps: &&SequenceSteps| steps.latest().first().map(|step| step.answered);
        ended.into_iter().flatten().max_by_key(last).map(SequenceSteps::latest).unwrap_or_default()
    }

    /// The ids of sequences with a step in one of these batches, among `most` sequences from this place on. Also the next place, if there is
    /// more.
    pub(in crate::model::sequences) fn in_batches(
        &self,
        batches: &[BatchId],
        from: usize,
        most: usize,
    ) -> (Vec<(BatchId, Id)>, Option<usize>) {
        let places = self.live.len() + self.orderly.len() + self.others.len();
        let next = from.saturating_add(most).min(places);
        // The part of the portion that is among `len` places from `first` on. Nothing walks over the places before it.
        let part = |first: usize, len: usize| {
            let within = |place: usize| place.saturating_sub(first).min(len);
            within(from)..within(next)
        };
        let live = self.live.get(part(0, self.live.len())).unwrap_or_default().iter().filter_map(Option::as_deref);
        let orderly = self.orderly.range(part(self.live.len(), self.orderly.len()));
        let others = self.others.range(part(self.live.len() + self.orderly.len(), self.others.len()));
        let of = |steps: &SequenceSteps| {
            let found = batches.iter().filter(|batch| steps.is_in(**batch));
            found.map(|batch| (*batch, steps.id.clone())).collect::<Vec<_>>()
        };
        let found = live.chain(orderly.chain(others).map(Box::as_ref)).flat_map(of).collect();
        (found, (next < places).then_some(next))
    }
}

fn is_of(place: &Option<Box<SequenceSteps>>, seq: Seq) -> bool {
    place.as_ref().is_some_and(|steps| steps.seq == seq)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn seq(ix: u32, generation: u32) -> Seq {
        Seq::new(ix, NonZeroU32::new(generation).unwrap())
    }

    fn batch(ix: u32) -> BatchId {
        BatchId::new(ix, NonZeroU32::MIN)
    }

    fn step(step: u64, at: u32) -> StepRecord {
        let (batch, at) = (BatchOfStep { id: Some(batch(at)), step, ..BatchOfStep::default() }, Time(u64::from(at)));
        StepRecord { batch, arrived: at, taken: at, answered: at }
    }

    fn numbers(steps: &[StepRecord]) -> Vec<u64> {
        steps.iter().map(|step| step.batch.step).collect()
    }

    /// The steps of an ended sequence.
    fn steps_of(recent: &RecentSteps, id: u64) -> Vec<u64> {
        numbers(&recent.of(None, &Id::Int(id)))
    }

    #[test]
    fn a_sequence_keeps_its_last_steps() {
        let mut recent = RecentSteps::default();
        let of = |recent: &RecentSteps| numbers(&recent.of(Some(seq(0, 1)), &Id::Int(7)));
        assert_eq!(of(&recent), [0; 0]);
        for n in 1..=3 {
            recent.add((seq(0, 1), true), &Id::Int(7), step(n, n as u32));
        }
        assert_eq!(of(&recent), [3, 2, 1]);
        for n in 4..=11 {
            recent.add((seq(0, 1), true), &Id::Int(7), step(n, n as u32));
        }
        assert_eq!(of(&recent), [11, 10, 9, 8, 7, 6, 5, 4]);
        assert_eq!(numbers(&recent.of(Some(seq(0, 2)), &Id::Int(7))), [0; 0], "a later sequence without a step");
    }

    #[test]
    fn steps_outlive_their_sequence_and_its_place_in_the_table() {
        let mut recent = RecentSteps::default();
        recent.add((seq(0, 1), true), &Id::Int(7), step(1, 1));
        assert_eq!(steps_of(&recent, 7), [0; 0]);
        recent.end(seq(0, 1), EndReason::Idle);
        recent.add((seq(0, 2), true), &Id::Int(8), step(1, 2));
        assert_eq!(steps_of(&recent, 7), [1]);
        recent.add((seq(0, 1), false), &Id::Int(7), step(2, 3));
        assert_eq!(steps_of(&recent, 7), [2, 1], "its last answer came after its end");
        recent.end(seq(0, 2), EndReason::End);
        recent.add((seq(0, 3), true), &Id::Int(8), step(9, 4));
        recent.end(seq(0, 3), EndReason::Idle);
        assert_eq!(steps_of(&recent, 8), [9], "a later sequence of the same id");
    }

    #[test]
    fn sequences_that_their_clients_ended_do_not_push_out_the_others() {
        let mut recent = RecentSteps::default();
        recent.add((seq(0, 1), true), &Id::Int(1), step(1, 1));
        recent.end(seq(0, 1), EndReason::Idle);
        for n in 2..=2000 {
            recent.add((seq(0, n), true), &Id::Int(u64::from(n)), step(1, n));
            recent.end(seq(0, n), EndReason::End);
        }
        assert_eq!((steps_of(&recent, 1), steps_of(&recent, 2)), (vec![1], vec![]));
        assert_eq!((recent.orderly.len(), recent.others.len()), (ORDERLY, 1));
        for n in 3000..5000 {
            recent.add((seq(0, n), true), &Id::Int(u64::from(n)), step(1, n));
            recent.end(seq(0, n), EndReason::Evicted);
        }
        assert_eq!((steps_of(&recent, 1), recent.others.len()), (vec![], OTHERS));
    }

    #[test]
    fn the_sequences_of_a_batch_are_found_also_once_they_have_ended() {
        let mut recent = RecentSteps::default();
        for id in 1..=3 {
            recent.add((seq(id, 1), true), &Id::Int(u64::from(id)), step(1, 5));
        }
        recent.add((seq(4, 1), true), &Id::Int(4), step(1, 6));
        recent.end(seq(2, 1), EndReason::Idle);
        let found = |from: usize, most: usize| {
            let (found, next) = recent.in_batches(&[batch(5), batch(7)], from, most);
            assert!(found.iter().all(|(of, _)| *of == batch(5)));
            (found.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), next)
        };
        assert_eq!(found(0, 100), (vec![Id::Int(1), Id::Int(3), Id::Int(2)], None));
        assert_eq!(found(0, 2), (vec![Id::Int(1)], Some(2)), "in portions");
        assert_eq!(found(2, 4), (vec![Id::Int(3), Id::Int(2)], None));
        recent.add((seq(5, 1), true), &Id::Int(5), step(1, 5));
        recent.end(seq(1, 1), EndReason::End);
        let all = recent.in_batches(&[batch(5)], 0, usize::MAX).0;
        assert_eq!(all.len(), 4);
        for most in 1..10 {
            let (mut portions, mut from) = (Vec::new(), Some(0));
            while let Some(place) = from {
                let (found, next) = recent.in_batches(&[batch(5)], place, most);
                portions.extend(found);
                from = next;
            }
            assert_eq!(portions, all, "portions of {most}");
        }
        assert_eq!(recent.in_batches(&[batch(5)], 1000, 2), (vec![], None), "the table has shrunk meanwhile");
    }

    /// An outage of the store sends many sequences back at once.
    #[test]
    fn sequences_that_go_back_to_the_store_leave_the_steps_of_those_that_failed() {
        let mut recent = RecentSteps::default();
        let mut ended = |ix: u32, why| {
            recent.add((seq(ix, 1), true), &Id::Int(u64::from(ix)), step(1, 5));
            recent.end(seq(ix, 1), why);
        };
        ended(0, EndReason::Unsealed);
        for ix in 1..=u32::try_from(OTHERS).unwrap() {
            ended(ix, EndReason::RolledBack);
        }
        assert_eq!(steps_of(&recent, 0).len(), 1);
    }
}
