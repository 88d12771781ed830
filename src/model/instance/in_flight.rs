//! The batches that an instance has submitted to its accelerator, in order, and the thread that waits for them and returns their results.

use std::collections::VecDeque;
use std::time::Instant;

use crate::batch::Staging;
use crate::executor::ModelStep;
use crate::model::execute::{RunTimes, Submitted};
use crate::model::load::LoadedModel;
use crate::model::runtime::RunPermit;
use crate::model::sequences::FinishedBatch;
use crate::sync::{self, Mutex};

use super::batch_run::BatchRun;
use super::identity::Identity;

/// A batch that is under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(in crate::model) run: BatchRun,
    pub(in crate::model) submitted: Submitted,
    pub(in crate::model) times: RunTimes,
    /// Its inputs, which stay untouched until it is done.
    pub(in crate::model) staging: Staging,
    /// The resources that it holds while it runs.
    pub(in crate::model) permit: Option<RunPermit>,
}

/// Those of one instance.
#[derive(Debug)]
pub(super) struct InFlightQueue(Mutex<InFlightBatches>);

#[derive(Debug, Default)]
struct InFlightBatches {
    under_way: VecDeque<InFlight>,
    /// How many were begun and are not given back yet.
    open: usize,
    /// Memory for inputs that no batch under way reads.
    idle: Vec<Staging>,
    /// The instance's thread waits until none is open.
    awaited: bool,
    /// There will be no more.
    closed: bool,
}

/// What the waiting thread does next.
enum NextCompletion {
    Complete(Box<InFlight>),
    Sleep,
    End,
}

impl InFlightQueue {
    pub(in crate::model) fn new(idle: Vec<Staging>) -> InFlightQueue {
        InFlightQueue(Mutex::new(InFlightBatches { idle, ..InFlightBatches::default() }))
    }

    /// Memory to lay out the inputs of a batch in.
    pub(in crate::model) fn staging(&self) -> Option<Staging> {
        self.0.lock().idle.pop()
    }

    /// Gives back memory that nothing under way reads.
    pub(in crate::model) fn give_back(&self, staging: Staging) {
        self.0.lock().idle.push(staging);
    }

    pub(in crate::model) fn begin(&self, batch: InFlight) {
        let mut queue = self.0.lock();
        queue.open += 1;
        queue.under_way.push_back(batch);
    }

    /// Waits until every batch that was begun is given back. For the instance's own thread alone.
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

    /// Notes that one was given back. Returns whether the instance's thread waits for that.
    fn completed(&self) -> bool {
        let mut queue = self.0.lock();
        queue.open = queue.open.saturating_sub(1);
        queue.open == 0 && std::mem::take(&mut queue.awaited)
    }
}

/// Waits for one batch after the other and gives it back, until there will be no more.
pub(super) fn complete_all(identity: &Identity, in_flight: &InFlightQueue) {
    let Identity { model, load, instance } = identity;
    loop {
        match in_flight.next() {
            NextCompletion::Complete(batch) => {
                let (finished, staging) = batch.wait(load);
                // Before the core hears of it: it may hand out the next batch at once.
                in_flight.give_back(staging);
                model.give_back(finished);
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
    /// Waits for it. What became of its rows, and the memory that it does not need any more.
    fn wait(self, load: &LoadedModel) -> (FinishedBatch, Staging) {
        let InFlight { run, submitted, mut times, staging, permit } = self;
        let (size, requests) = (submitted.size, submitted.requests());
        let ran = match submitted.wait(Instant::now(), &mut times) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            // The device is lost, and with it every state there: none of its rows could go on, alone or not.
            Err(error) => (0..requests).map(|_| Err(error.clone())).collect(),
        };
        drop(permit);
        load.ran(&size.times(&times));
        (run.end(load, ran), staging)
    }
}
