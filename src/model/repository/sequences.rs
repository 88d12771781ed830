//! The sequences of a model as operators see them, and how one is ended from outside.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{Event, Id, Seen, Stage, Time, Tombstone, Why};

use crate::error::{Failure, NotServed};
use crate::model::sequences::Model;
use crate::telemetry::ended_reason;

use super::facade::Repository;

/// Places of the table that are looked at under one lock.
const PORTION: u32 = 256;
/// Ends that are told of at most.
const ENDS: usize = 10_000;

/// A live sequence.
#[derive(Debug, Clone)]
pub struct LiveSequence {
    pub id: Id,
    pub version: u64,
    pub stage: Stage,
    /// Instance, and slot within it.
    pub seat: Option<(u16, u32)>,
    /// The last committed step.
    pub step: u64,
    pub queued: u32,
    pub queued_bytes: u64,
    pub state_bytes: u64,
    /// It ends with what is queued.
    pub ending: bool,
    pub age: Duration,
    /// Since its last request arrived or was answered.
    pub quiet: Duration,
    /// Until it expires or leaves the backlog; `None` if nothing is due.
    pub left: Option<Duration>,
}

/// A sequence that is no more, and is remembered.
#[derive(Debug, Clone)]
pub struct EndedSequence {
    pub id: Id,
    pub reason: &'static str,
    /// The last committed step.
    pub step: u64,
    pub ago: Duration,
}

impl Repository {
    /// The model, whether or not requests are taken.
    fn model(&self, name: &str) -> Result<Arc<Model>, Failure> {
        let unknown = || Failure::NotServed(NotServed::UnknownModel { model: name.to_owned() });
        self.0.models.read().get(name).and_then(|entry| entry.model.clone()).ok_or_else(unknown)
    }

    /// Every live sequence of a model, in no order.
    pub fn live_sequences(&self, model: &str) -> Result<Vec<LiveSequence>, Failure> {
        Ok(self.model(model)?.live_sequences())
    }

    /// The last sequences of a model that ended, the latest first.
    pub fn ended_sequences(&self, model: &str) -> Result<Vec<EndedSequence>, Failure> {
        let model = self.model(model)?;
        let (now, ended) = (model.now(), model.ended(ENDS));
        let one = |(id, Tombstone { why, at, step, .. }): (Id, Tombstone)| EndedSequence {
            id,
            reason: ended_reason(why),
            step,
            ago: now.since(at),
        };
        Ok(ended.into_iter().map(one).collect())
    }

    /// Ends a live sequence; what it has queued is refused. False if there is none of this id.
    pub fn drop_sequence(&self, model: &str, id: &Id) -> Result<bool, Failure> {
        Ok(self.model(model)?.end(id, Why::Admin))
    }
}

impl Model {
    fn live_sequences(&self) -> Vec<LiveSequence> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let (seen, rest) = self.seen(place, PORTION);
            let now = self.now();
            all.extend(seen.into_iter().map(|seen| self.shown(seen, now)));
            from = rest;
        }
        all
    }

    fn shown(&self, seen: Seen, now: Time) -> LiveSequence {
        let loads = self.loads();
        let load = loads.iter().find(|load| load.key == seen.load);
        // What a run has told, else what every sequence has once it sits.
        let fixed = load.filter(|_| seen.seat.is_some()).map_or(0, |load| load.state_bytes());
        LiveSequence {
            id: seen.id,
            version: load.map_or(0, |load| load.version),
            stage: seen.stage,
            seat: seen.seat,
            step: seen.step,
            queued: seen.queued,
            queued_bytes: seen.queued_bytes,
            state_bytes: seen.state_bytes.max(fixed),
            ending: seen.ending,
            age: now.since(seen.began),
            quiet: now.since(seen.touched),
            left: (seen.due != Time::NEVER).then(|| seen.due.since(now)),
        }
    }

    fn end(self: &Arc<Self>, id: &Id, why: Why) -> bool {
        let Some((seq, _)) = self.state_of(id, None) else { return false };
        self.apply(Event::End(seq, why));
        true
    }
}
