//! The thread of an instance on an accelerator that submits the next batch while one runs. Another thread waits for the results
//! ([`in_flight`]).
//!
//! The device does submitted work in order, so a batch finds the states that earlier batches leave.
//!
//! [`in_flight`]: super::in_flight

use std::sync::Arc;

use super::batch_run::{BatchRun, one_by_one};
use super::identity::Identity;
use super::in_flight::{InFlight, InFlightQueue};
use crate::model::execute::{Executor, RunError, RunSize, RunTimes};
use crate::model::sequences::{FinishedBatch, Step, TakenBatch};
use crate::sync::Thread;
use crate::telemetry::StepPath;

/// The resources of a pipelined instance.
#[derive(Debug)]
pub(super) struct Pipeline {
    executor: Executor,
    pub(super) in_flight: Arc<InFlightQueue>,
}

impl Pipeline {
    /// Creates a pipeline with at most this many submitted batches.
    pub(in crate::model) fn new(executor: Executor, depth: u8) -> Result<Pipeline, RunError> {
        let idle = (0..depth).map(|_| executor.staging()).collect::<Result<_, _>>()?;
        Ok(Pipeline { executor, in_flight: Arc::new(InFlightQueue::new(idle)) })
    }

    /// Takes steps until the load is gone. `completion` is the thread that waits for results.
    pub(in crate::model) fn run(mut self, identity: &Identity, completion: &Thread) {
        let mailbox = identity.mailbox();
        let mut step = identity.next();
        loop {
            if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.is_full()) {
                // A state may leave only as of a step that was answered.
                self.in_flight.drain();
                identity.serve(mailbox, &mut self.executor.slots);
                // A wake-up that arrived meanwhile was missed.
                if matches!(step, Step::Sleep(_)) {
                    step = identity.next();
                }
            }
            step = match step {
                Step::Run(taken) => {
                    let id = taken.batch.id;
                    match identity.guard(id, || self.begin(identity, completion, taken)).flatten() {
                        Some(finished) => identity.complete(finished),
                        None => identity.next(),
                    }
                }
                Step::Tidy(ops) => identity.tidy(&mut self.executor.slots, &ops),
                Step::Ask(round, decider) => identity.ask(round, decider.as_ref()),
                Step::Sleep(until) => {
                    identity.sleep(until);
                    identity.next()
                }
                Step::Gone => break,
            }
        }
        self.in_flight.close();
        completion.unpark();
        identity.end();
    }

    /// Submits a batch and leaves it to the thread that waits. A batch that fails at once is run again row by row, and returned.
    fn begin(&mut self, identity: &Identity, completion: &Thread, mut taken: TakenBatch) -> Option<FinishedBatch> {
        let load = &identity.load;
        let permit = identity.admit(&mut taken, None);
        let (run, work) = BatchRun::begin(load, &mut self.executor.slots, taken);
        self.executor.check_slots();
        identity.check_device(self.executor.lost());
        if work.iter().flatten().next().is_none() {
            return Some(run.end(load, Vec::new()));
        }
        let mut staging = match self.in_flight.staging().map_or_else(|| self.executor.staging(), Ok) {
            Ok(staging) => staging,
            Err(error) => {
                let ran = work.iter().flatten().map(|_| Err(error.clone())).collect();
                return Some(run.end(load, ran));
            }
        };
        load.metrics.stepped(StepPath::HandedOver);
        let mut times = RunTimes::default();
        match self.executor.submit(&mut staging, &work, &mut times) {
            Ok(submitted) => {
                self.in_flight.begin(InFlight { run, submitted, times, staging, permit });
                completion.unpark();
                None
            }
            Err(error) => {
                load.ran(&RunSize::measure(&work).times(&times));
                let ran = one_by_one(load, &mut self.executor, &mut staging, work, &error);
                identity.check_device(self.executor.lost());
                self.in_flight.give_back(staging);
                Some(run.end(load, ran))
            }
        }
    }
}
