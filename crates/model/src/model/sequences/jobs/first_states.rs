//! The first states of sequences: those that a START specifies, the answers of a load's state initializer, and the steps and copies that
//! these need.
//!
//! All of it runs on the threads of plug-ins, if the load has some. A START that waits for a copy, or for the steps of another START, holds
//! no thread.

use std::sync::{Arc, Weak};

use sequor_core::{Id, Req, RequestMeta, Seq, StateAt};

use crate::error::NotCopied;
use crate::executor::ModelStep;
use crate::initializing::{FirstAnswer, KeepPermit, KeptLookup, KeptName, Waiting};
use crate::model::load::{
    FirstValues, LoadInitializer, LoadedModel, MailReply, ValuesRequest, run_with_plugins, submit_to_plugins,
};
use crate::model::request::intake;
use crate::processing::KnownMemory;
use crate::processing::pool::{PREPARED, PreparedBytes};
use crate::processing::{PortTensors, ProcessorRefusal};
use crate::state::StateValues;

use super::processing::{ModelRun, PrepareTask, PreparedJob, not_taken};
use super::task_guard::TaskHost;

/// Refusal code of a START that may succeed later.
pub(in crate::model::sequences) const NOT_NOW: u32 = 2;
/// Refusal code of a START that names a sequence which does not exist.
pub(in crate::model::sequences) const NOT_FOUND: u32 = 4;

/// The first state of a START's sequence.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct Beginning {
    /// `None` stands for the states of config.pbtxt.
    pub(in crate::model::sequences) first: Option<FirstValues>,
    /// Steps of the model that run before the request.
    pub(in crate::model::sequences) steps: Vec<ModelRun>,
    /// Counts the inputs of the steps.
    pub(in crate::model::sequences) held: Option<PreparedBytes>,
    /// Keeps the states after the steps.
    pub(in crate::model::sequences) permit: Option<KeepPermit>,
}

/// A START that waits for the steps of another START.
struct WaitingStart {
    model: Weak<dyn PrepareHost>,
    task: PrepareTask,
    name: KeptName,
}

impl Beginning {
    fn new(values: StateValues, is_copy: bool) -> Beginning {
        Beginning { first: Some(FirstValues { values, is_copy }), ..Beginning::default() }
    }
}

/// The model of a request, for its preparation.
pub(in crate::model::sequences) trait PrepareHost: TaskHost {
    /// Puts a prepared request back into its queue.
    fn prepared(self: Arc<Self>, req: Req, prepared: PreparedJob, beginning: Beginning);

    /// Whether a request still waits for its preparation.
    fn is_preparing(&self, req: Req) -> bool;

    /// Finds the sequence of this id whose state a START may copy, as its client asks.
    fn copy_source(&self, load: &Arc<LoadedModel>, id: &Id) -> Result<(Seq, StateAt), NotCopied>;

    /// Finds the sequence of this id whose state a START with these key features may copy. The error says why there is none, with its code in
    /// the contract.
    fn parent(
        &self,
        of: &LoadInitializer,
        load: &Arc<LoadedModel>,
        keys: &[u64],
        id: &str,
    ) -> Result<(Seq, StateAt), (u32, &'static str)>;
}

/// Prepares requests of a model, on the threads of plug-ins.
#[derive(Clone)]
pub(in crate::model::sequences) struct Preparer(pub(in crate::model::sequences) Arc<dyn PrepareHost>);

impl Preparer {
    /// Prepares a request.
    pub(in crate::model::sequences) fn prepare(&self, task: PrepareTask) {
        let load = Arc::clone(&task.load);
        if let Some(from) = task.brought.as_ref().and_then(|brought| brought.from.clone()) {
            return self.begin_with_source(task, from);
        }
        let Some(of) = load.initializer.as_ref().filter(|_| task.facts.start) else {
            return self.prepare_inputs(task, Beginning::default());
        };
        match of.initializer.initialize(&task.facts, &task.inputs) {
            Ok(FirstAnswer::Default) => self.prepare_inputs(task, Beginning::default()),
            Ok(FirstAnswer::States(given)) => {
                let values = LoadInitializer::complete(&load.states, given);
                self.prepare_inputs(task, Beginning::new(values, false));
            }
            Ok(FirstAnswer::CopyOf(id)) => self.begin_with_copy(task, of, &id),
            Ok(FirstAnswer::Kept(name)) => self.begin_with_kept(task, of, name),
            Err(refusal) => self.refuse_start(task.req, refusal),
        }
    }

