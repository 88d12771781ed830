//! The part that all threads of an instance share: which instance it is, and the steps that run no batch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sequor_core::{
    BatchId, Decision, Instance, PolicyAnswer, PolicyFault, PolicyQuestion, Req, Round, Seq, SlotOp, StateAt, Time,
};
use sequor_wasm::urgency;

use crate::device::DeviceError;
use crate::executor::ExecutorHandle;
use crate::model::execute::InstanceSlots;
use crate::model::load::{Leaving, LeftState, LoadedModel, Mailbox, Postman};
use crate::model::runtime::RunPermit;
use crate::model::sequences::{FinishedBatch, ModelScheduler, Step, TakenBatch, restart, state_transfer};
use crate::scheduling::{Decider, RoundAnswer};
use crate::state::{SnapshotError, StateValues};
use crate::sync;

/// Which instance a thread runs.
#[derive(Debug, Clone)]
pub(in crate::model) struct Identity {
    pub(in crate::model) model: Arc<ModelScheduler>,
    pub(in crate::model) load: Arc<LoadedModel>,
    pub(in crate::model) instance: Instance,
}

impl Identity {
    /// The thread's name in the operating system.
    pub(in crate::model) fn name(&self) -> String {
        format!("{}.{}", self.load.settings.name, self.instance.n)
    }

    pub(in crate::model) fn mailbox(&self) -> Option<&Mailbox> {
        self.load.mail.get(usize::from(self.instance.n))
    }

    /// Answers the requests of the mailbox, between two batches.
    pub(in crate::model) fn serve(&self, mailbox: &Mailbox, slots: &mut InstanceSlots) {
        mailbox.serve(&mut InstancePostman { identity: self, slots });
    }

    pub(super) fn next(&self) -> Step {
        self.next_at(self.model.now())
    }

    /// The next step, for a thread that has just read the clock.
    pub(super) fn next_at(&self, now: Time) -> Step {
        self.model.next(self.instance, now)
    }

    /// The next step. If instances wait for resources, a batch is formed only once its instance has them, so that its requests wait in the
    /// queue. `permit` holds the last run's permit before, and the next run's after.
    pub(super) fn next_permitted(&self, permit: &mut Option<RunPermit>) -> Step {
        let Some(rates) = &self.load.rates else { return self.next() };
        let last = permit.take();
        if let Some(step) = self.model.next_unless_ready(self.instance) {
            return step;
        }
        *permit = rates.acquire(self.instance.n, last);
        self.next()
    }

    /// Completes a batch and takes the next step.
    pub(super) fn complete(&self, batch: FinishedBatch) -> Step {
        self.model.complete(self.instance, batch, self.model.now(), None)
    }

    /// Completes a batch on a thread that has just read the clock. Steps of other models that follow from the answers may be left to
    /// `thread`. `permit` is as for [`Identity::next_permitted`].
    pub(super) fn complete_at(
        &self,
        batch: FinishedBatch,
        now: Time,
        thread: Option<&ExecutorHandle>,
        permit: &mut Option<RunPermit>,
    ) -> Step {
        if self.load.rates.is_none() {
            return self.model.complete(self.instance, batch, now, thread);
        }
        self.model.give_back(batch);
        self.next_permitted(permit)
    }

