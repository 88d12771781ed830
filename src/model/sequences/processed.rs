//! What a request keeps while processors prepare and finish it, and the tasks that their threads get.

use std::collections::VecDeque;
use std::sync::Arc;

use sequor_core::{Id, Req, RequestMeta};

use crate::error::{Failure, Invalid, ProcessorFailure};
use crate::model::load::{LoadedModel, Processors};
use crate::model::request::intake;
use crate::processing::link::RUN_BYTES;
use crate::processing::pool::{PREPARED, PreparedBytes};
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
    /// Bytes of the outputs of the runs that are over.
    output_bytes: usize,
    /// Counts the inputs that processors made.
    held: Option<PreparedBytes>,
}

/// A request that waits for its processors. It is in the table until they begin.
#[derive(Debug)]
pub(super) struct LentRequest {
    pub(super) req: Req,
    pub(super) load: Arc<LoadedModel>,
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
    Run(Box<PreparedRuns>),
    Reply { answer: PortTensors, scratch: SequenceScratch },
    Refused(ProcessorRefusal),
}

/// The runs of a prepared request.
#[derive(Debug)]
pub(super) struct PreparedRuns {
    pub(super) runs: VecDeque<PortTensors>,
    pub(super) rows: u64,
    pub(super) meta: RequestMeta,
    pub(super) pending: PendingAnswer,
    pub(super) held: PreparedBytes,
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
            output_bytes: 0,
            held: None,
        }
    }

    /// Takes the runs of a prepared request. Returns how many there are.
    pub(super) fn take_runs(&mut self, prepared: PreparedRuns) -> usize {
        let PreparedRuns { runs, pending, held, .. } = prepared;
        (self.runs, self.pending, self.held) = (runs, Some(pending), Some(held));
        self.runs.len()
    }

    /// Takes the outputs of a run. The answer, if that was the last run and no processor has anything left to do. After an error the sequence has to
    /// end, for it has run.
    pub(super) fn ran(
        &mut self,
        processors: &Processors,
        outputs: PortTensors,
    ) -> Option<Result<PortTensors, ProcessorRefusal>> {
        self.output_bytes += outputs.iter().flatten().map(|tensor| tensor.data.len()).sum::<usize>();
        if self.output_bytes > RUN_BYTES {
            self.outputs.clear();
            let what = format!("the outputs of its runs have {} bytes; the maximum is {RUN_BYTES}", self.output_bytes);
            return Some(Err(by_last(processors, RefusedBy::Failure { what })));
        }
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
            Err((refusal, _)) => Err(refusal),
        })
    }
}

impl PrepareTask {
    /// Asks the processors. It takes as long as they take.
    pub(super) fn run(self) -> (Req, PreparedJob) {
        let PrepareTask { req, load, facts, scratch, inputs, meta } = self;
        let Some(processors) = &load.processors else {
            return (req, PreparedJob::Refused(no_processor()));
        };
        let prepared = match processors.chain.pre(&facts, &scratch, inputs) {
            Ok(prepared) => prepared,
            Err(refusal) => return (req, PreparedJob::Refused(refusal)),
        };
        let refused = |why: RefusedBy| PreparedJob::Refused(by_last(processors, why));
        let runs = match prepared.plan {
            Plan::Run(runs) => runs,
            Plan::Reply(answer) => {
                return (req, PreparedJob::Reply { answer, scratch: prepared.pending.into_scratch() });
            }
        };
        let Some(held) = processors.pool.hold(prepared.bytes) else {
            let what = format!("the prepared inputs of all requests have {PREPARED} bytes, the maximum");
            return (req, refused(RefusedBy::Unavailable { what }));
        };
        let (mut accepted, mut of_all) = (VecDeque::with_capacity(runs.len()), meta);
        let mut rows = 1;
        for run in runs {
            match intake::accept_run(&load.settings, run) {
                Ok(run) => {
                    rows = run.rows;
                    of_all = RequestMeta { rows: run.meta.rows, bytes: run.meta.bytes, shape: run.meta.shape, ..meta };
                    accepted.push_back(run.inputs);
                }
                Err(what) => {
                    let text = format!("the model does not take these inputs: {}", not_taken(&what));
                    return (req, refused(RefusedBy::Plugin { code: 1, text, retry: None }));
                }
            }
        }
        let pending = prepared.pending;
        (req, PreparedJob::Run(Box::new(PreparedRuns { runs: accepted, rows, meta: of_all, pending, held })))
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

/// A refusal in the name of the processor that stands directly in front of the model.
fn by_last(processors: &Processors, why: RefusedBy) -> ProcessorRefusal {
    let plugin = processors.chain.names().last().unwrap_or_default().to_owned();
    ProcessorRefusal { plugin, why, ends: false }
}

/// Why the model does not take the inputs of a run. Types and dimensions were checked before.
fn not_taken(what: &Invalid) -> String {
    match what {
        Invalid::SequenceBatch => "a step of a sequence has one row".to_owned(),
        Invalid::BatchTooLarge { max } => format!("they have more than {max} rows (max_batch_size)"),
        Invalid::BatchSizes { input } => format!("\"{input}\" has another number of rows than the inputs before it"),
        other => format!("{other:?}"),
    }
}

/// A refusal as a surface gets it.
pub(super) fn failure(refusal: ProcessorRefusal, model: &str, id: &Id, ended: bool, may_retry: bool) -> Failure {
    let ProcessorRefusal { plugin, why, .. } = refusal;
    let unavailable = matches!(why, RefusedBy::Unavailable { .. });
    let (code, text, retry) = match why {
        RefusedBy::Plugin { code, text, retry } => (Some(code), text, retry),
        RefusedBy::Failure { what } | RefusedBy::Unavailable { what } => (None, what, None),
    };
    let (model, id) = (model.to_owned(), id.clone());
    let failure = ProcessorFailure { model, id, plugin, code, text, retry, ended, may_retry, unavailable };
    Failure::Processor(Box::new(failure))
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sequor_core::{DataType, Shape};

    use super::*;
    use crate::processing::ProcessorPool;
    use crate::processing::wat_fixture::{ProcessorWat, chain};
    use crate::tensor::Tensor;

    #[test]
    fn the_outputs_of_all_runs_are_bounded() {
        let pool = Arc::new(ProcessorPool::new(1).unwrap());
        let processors = Processors { chain: chain(&[ProcessorWat::default()]), pool };
        let mut processed = Processed::new(RequestMeta::default());
        let data = Bytes::from(vec![0; RUN_BYTES / 2]);
        let tensor = Tensor { dtype: DataType::Uint8, shape: Shape::of(&[data.len() as u64]), data };
        for _ in 0..2 {
            assert!(processed.ran(&processors, vec![Some(tensor.clone())]).is_none());
        }
        let refused = processed.ran(&processors, vec![Some(tensor)]).unwrap().unwrap_err();
        let what = format!("the outputs of its runs have {} bytes; the maximum is {RUN_BYTES}", RUN_BYTES / 2 * 3);
        assert_eq!(refused.why, RefusedBy::Failure { what });
        assert!(processed.outputs.is_empty(), "nothing of them is kept");
    }
}
