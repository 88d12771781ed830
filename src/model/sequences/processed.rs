//! What a request keeps while processors prepare and finish it, and the tasks that their threads get.

use std::collections::VecDeque;
use std::sync::Arc;

use sequor_core::{Id, Req, RequestMeta};

use crate::error::{Failure, ProcessorFailure};
use crate::model::load::{LoadedModel, Processors};
use crate::model::request::intake;
use crate::processing::{CallFacts, PendingAnswer, Plan, PortTensors, ProcessorRefusal, RefusedBy, SequenceScratch};

/// What a request of a load with processors keeps beside its job.
#[derive(Debug)]
pub(in crate::model) struct Processed {
    /// As the request was accepted; its features stay when processors change its inputs.
    pub(super) meta: RequestMeta,
    pub(super) facts: CallFacts,
    /// Inputs of the runs that have not begun.
    pub(super) runs: VecDeque<PortTensors>,
    /// Outputs of the runs that are over.
    pub(super) outputs: Vec<PortTensors>,
    /// What the processors need to finish it.
    pub(super) pending: Option<PendingAnswer>,
    /// The scratch that its sequence gets once it is done.
    pub(super) scratch: Option<SequenceScratch>,
    /// The failure for the client, if the processors refused the request.
    pub(super) refusal: Option<Failure>,
    /// Whether an instance has taken it.
    pub(super) has_run: bool,
}

/// A request to prepare.
#[derive(Debug)]
pub(super) struct PrepareTask {
    pub(super) req: Req,
    pub(super) load: Arc<LoadedModel>,
    pub(super) facts: CallFacts,
    pub(super) scratch: SequenceScratch,
    pub(super) inputs: PortTensors,
    pub(super) meta: RequestMeta,
}

/// A request to finish.
#[derive(Debug)]
pub(super) struct PostTask {
    pub(super) req: Req,
    pub(super) load: Arc<LoadedModel>,
    pub(super) facts: CallFacts,
    pub(super) pending: PendingAnswer,
    pub(super) outputs: Vec<PortTensors>,
}

/// What came of a preparation.
#[derive(Debug)]
pub(super) enum PreparedJob {
    Run { runs: VecDeque<PortTensors>, rows: u64, meta: RequestMeta, pending: PendingAnswer },
    Reply { answer: PortTensors, scratch: SequenceScratch },
    Refused(ProcessorRefusal),
}

/// What came of finishing a request: its answer or a refusal, and the scratch that its sequence has then.
pub(super) type FinishedJob = (Result<PortTensors, ProcessorRefusal>, SequenceScratch);

impl Processed {
    pub(super) fn new(meta: RequestMeta) -> Processed {
        Processed {
            meta,
            facts: CallFacts::default(),
            runs: VecDeque::new(),
            outputs: Vec::new(),
            pending: None,
            scratch: None,
            refusal: None,
            has_run: false,
        }
    }

    /// Takes the outputs of a run. The answer, if that was the last run and no processor has anything left to do.
    pub(super) fn ran(
        &mut self,
        processors: &Processors,
        outputs: PortTensors,
    ) -> Option<Result<PortTensors, Failure>> {
        self.outputs.push(outputs);
        if !self.runs.is_empty() || processors.chain.posts() {
            return None;
        }
        let (pending, outputs) = (self.pending.take()?, std::mem::take(&mut self.outputs));
        Some(match processors.chain.post(&self.facts, pending, outputs) {
            Ok((answer, scratch)) => {
                self.scratch = Some(scratch);
                Ok(answer)
            }
            Err((refusal, _)) => Err(Failure::Run(refused_text(&refusal))),
        })
    }
}

impl PrepareTask {
    /// Asks the processors. It takes as long as they take.
    pub(super) fn run(self) -> (Req, PreparedJob) {
        let PrepareTask { req, load, facts, scratch, inputs, meta } = self;
        let Some(Processors { chain, .. }) = &load.processors else {
            return (req, PreparedJob::Refused(no_processor()));
        };
        let prepared = match chain.pre(&facts, &scratch, inputs) {
            Ok(prepared) => prepared,
            Err(refusal) => return (req, PreparedJob::Refused(refusal)),
        };
        let runs = match prepared.plan {
            Plan::Run(runs) => runs,
            Plan::Reply(answer) => {
                return (req, PreparedJob::Reply { answer, scratch: prepared.pending.into_scratch() });
            }
        };
        let last = chain.names().last().unwrap_or_default();
        let (mut accepted, mut of_all) = (VecDeque::with_capacity(runs.len()), meta);
        let mut rows = 1;
        for (n, run) in runs.into_iter().enumerate() {
            match intake::accept_run(&load.settings, run) {
                Ok(run) => {
                    rows = run.rows;
                    of_all = RequestMeta { rows: run.meta.rows, bytes: run.meta.bytes, shape: run.meta.shape, ..meta };
                    accepted.push_back(run.inputs);
                }
                Err(what) => {
                    let what = format!("the model does not take the inputs of run {n}: {what:?}");
                    let (plugin, why) = (last.to_owned(), RefusedBy::Failure { what });
                    return (req, PreparedJob::Refused(ProcessorRefusal { plugin, why, ends: false }));
                }
            }
        }
        (req, PreparedJob::Run { runs: accepted, rows, meta: of_all, pending: prepared.pending })
    }
}

impl PostTask {
    /// Asks the processors. It takes as long as they take.
    pub(super) fn run(self) -> (Req, FinishedJob) {
        let PostTask { req, load, facts, pending, outputs } = self;
        let Some(Processors { chain, .. }) = &load.processors else {
            return (req, (Err(no_processor()), SequenceScratch::default()));
        };
        match chain.post(&facts, pending, outputs) {
            Ok((answer, scratch)) => (req, (Ok(answer), scratch)),
            Err((refusal, scratch)) => (req, (Err(refusal), scratch)),
        }
    }
}

fn no_processor() -> ProcessorRefusal {
    let why = RefusedBy::Failure { what: "the load has no processors".to_owned() };
    ProcessorRefusal { plugin: String::new(), why, ends: true }
}

fn refused_text(refusal: &ProcessorRefusal) -> String {
    match &refusal.why {
        RefusedBy::Plugin { text, .. } => text.clone(),
        RefusedBy::Failure { what } => format!("processor '{}': {what}", refusal.plugin),
    }
}

/// A refusal as a surface gets it.
pub(super) fn failure(refusal: ProcessorRefusal, model: &str, id: &Id, ended: bool, may_retry: bool) -> Failure {
    let ProcessorRefusal { plugin, why, .. } = refusal;
    let (code, text, retry) = match why {
        RefusedBy::Plugin { code, text, retry } => (Some(code), text, retry),
        RefusedBy::Failure { what } => (None, what, None),
    };
    let (model, id) = (model.to_owned(), id.clone());
    Failure::Processor(Box::new(ProcessorFailure { model, id, plugin, code, text, retry, ended, may_retry }))
}
