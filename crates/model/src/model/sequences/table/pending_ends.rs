//! Ended sequences whose states the store must still remove. Until then, a crash would restore the ended sequence, so no request of its id
//! is answered.

use std::collections::HashMap;
use std::sync::mpsc::SyncSender;

use sequor_core::{Core, Id, Refusal};

use crate::model::sequences::ensembles::ReplyTo;
use crate::model::sequences::jobs::Job;

use super::deferred_actions::DeferredActions;

/// The outcome of removing a state: the reason of the failure, if it failed.
pub(in crate::model::sequences) type Removed = Option<String>;

/// The ends that the store has not recorded yet, by id, and the answers that wait for them.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct PendingEnds {
    /// Number of removals, by id, that the store must still confirm.
    removals: HashMap<Id, u32>,
    /// In the order in which they would have been sent.
    held: Vec<HeldAnswer>,
    /// Operators who have ended a sequence.
    droppers: Vec<Dropper>,
}

/// An answer or a refusal that waits for the store.
#[derive(Debug)]
enum HeldAnswer {
    Released(Box<Job>),
    Refused(Box<Job>, Refusal, bool),
}

#[derive(Debug)]
struct Dropper {
    id: Id,
    removed: Removed,
    /// Gets the report.
    done: SyncSender<Removed>,
}

impl HeldAnswer {
    fn job(&self) -> &Job {
        match self {
            HeldAnswer::Released(job) | HeldAnswer::Refused(job, ..) => job,
        }
    }

    fn send(self, actions: &mut DeferredActions) {
        match self {
            HeldAnswer::Released(job) => actions.released.push(job),
            HeldAnswer::Refused(job, refusal, ended) => actions.refused.push((job, refusal, ended)),
        }
    }
}

impl PendingEnds {
    /// Records that the store was asked to remove a state of this id.
    pub(super) fn begin(&mut self, id: &Id) {
        *self.removals.entry(id.clone()).or_default() += 1;
    }

    /// Whether the store must still remove a state of this id.
    pub(super) fn has(&self, id: &Id) -> bool {
        self.removals.contains_key(id)
    }

    /// Records that the store has removed a state, or could not because of this error.
    pub(in crate::model::sequences) fn finish(&mut self, id: &Id, error: Option<&str>) {
        if let Some(left) = self.removals.get_mut(id) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.removals.remove(id);
            }
        }
        for dropper in self.droppers.iter_mut().filter(|dropper| dropper.id == *id) {
            dropper.removed = dropper.removed.take().or_else(|| error.map(str::to_owned));
        }
    }

    /// Reports to `done` once the ended sequence of this id cannot be restored any more, not even by a crash.
    pub(in crate::model::sequences) fn report(&mut self, id: Id, done: SyncSender<Removed>) {
        self.droppers.push(Dropper { id, removed: None, done });
    }

    /// Takes the answers that must wait from these actions, and adds those that no longer wait.
    pub(super) fn sort(&mut self, core: &Core, actions: &mut DeferredActions) {
        if self.removals.is_empty() && self.held.is_empty() && self.droppers.is_empty() && !core.has_leaving() {
            return;
        }
        let mut released_now = actions.released.iter().map(|job| (&**job, has_outputs(job)));
        let mut refused_now = actions.refused.iter().map(|(job, ..)| (&**job, false));
        let waits = |(job, is_answer): (&Job, bool)| self.has_to_wait(core, job, is_answer);
        if self.held.is_empty() && self.droppers.is_empty() && !released_now.any(waits) && !refused_now.any(waits) {
            return;
        }
        let held = std::mem::take(&mut self.held).into_iter();
        let released = std::mem::take(&mut actions.released).into_iter().map(HeldAnswer::Released);
        let refused = std::mem::take(&mut actions.refused).into_iter();
        let refused = refused.map(|(job, refusal, ended)| HeldAnswer::Refused(job, refusal, ended));
        for answer in held.chain(released).chain(refused) {
            let is_answer = matches!(&answer, HeldAnswer::Released(job) if has_outputs(job));
            match self.has_to_wait(core, answer.job(), is_answer) {
                true => self.held.push(answer),
                false => answer.send(actions),
            }
        }
        let removals = &self.removals;
        let done = self.droppers.extract_if(.., |of| !removals.contains_key(&of.id) && !core.is_leaving(&of.id));
        // An operator who no longer waits has gone, which is not an error.
        done.for_each(|Dropper { removed, done, .. }| _ = done.try_send(removed));
    }

    /// Whether an answer with outputs (`is_answer`), or a refusal, must wait for the store.
    fn has_to_wait(&self, core: &Core, job: &Job, is_answer: bool) -> bool {
        // A sequence of an ensemble is not stored.
        let Some(durable) = job.load.durable.as_ref().filter(|_| matches!(job.reply, ReplyTo::Surface(_))) else {
            return false;
        };
        let is_behind = durable.interval().is_some();
        if self.removals.contains_key(&job.id) {
            // Such answers do not wait for the disk, and no step follows this one.
            return !(is_behind && is_answer && job.facts.end);
        }
        // A run that is still in progress when its sequence ends is stored afterwards. A later sequence of the id replaces that with its
        // own first state.
        let is_replaced = is_answer && !is_behind;
        durable.is_continual() && !is_replaced && core.is_leaving(&job.id)
    }
}

/// Whether a request is answered with outputs.
fn has_outputs(job: &Job) -> bool {
    matches!(job.answer, Some(Ok(_)))
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn an_operator_reads_why_a_state_is_not_removed() {
        let (mut ends, core, mut actions) = (PendingEnds::default(), Core::new(), DeferredActions::default());
        let (report, removed) = sync_channel(1);
        let id = Id::from(7);
        (0..2).for_each(|_| ends.begin(&id));
        ends.report(id.clone(), report);
        for outcome in [Some("the disk is full"), None] {
            ends.sort(&core, &mut actions);
            assert!(removed.try_recv().is_err(), "there is one more to come");
            ends.finish(&id, outcome);
        }
        ends.sort(&core, &mut actions);
        assert_eq!(removed.try_recv(), Ok(Some("the disk is full".to_owned())));
    }
}
