//! An instance's own thread: it pulls what to do next, does slot operations in the order given, runs, commits, and reports.

use std::sync::{Arc, Weak};

use sequor_core::{Asked, Decision, Fault, Instance, Req, Round, Said, SlotOp};

use crate::batch::Staging;
use crate::plugin::Answer;

use super::driver::Model;
use super::execute::Executor;
use super::keep::Mailbox;
use super::loaded::Loaded;
use super::run_error::RunError;
use super::slots::Slots;
use super::sync::{self, Mutex, Thread};
use super::table::{Step, Task};
use super::taken::{Taken, one_by_one};
use super::work::{Extent, Outcome, Spent, Work};

/// An instance's means of running. Who holds it is the instance: its own thread, or for one step a socket's.
#[derive(Debug)]
pub(super) struct Baton(Mutex<Held>);

#[derive(Debug)]
struct Held {
    executor: Executor,
    staging: Staging,
    /// What was taken and left to its own thread.
    step: Option<Step>,
}

/// How others reach an instance.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) thread: Thread,
    pub(super) baton: Weak<Baton>,
}

impl Baton {
    pub(super) fn new(executor: Executor) -> Result<Baton, RunError> {
        let staging = executor.staging()?;
        Ok(Baton(Mutex::new(Held { executor, staging, step: None })))
    }
}

/// Pulls until the load is gone.
pub(super) fn run(model: &Arc<Model>, load: &Arc<Loaded>, who: Instance, baton: &Baton) {
    let mail = load.mail.get(usize::from(who.n));
    loop {
        let mut held = baton.0.lock();
        let mut step = held.step.take().unwrap_or_else(|| model.next(who));
        let rest = loop {
            if let Some(mail) = mail {
                mail.serve(model, &mut held.executor.slots);
            }
            step = match step {
                Step::Run(task) => run_batch(model, load, who, &mut held, task),
                Step::Tidy(ops) => tidy(model, who, &mut held.executor.slots, &ops),
                Step::Ask(round) => ask(model, load, who, round),
                Step::Sleep(until) => break Some(until),
                Step::Gone => break None,
            }
        };
        drop(held);
        let Some(until) = rest else { break };
        sync::park(until.map(|until| until - model.now()));
    }
    end(model, load, mail);
}

/// What an instance's thread does last.
pub(super) fn end(model: &Model, load: &Loaded, mail: Option<&Mailbox>) {
    if let Some(mail) = mail {
        mail.close();
    }
    // Once it is forgotten nobody finds its other threads to wake them, and each must see for itself that it is over.
    model.forget(load.key);
    load.wake_all();
}

/// Does a step in place of the instance's own thread, if that is at rest. What comes after it is left to that thread.
pub(super) fn visit(model: &Arc<Model>, load: &Loaded, who: Instance) {
    let baton = load.handle(who.n).and_then(|handle| handle.baton.upgrade());
    let Some(mut held) = baton.as_ref().and_then(|baton| baton.0.try_lock()) else { return load.wake(who.n) };
    if !matches!(held.step, None | Some(Step::Sleep(_))) {
        return load.wake(who.n);
    }
    held.step = None;
    let mut step = model.next(who);
    if let Step::Tidy(ops) = &step {
        step = tidy(model, who, &mut held.executor.slots, ops);
    }
    if let Step::Run(task) = step {
        step = run_batch(model, load, who, &mut held, task);
    }
    if !matches!(step, Step::Sleep(None)) {
        held.step = Some(step);
        drop(held);
        load.wake(who.n);
    }
}

/// Both halves of a run, one after the other.
fn run_batch(model: &Arc<Model>, load: &Loaded, who: Instance, held: &mut Held, task: Task) -> Step {
    let Held { executor, staging, .. } = held;
    let (taken, work) = Taken::begin(load, &mut executor.slots, task);
    let ran = attempt(load, executor, staging, work);
    model.complete(who, taken.end(load, ran))
}

/// Runs a batch; if that fails, its rows one by one. One result for each real row.
fn attempt(
    load: &Loaded,
    executor: &mut Executor,
    staging: &mut Staging,
    work: Vec<Option<Work>>,
) -> Vec<Result<Outcome, RunError>> {
    if work.iter().flatten().next().is_none() {
        return Vec::new();
    }
    let mut spent = Spent::default();
    let whole = executor.run(staging, &work, &mut spent);
    load.ran(Extent::of(&work), &spent);
    load.pace.note(spent.total());
    match whole {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) => one_by_one(load, executor, staging, work, &error),
    }
}

pub(super) fn tidy(model: &Arc<Model>, who: Instance, slots: &mut Slots, ops: &[SlotOp]) -> Step {
    if let Err(error) = slots.apply(ops, |_| None) {
        tracing::error!(model = model.name, %error, "a slot was not tidied");
    }
    model.next(who)
}

/// Puts a question to the load's external policy, without any lock of the core.
pub(super) fn ask(model: &Arc<Model>, load: &Loaded, who: Instance, mut round: Box<Round>) -> Step {
    let attachment = load.attachment.load_full();
    let answer = match &attachment {
        Some(attachment) => attachment.ask(&mut round),
        // It was taken off just now.
        None => Answer { said: nothing(&round), shadow: None },
    };
    let step = model.answer(who, round, answer.said);
    if let (Some(attachment), Some(shadow)) = (attachment, answer.shadow) {
        let ran: Option<Vec<Req>> = match &step {
            Step::Run(task) => Some(task.batch.real().map(|row| row.req).collect()),
            _ => None,
        };
        attachment.compare(&shadow, ran.as_deref());
    }
    step
}

/// What whoever is not there says: the built-in policy decides.
fn nothing(round: &Round) -> Said {
    match round.asked {
        Asked::Plan(_) => Said::Plan(Ok(Decision::Default)),
        Asked::Admit { .. } => Said::Admit(Err(Fault::Busy)),
    }
}
