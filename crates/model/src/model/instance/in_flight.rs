//! The batches that an instance has submitted to its accelerator, in order, and the thread that waits for their results.

use std::collections::VecDeque;
use std::time::Instant;

use crate::batch::Staging;
use crate::executor::ModelStep;
use crate::model::execute::{RunTimes, Submitted};
use crate::model::runtime::RunPermit;
use crate::model::sequences::FinishedBatch;
use crate::sync::{self, Mutex};

use super::batch_run::BatchRun;
use super::identity::Identity;

/// A submitted batch.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(in crate::model) run: BatchRun,
    pub(in crate::model) submitted: Submitted,
    pub(in crate::model) times: RunTimes,
    /// Its inputs, which must not change until it is done.
    pub(in crate::model) staging: Staging,
    /// The resources that it holds while it runs.
    pub(in crate::model) permit: Option<RunPermit>,
}

/// The submitted batches of one instance.
#[derive(Debug)]
pub(super) struct InFlightQueue(Mutex<InFlightBatches>);

#[derive(Debug, Default)]
struct InFlightBatches {
    under_way: VecDeque<InFlight>,
    /// Number of batches that were begun and are not yet given back.
    open: usize,
    /// Memory for inputs that no submitted batch reads.
    idle: Vec<Staging>,
    /// Whether the instance's thread waits until `open` is 0.
    awaited: bool,
    /// Whether there will be no more batches.
    closed: bool,
}

/// The next action of the waiting thread.
enum NextCompletion {
    Complete(Box<InFlight>),
    Sleep,
    End,
}

impl InFlightQueue {
    pub(in crate::model) fn new(idle: Vec<Staging>) -> InFlightQueue {
        InFlightQueue(Mutex::new(InFlightBatches { idle, ..InFlightBatches::default() }))
    }

    /// Takes memory for the inputs of a batch.
    pub(in crate::model) fn staging(&self) -> Option<Staging> {
        self.0.lock().idle.pop()
    }

    /// Gives back memory that no submitted batch reads.
    pub(in crate::model) fn give_back(&self, staging: Staging) {
        self.0.lock().idle.push(staging);
    }

    pub(in crate::model) fn begin(&self, batch: InFlight) {
        let mut queue = self.0.lock();
        queue.open += 1;
        queue.under_way.push_back(batch);
    }

    /// Waits until every batch that was begun is given back. Only the instance's own thread may call this.
    pub(in crate::model) fn drain(&self) {
        loop {
            let mut queue = self.0.lock();
            if queue.open == 0 {
                return;
            }
            queue.awaited = true;
            drop(queue);
            sync::park(None);
        }
    }

    pub(in crate::model) fn close(&self) {
        self.0.lock().closed = true;
    }

    fn next(&self) -> NextCompletion {
        let mut queue = self.0.lock();
        match queue.under_way.pop_front() {
            Some(batch) => NextCompletion::Complete(Box::new(batch)),
            None if queue.closed => NextCompletion::End,
            None => NextCompletion::Sleep,
        }
    }

    /// Records that a batch was given back. Returns whether the instance's thread waits for that.
    fn completed(&self) -> bool {
        let mut queue = self.0.lock();
        queue.open = queue.open.saturating_sub(1);
        queue.open == 0 && std::mem::take(&mut queue.awaited)
    }
}

/// Waits for one batch after the other and gives it back, until the queue is closed.
pub(super) fn complete_all(identity: &Identity, in_flight: &InFlightQueue) {
    let Identity { model, load, instance } = identity;
    loop {
        match in_flight.next() {
            NextCompletion::Complete(batch) => {
                if let Some((finished, staging)) = identity.guard(batch.run.id(), || batch.wait(identity)) {
                    // Before the core gets the result, because it may hand out the next batch at once.
                    in_flight.give_back(staging);
                    model.give_back(finished);
                }
                if in_flight.completed() {
                    load.wake(instance.n);
                }
            }
            NextCompletion::Sleep => sync::park(None),
            NextCompletion::End => break,
        }
    }
}

impl InFlight {
    /// Waits for the batch. Returns the outcomes of its rows and the memory of its inputs.
    fn wait(self, identity: &Identity) -> (FinishedBatch, Staging) {
        let load = &identity.load;
        let InFlight { run, submitted, mut times, staging, permit } = self;
        let (size, requests, device) = (submitted.size, submitted.requests(), submitted.lost_device());
        let ran = match submitted.wait(Instant::now(), &mut times) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            // The device is lost, and all its states with it. So no row can continue, not even alone.
            Err(error) => (0..requests).map(|_| Err(error.clone())).collect(),
        };
        identity.check_device(device.error());
        drop(permit);
        load.ran(&size.times(&times));
        (run.end(load, ran), staging)
    }
}