    /// Lets the processors prepare the inputs, if there are any, and puts the request back into its queue. States in the request replace the
    /// states that were made for it.
    fn prepare_inputs(&self, mut task: PrepareTask, mut beginning: Beginning) {
        let (load, model) = (Arc::clone(&task.load), Arc::clone(&self.0));
        if let Some(brought) = task.brought.take() {
            beginning.first = brought.over(&load.states, beginning.first);
        }
        let prepare = async move {
            if let Some((req, prepared)) = task.run().await {
                model.prepared(req, prepared, beginning);
            }
        };
        run_with_plugins(&load, prepare);
    }

    fn refuse_start(&self, req: Req, refusal: ProcessorRefusal) {
        Arc::clone(&self.0).prepared(req, PreparedJob::Refused(refusal), Beginning::default());
    }

    fn refuse_gone(&self, task: &PrepareTask, id: &str) {
        let Some(of) = &task.load.initializer else { return };
        let what = no_copy(id, "that sequence has just ended, or one of its requests is running in part");
        self.refuse_start(task.req, of.initializer.refusal_with(NOT_NOW, what));
    }

    // === kept states ===

    fn begin_with_kept(&self, task: PrepareTask, of: &LoadInitializer, name: KeptName) {
        // A kept state begins with the model's own first state, so a request with states of its own cannot use it.
        let has_own = task.brought.as_ref().is_some_and(|brought| brought.has_values());
        if name.name().is_empty() || has_own {
            self.begin_with_steps(task, of, &name, None);
        } else if task.has_slot {
            // The START that runs the steps may need this very slot, so this START does not wait for it.
            let found = of.initializer.kept.find_now(&name.key());
            self.begin_with(task, of, &name, found);
        } else {
            let (key, model) = (name.key(), Arc::downgrade(&self.0));
            of.initializer.kept.find(&key, Box::new(WaitingStart { model, task, name }));
        }
    }

    fn begin_with(&self, task: PrepareTask, of: &LoadInitializer, name: &KeptName, found: KeptLookup) {
        match found {
            KeptLookup::Kept(values) => self.prepare_inputs(task, Beginning::new(values, true)),
            KeptLookup::Missing(permit) => self.begin_with_steps(task, of, name, Some(permit)),
        }
    }

    fn begin_with_steps(&self, task: PrepareTask, of: &LoadInitializer, name: &KeptName, permit: Option<KeepPermit>) {
        // The START may have been cancelled while it waited. Then the next one runs the steps.
        if !self.0.is_preparing(task.req) {
            return;
        }
        match of.initializer.steps(name, &task.facts, &task.inputs).and_then(|steps| take_steps(of, &task, steps)) {
            Ok((steps, held)) => {
                let held = Some(held);
                self.prepare_inputs(task, Beginning { steps, held, permit, ..Beginning::default() });
            }
            Err(refusal) => self.refuse_start(task.req, refusal),
        }
    }

    // === copies ===

    fn begin_with_copy(&self, task: PrepareTask, of: &LoadInitializer, id: &str) {
        match self.0.parent(of, &task.load, &task.facts.keys, id) {
            Ok(found) => {
                let id = id.to_owned();
                self.ask_for_copy(task, found, move |preparer, task| preparer.refuse_gone(task, &id));
            }
            Err((code, why)) => {
                let refusal = of.initializer.refusal_with(code, no_copy(id, why));
                self.refuse_start(task.req, refusal);
            }
        }
    }

