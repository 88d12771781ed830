//! An instance that finishes each batch before it takes the next: slot operations in the given order, the run, its commit, the report.

use std::sync::Arc;

use super::batch_run::{BatchRun, one_by_one};
use super::identity::Identity;

use sequor_core::Time;

use crate::batch::Staging;
use crate::executor::ExecutorHandle;
use crate::model::execute::{Executor, RowOutcome, RowWork, RunError, RunSize, RunTimes};
use crate::model::load::InlineStep;
use crate::model::runtime::RunPermit;
use crate::model::sequences::{FinishedBatch, Step, TakenBatch};
use crate::scheduling::Decider;
use crate::sync::Mutex;
use crate::telemetry::StepPath;

/// Maximum number of plug-in questions in one inline step: one for admission, one for the batch.
const QUESTIONS: u32 = 2;

/// The thread that holds the lock acts as the instance: its own thread, or a connection's thread for one step.
#[derive(Debug)]
pub(super) struct SerialInstance {
    identity: Identity,
    running: Mutex<RunningInstance>,
}

/// The resources of a running instance.
#[derive(Debug)]
pub(in crate::model) struct RunningInstance {
    executor: Executor,
    staging: Staging,
    /// A step that another thread took and left to the instance's own thread.
    step: Option<Step>,
    /// Whether it has run a batch. The first run allocates memory, so its duration does not predict the next.
    is_warm: bool,
}

impl RunningInstance {
    pub(in crate::model) fn new(executor: Executor) -> Result<RunningInstance, RunError> {
        let staging = executor.staging()?;
        Ok(RunningInstance { executor, staging, step: None, is_warm: false })
    }
}

impl SerialInstance {
    pub(in crate::model) fn new(identity: Identity, running: RunningInstance) -> Arc<SerialInstance> {
        Arc::new(SerialInstance { identity, running: Mutex::new(running) })
    }

    pub(in crate::model) fn name(&self) -> String {
        self.identity.name()
    }

    /// Takes steps until the load is gone.
    pub(in crate::model) fn run(&self) {
        let identity = &self.identity;
        let mailbox = identity.mailbox();
        loop {
            let mut running = self.running.lock();
            let mut permit = None;
            let mut step = running.step.take().unwrap_or_else(|| identity.next_permitted(&mut permit));
            let rest = loop {
                if let Some(mailbox) = mailbox {
                    identity.serve(mailbox, &mut running.executor.slots);
                }
                // A step that leads to no run releases the resources.
                permit = permit.filter(|_| matches!(step, Step::Run(_) | Step::Ask(..)));
                step = match step {
                    Step::Run(mut taken) => {
                        permit = identity.admit(&mut taken, permit.take());
                        self.run_batch(&mut running, taken, None, &mut permit)
                    }
                    Step::Tidy(ops) => {
                        running.executor.slots.apply(&ops, |_| None, |_| None);
                        identity.next_permitted(&mut permit)
                    }
                    Step::Ask(round, decider) => identity.ask(round, decider.as_ref()),
                    Step::Sleep(until) => break Some(until),
                    Step::Gone => break None,
                }
            };
            running.staging.release_large();
            running.executor.slots.store.release_idle();
            drop(running);
            let Some(until) = rest else { break };
            identity.sleep(until);
        }
        identity.end();
    }

    /// Runs both halves of a run, one after the other. `thread` is the calling thread, if it is not the instance's own. `permit` is as for
    /// [`Identity::next_permitted`].
    fn run_batch(
        &self,
        running: &mut RunningInstance,
        taken: TakenBatch,
        thread: Option<&ExecutorHandle>,
        permit: &mut Option<RunPermit>,
    ) -> Step {
        let id = taken.batch.id;
        match self.identity.guard(id, || self.finish(running, taken, thread.is_some())) {
            Some((finished, now)) => self.identity.complete_at(finished, now, thread, permit),
            None => self.identity.next_permitted(permit),
        }
    }

    /// Runs a batch. Returns it with the time of its end.
    fn finish(&self, running: &mut RunningInstance, taken: TakenBatch, is_inline: bool) -> (FinishedBatch, Time) {
        let stopwatch = self.identity.model.stopwatch();
        let RunningInstance { executor, staging, is_warm, .. } = running;
        let load = &self.identity.load;
        let (run, work) = BatchRun::begin(load, &mut executor.slots, taken);
        executor.check_slots();
        let runs_a_graph = work.iter().any(Option::is_some);
        let ran = self.attempt(executor, staging, work);
        self.identity.check_device(executor.lost());
        let now = self.identity.model.now();
        if runs_a_graph {
            load.metrics.stepped(if is_inline { StepPath::Inline } else { StepPath::HandedOver });
            if std::mem::replace(is_warm, true) {
                load.inline_gate.note(stopwatch.elapsed(), now);
            }
        }
        (run.end(load, ran), now)
    }

    /// Runs a batch. If that fails, runs its rows one by one. Returns one result for each real row.
    fn attempt(
        &self,
        executor: &mut Executor,
        staging: &mut Staging,
        work: Vec<Option<RowWork>>,
    ) -> Vec<Result<RowOutcome, RunError>> {
        if work.iter().flatten().next().is_none() {
            return Vec::new();
        }
        let load = &self.identity.load;
        let mut times = RunTimes::default();
        let whole = executor.run(staging, &work, &mut times);
        load.ran(&RunSize::measure(&work).times(&times));
        match whole {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) => one_by_one(load, executor, staging, work, &error),
        }
    }
}

impl InlineStep for SerialInstance {
    fn try_step(&self, thread: &ExecutorHandle) -> bool {
        // A connection's thread does not wait for resources.
        if self.identity.load.rates.is_some() {
            return false;
        }
        let Some(mut running) = self.running.try_lock() else { return false };
        let now = self.identity.model.now();
        // A run may have closed the gate since this thread decided to run the step.
        if running.step.is_some() || !self.identity.load.inline_gate.is_open(now) {
            return false;
        }
        let (mut step, mut questions) = (self.identity.next_at(now), QUESTIONS);
        let step = loop {
            step = match step {
                Step::Tidy(ops) => self.identity.tidy(&mut running.executor.slots, &ops),
                Step::Ask(round, decider) if questions > 0 && decider.as_ref().is_none_or(Decider::is_quick) => {
                    questions -= 1;
                    match self.identity.ask_in_passing(round, decider.as_ref()) {
                        Ok(step) => step,
                        Err(round) => break Step::Ask(round, decider),
                    }
                }
                Step::Run(taken) => break self.run_batch(&mut running, taken, Some(thread), &mut None),
                rest => break rest,
            };
        };
        let done = matches!(step, Step::Sleep(None));
        // The instance's thread determines its sleep again: a request that arrived meanwhile could not wake it, because it did not sleep
        // yet.
        if !matches!(step, Step::Sleep(_)) {
            running.step = Some(step);
        }
        done
    }
}