    /// Carries out a part of a batch's way. If it panics, the batch is given back as lost, and the instance goes on. A panic here is a fault of
    /// the server's own code. One of a backend is a failed run already (`execute`).
    pub(super) fn guard<T>(&self, batch: BatchId, part: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(part));
        if done.is_err() {
            let model = &self.model.name;
            tracing::error!(model, "the thread of an instance has panicked: the sequences of its batch end; report it");
            self.model.lose(batch);
        }
        done.ok()
    }

    /// Sleeps until this time, or until the thread is woken.
    pub(in crate::model) fn sleep(&self, until: Option<Time>) {
        sync::park(until.map(|until| until - self.model.now()));
    }

    /// Applies slot operations that precede no run.
    pub(super) fn tidy(&self, slots: &mut InstanceSlots, ops: &[SlotOp]) -> Step {
        slots.apply(ops, |_| None, |_| None);
        self.next()
    }

    /// Asks the plug-in a question, without holding any lock of the core.
    pub(in crate::model) fn ask(&self, mut round: Box<Round>, decider: Option<&Decider>) -> Step {
        let answer = match decider {
            Some(decider) => decider.ask(&mut round),
            None => RoundAnswer { answer: nothing(&round), shadow: None },
        };
        self.answer(decider, round, answer)
    }

    /// Passes an answer to the core, and compares a shadow's answer with the batch that runs.
    fn answer(&self, decider: Option<&Decider>, round: Box<Round>, answer: RoundAnswer) -> Step {
        let step = self.model.answer(self.instance, round, answer.answer);
        if let (Some(decider), Some(shadow)) = (decider, answer.shadow) {
            let ran: Option<Vec<Req>> = match &step {
                Step::Run(taken) => Some(taken.batch.real().map(|row| row.req).collect()),
                _ => None,
            };
            decider.binding().compare(&shadow, ran.as_deref());
        }
        step
    }

    /// Asks on a connection's thread, which never waits for a guest. If another thread calls the guest now, the question is returned.
    pub(super) fn ask_in_passing(&self, mut round: Box<Round>, decider: Option<&Decider>) -> Result<Step, Box<Round>> {
        let answer = match decider {
            Some(decider) => decider.try_ask(&mut round),
            None => Some(RoundAnswer { answer: nothing(&round), shadow: None }),
        };
        urgency::as_any();
        let Some(answer) = answer else { return Err(round) };
        Ok(self.answer(decider, round, answer))
    }

    /// Sleeps until the load is gone. For a load that runs no batches.
    pub(super) fn idle(&self) {
        let mut step = self.next();
        loop {
            step = match step {
                Step::Gone => break,
                Step::Sleep(until) => {
                    self.sleep(until);
                    self.next()
                }
                Step::Tidy(_) => self.next(),
                Step::Ask(round, decider) => self.ask(round, decider.as_ref()),
                Step::Run(TakenBatch { batch, jobs, .. }) => {
                    tracing::error!(model = self.model.name, "a batch of an ensemble was to run");
                    let jobs = jobs.into_iter().flatten().collect();
                    self.complete(FinishedBatch {
                        batch,
                        jobs,
                        rows: Vec::new(),
                        sealing: Vec::new(),
                        refused_growth: None,
                    })
                }
            };
        }
        self.end();
    }

    /// Runs a batch with this permit. Without one, if instances wait for resources, the batch waits here, and its requests count as queued
    /// until then.
    pub(super) fn admit(&self, taken: &mut TakenBatch, permit: Option<RunPermit>) -> Option<RunPermit> {
        let rates = self.load.rates.as_ref()?;
        let mut permit = match permit {
            Some(permit) => permit,
            None => {
                let permit = rates.acquire(self.instance.n, None)?;
                let now = self.model.now();
                for (_, job) in taken.jobs.iter_mut().flatten() {
                    job.taken = now;
                }
                permit
            }
        };
        permit.run();
        Some(permit)
    }

    /// Takes the instance out of service if its device is lost. Before its batch is given back: it would fail, and so take the next one, sooner
    /// than any instance that works.
    pub(super) fn check_device(&self, lost: Option<&DeviceError>) {
        let Some(error) = lost else { return };
        let (model, version, instance) = (&self.model.name, self.load.version, self.instance.n);
        if let Some(left) = self.load.lose(instance, error.to_string()) {
            tracing::error!(model, version, instance, %error, left, "an accelerator has failed: its instance is out of service, and the sequences on it have ended; restart the server");
            self.load.metrics.instance_lost();
        }
        // The last instance still gets sequences. Each of them ends like those before it.
        self.model.instance_lost(self.instance);
    }

    /// The last action of an instance's thread.
    pub(in crate::model) fn end(&self) {
        if let Some(mailbox) = self.mailbox() {
            mailbox.close();
        }
        // The threads of a forgotten load can no longer be found and woken. So wake all of them now, to let them end.
        self.model.forget(self.load.key);
        self.load.wake_all();
    }
}

/// Reads states on behalf of other threads.
struct InstancePostman<'a> {
    identity: &'a Identity,
    slots: &'a mut InstanceSlots,
}

impl Postman for InstancePostman<'_> {
    fn state_now(&self, seq: Seq) -> Option<StateAt> {
        self.identity.model.state_now(seq)
    }

    fn copyable_now(&self, seq: Seq) -> Option<StateAt> {
        self.identity.model.copyable_now(seq)
    }

    fn snapshot(&mut self, slot: u32, header: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        self.slots.snapshot(slot, header)
    }

    fn with_scratch(&self, seq: Seq, step: u64, file: Vec<u8>) -> Result<Vec<u8>, SnapshotError> {
        state_transfer::with_scratch(&self.identity.model, seq, step, file)
    }

    fn values(&mut self, slot: u32) -> Option<StateValues> {
        match self.slots.store.read_values(slot) {
            Ok(values) => Some(values),
            Err(error) => {
                tracing::error!(model = self.identity.model.name, %error, "a state was not copied");
                None
            }
        }
    }

    fn leave(
        &mut self,
        seq: Seq,
        why: Leaving,
        at: StateAt,
        file: Vec<u8>,
    ) -> Option<Result<LeftState, SnapshotError>> {
        let left = restart::leave(&self.identity.model, seq, why, at.step, file)?;
        if left.is_ok() {
            self.slots.release_growth(at.slot.ix);
        }
        Some(left)
    }
}

/// The answer without a plug-in: the built-in policy decides.
fn nothing(round: &Round) -> PolicyAnswer {
    match round.asked {
        PolicyQuestion::Plan(_) => PolicyAnswer::Plan(Ok(Decision::Default)),
        PolicyQuestion::Admit { .. } => PolicyAnswer::Admit(Err(PolicyFault::Busy)),
    }
}