    /// Copies the sequence that the client names. The initializer is not called.
    fn begin_with_source(&self, task: PrepareTask, from: Id) {
        match self.0.copy_source(&task.load, &from) {
            Ok(found) => self.ask_for_copy(task, found, move |preparer, task| {
                preparer.refuse_copy(task.req, from, NotCopied::Gone);
            }),
            Err(why) => self.refuse_copy(task.req, from, why),
        }
    }

    fn refuse_copy(&self, req: Req, from: Id, why: NotCopied) {
        Arc::clone(&self.0).prepared(req, PreparedJob::NotCopied(from, why), Beginning::default());
    }

    /// Asks the thread of the other sequence's slot for a copy, and continues once the copy is there. If there is none, `gone` refuses the
    /// START.
    fn ask_for_copy(
        &self,
        task: PrepareTask,
        (seq, at): (Seq, StateAt),
        gone: impl FnOnce(&Preparer, &PrepareTask) + Send + 'static,
    ) {
        let load = Arc::clone(&task.load);
        let (model, lane) = (Arc::downgrade(&self.0), Arc::clone(&load));
        let reply = MailReply::new(move |values| {
            let go_on = move || {
                let Some(preparer) = model.upgrade().map(Preparer) else { return };
                match values {
                    Some(values) => preparer.prepare_inputs(task, Beginning::new(values, true)),
                    None => gone(&preparer, &task),
                }
            };
            submit_to_plugins(&lane, Box::new(go_on));
        });
        if let Some(mailbox) = load.mail.get(usize::from(at.instance.n)) {
            mailbox.post(ValuesRequest { seq, reply });
        }
        load.wake(at.instance.n);
    }
}

impl Waiting for WaitingStart {
    fn resume(self: Box<Self>, found: KeptLookup, at_once: bool) {
        let WaitingStart { model, task, name } = *self;
        let load = Arc::clone(&task.load);
        let go_on = move || {
            if let (Some(model), Some(of)) = (model.upgrade(), &Arc::clone(&task.load).initializer) {
                Preparer(model).begin_with(task, of, &name, found);
            }
        };
        if at_once { go_on() } else { submit_to_plugins(&load, Box::new(go_on)) }
    }

    fn is_over(&mut self) -> bool {
        self.task.is_over()
    }
}

/// The steps as runs of the model. They count as inputs that processors prepare.
fn take_steps(
    of: &LoadInitializer,
    task: &PrepareTask,
    steps: Vec<PortTensors>,
) -> Result<(Vec<ModelRun>, PreparedBytes), ProcessorRefusal> {
    let bytes = KnownMemory::new(&task.inputs).add(&steps);
    let full = || {
        of.initializer.unavailable(format!("the prepared inputs of all requests have {PREPARED} bytes, the maximum"))
    };
    let held = of.pool.hold(bytes).ok_or_else(full)?;
    let steps = accepted(task, steps).map_err(|what| of.initializer.refusal(what))?;
    Ok((steps, held))
}

/// The steps as runs of the model. The error names the step that the model does not accept.
fn accepted(task: &PrepareTask, steps: Vec<PortTensors>) -> Result<Vec<ModelRun>, String> {
    let step = |(n, inputs)| match intake::accept_run(&task.load.settings, inputs) {
        Ok(run) => {
            let RequestMeta { rows, bytes, shape, .. } = run.meta;
            Ok(ModelRun { inputs: run.inputs, meta: RequestMeta { rows, bytes, shape, ..task.meta } })
        }
        Err(what) => Err(format!("the model does not take the inputs of step {n}: {}", not_taken(&what))),
    };
    steps.into_iter().enumerate().map(step).collect()
}

fn no_copy(id: &str, why: &str) -> String {
    format!("copy-of \"{id}\": {why}")
}
