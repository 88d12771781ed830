//! The data of a request while plug-ins prepare and finish it, and the tasks for their threads.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use sequor_core::{Id, Req, RequestMeta};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::config::model::settings::BackendKind;
use crate::error::{Failure, Invalid, NotCopied, ProcessorFailure};
use crate::initializing::KeepPermit;
use crate::model::load::{BroughtStates, LoadedModel, Processors};
use crate::model::request::intake;
use crate::processing::RUN_BYTES;
use crate::processing::outgoing::CallingRequest;
use crate::processing::pool::{PREPARED, PreparedBytes};
use crate::processing::{CallFacts, PendingAnswer, Plan, PortTensors, ProcessorRefusal, RefusedBy, SequenceScratch};
use crate::telemetry::BatchTimes;

use super::task_guard::TaskGuard;

/// Data of a request that plug-ins prepare, besides its job.
#[derive(Debug)]
pub(in crate::model) struct Processed {
    /// The properties of the accepted request. Its features stay when processors change its inputs.
    pub(in crate::model::sequences) meta: RequestMeta,
    pub(in crate::model::sequences) facts: CallFacts,
    /// The context for calls of its plug-ins to other models, if they may make any.
    pub(in crate::model::sequences) calling: Option<CallingRequest>,
    /// Dropped once the request is over. A plug-in that waits for another model then stops, and so does a START that waits for the steps of
    /// another START.
    pub(super) alive: Option<oneshot::Sender<()>>,
    /// The runs that have not begun.
    pub(in crate::model::sequences) runs: VecDeque<ModelRun>,
    /// The steps that run before the request itself.
    pub(in crate::model::sequences) first_steps: FirstSteps,
    /// The answer, if only the initializer's steps run.
    pub(in crate::model::sequences) reply: Option<PortTensors>,
    /// Outputs of the finished runs.
    pub(in crate::model::sequences) outputs: Vec<PortTensors>,
    /// The data with which the processors finish it.
    pub(in crate::model::sequences) pending: Option<PendingAnswer>,
    /// The new scratch of its sequence, once it is done.
    pub(in crate::model::sequences) scratch: Option<SequenceScratch>,
    /// The failure for the client, if the processors refused the request.
    pub(in crate::model::sequences) refusal: Option<Failure>,
    /// Whether it has begun its first run, or was refused.
    pub(in crate::model::sequences) has_run: bool,
    /// Bytes of the outputs of the finished runs.
    output_bytes: usize,
    /// Counts the inputs that processors made.
    held: Option<PreparedBytes>,
}

/// One run of the model.
#[derive(Debug)]
pub(in crate::model::sequences) struct ModelRun {
    pub(in crate::model::sequences) inputs: PortTensors,
    pub(in crate::model::sequences) meta: RequestMeta,
}

/// The steps of an initializer that run before a START.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct FirstSteps {
    pub(in crate::model::sequences) all: usize,
    /// Number of steps that have not run.
    pub(in crate::model::sequences) left: usize,
    /// Keeps the states after the steps.
    pub(in crate::model::sequences) permit: Option<KeepPermit>,
    /// Counts the inputs of the steps.
    pub(in crate::model::sequences) held: Option<PreparedBytes>,
}

/// A request that waits for its processors. It stays in the table until they begin.
#[derive(Debug)]
pub(in crate::model::sequences) struct LentRequest {
    pub(in crate::model::sequences) req: Req,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
}

/// A request to prepare.
#[derive(Debug)]
pub(in crate::model::sequences) struct PrepareTask {
    pub(in crate::model::sequences) req: Req,
    /// Whether its sequence holds a slot.
    pub(in crate::model::sequences) has_slot: bool,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) facts: CallFacts,
    pub(in crate::model::sequences) scratch: SequenceScratch,
    pub(in crate::model::sequences) inputs: PortTensors,
    pub(in crate::model::sequences) meta: RequestMeta,
    /// The first state that a START specifies.
    pub(in crate::model::sequences) brought: Option<Box<BroughtStates>>,
    /// Resolves if the request is over before its preparation.
    pub(in crate::model::sequences) gone: Option<oneshot::Receiver<()>>,
    /// Set before it is lent to a thread.
    pub(in crate::model::sequences) guard: Option<TaskGuard>,
}

/// A request to finish.
#[derive(Debug)]
pub(in crate::model::sequences) struct PostTask {
    pub(in crate::model::sequences) req: Req,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) facts: CallFacts,
    pub(in crate::model::sequences) pending: PendingAnswer,
    pub(in crate::model::sequences) outputs: Vec<PortTensors>,
    /// Resolves if the request is over before it is finished.
    pub(in crate::model::sequences) gone: Option<oneshot::Receiver<()>>,
    /// Set before it is lent to a thread.
    pub(in crate::model::sequences) guard: Option<TaskGuard>,
}

/// The outcome of a preparation.
#[derive(Debug)]
pub(in crate::model::sequences) enum PreparedJob {
    Run(Box<PreparedRuns>),
    Reply {
        answer: PortTensors,
        scratch: SequenceScratch,
    },
    Refused(ProcessorRefusal),
    /// The sequence cannot begin with a copy of that one.
    NotCopied(Id, NotCopied),
}

/// The runs of a prepared request.
#[derive(Debug)]
pub(in crate::model::sequences) struct PreparedRuns {
    pub(in crate::model::sequences) runs: Vec<ModelRun>,
    pub(in crate::model::sequences) rows: u64,
    pub(in crate::model::sequences) pending: Option<PendingAnswer>,
    pub(in crate::model::sequences) held: Option<PreparedBytes>,
}

/// The outcome of finishing a request: its answer or a refusal, and the new scratch of its sequence.
pub(in crate::model::sequences) type FinishedJob = (Result<PortTensors, ProcessorRefusal>, SequenceScratch);

impl Processed {
    pub(in crate::model::sequences) fn new(meta: RequestMeta) -> Processed {
        Processed {
            meta,
            facts: CallFacts::default(),
            calling: None,
            alive: None,
            runs: VecDeque::new(),
            first_steps: FirstSteps::default(),
            reply: None,
            outputs: Vec::new(),
            pending: None,
            scratch: None,
            refusal: None,
            has_run: false,
            output_bytes: 0,
            held: None,
        }
    }

    /// Stores the parts of a prepared request besides its runs.
    pub(in crate::model::sequences) fn take_pending(
        &mut self,
        pending: Option<PendingAnswer>,
        held: Option<PreparedBytes>,
    ) {
        (self.pending, self.held) = (pending, held);
    }

    /// Records that plug-ins work on the request. The returned channel closes once the request is over. `None` if no plug-in makes the
    /// request wait: it neither calls other models nor waits for the `steps` of an initializer.
    pub(in crate::model::sequences) fn watch(&mut self, steps: bool) -> Option<oneshot::Receiver<()>> {
        if self.calling.is_none() && !steps {
            return None;
        }
        let (alive, gone) = oneshot::channel();
        self.alive = Some(alive);
        Some(gone)
    }

    /// The properties of the next run, if they may differ from those of the previous run.
    pub(in crate::model::sequences) fn next_meta(&self) -> Option<RequestMeta> {
        self.runs.front().filter(|_| self.first_steps.all > 0).map(|run| run.meta)
    }

    /// Whether the states after the next run are kept for later STARTs.
    pub(super) fn keeps_next(&self) -> bool {
        self.first_steps.left == 1 && self.first_steps.permit.is_some()
    }

    /// The refusal for a failed run, if it was a step of the initializer.
    pub(super) fn failed_step(&self, load: &LoadedModel, failed: &Failure) -> Option<ProcessorRefusal> {
        let FirstSteps { all, left, .. } = self.first_steps;
        match (failed, &load.initializer) {
            (Failure::Run(what), Some(of)) if left > 0 => {
                Some(of.initializer.refusal(format!("the model did not run step {} of {all}: {what}", all - left)))
            }
            _ => None,
        }
    }

    /// Takes the outputs of a run. Returns the answer if that was the last run and no processor has work left. After an error the sequence
    /// has to end, because it has run.
    pub(in crate::model::sequences) fn ran(
        &mut self,
        processors: Option<&Processors>,
        outputs: PortTensors,
    ) -> Option<Result<PortTensors, ProcessorRefusal>> {
        if self.first_steps.left > 0 {
            self.first_steps.left -= 1;
            if self.first_steps.left == 0 {
                self.first_steps.held = None;
            }
            return self.reply.take_if(|_| self.first_steps.left == 0).map(Ok);
        }
        let Some(processors) = processors else { return Some(Ok(outputs)) };
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
    /// Whether the request is over. Takes no lock.
    pub(in crate::model::sequences) fn is_over(&mut self) -> bool {
        self.gone.as_mut().is_some_and(|gone| gone.try_recv() == Err(TryRecvError::Closed))
    }

    /// Runs the processors, if there are any, for as long as they take. `None` if the request is over before they answer.
    pub(in crate::model::sequences) async fn run(mut self) -> Option<(Req, PreparedJob)> {
        let gone = self.gone.take();
        unless_gone(gone, self.prepared()).await
    }

    async fn prepared(self) -> (Req, PreparedJob) {
        let PrepareTask { req, load, facts, scratch, inputs, meta, guard: _guard, .. } = self;
        let began = Instant::now();
        let Some(processors) = &load.processors else {
            let (rows, runs) = (u64::from(meta.rows), vec![ModelRun { inputs, meta }]);
            return (req, PreparedJob::Run(Box::new(PreparedRuns { runs, rows, pending: None, held: None })));
        };
        let prepared = match processors.chain.pre_async(&facts, &scratch, inputs).await {
            Ok(prepared) => prepared,
            Err(refusal) => return (req, PreparedJob::Refused(refusal)),
        };
        let refused = |why: RefusedBy| PreparedJob::Refused(by_last(processors, why));
        let runs = match prepared.plan {
            Plan::Run(runs) => runs,
            Plan::Reply(answer) => {
                if load.settings.backend == BackendKind::Plugin {
                    load.ran(&alone(meta.rows, began.elapsed()));
                }
                return (req, PreparedJob::Reply { answer, scratch: prepared.pending.into_scratch() });
            }
        };
        let Some(held) = processors.pool.hold(prepared.bytes) else {
            let what = format!("the prepared inputs of all requests have {PREPARED} bytes, the maximum");
            return (req, refused(RefusedBy::Unavailable { what }));
        };
        let mut accepted = Vec::with_capacity(runs.len());
        let mut rows = 1;
        for run in runs {
            match intake::accept_run(&load.settings, run) {
                Ok(run) => {
                    rows = run.rows;
                    let meta =
                        RequestMeta { rows: run.meta.rows, bytes: run.meta.bytes, shape: run.meta.shape, ..meta };
                    accepted.push(ModelRun { inputs: run.inputs, meta });
                }
                Err(what) => {
                    let text = format!("the model does not take these inputs: {}", not_taken(&what));
                    return (req, refused(RefusedBy::Plugin { code: 1, text, retry: None }));
                }
            }
        }
        let (pending, held) = (Some(prepared.pending), Some(held));
        (req, PreparedJob::Run(Box::new(PreparedRuns { runs: accepted, rows, pending, held })))
    }
}

impl PostTask {
    /// Runs the processors for as long as they take. `None` if the request is over before they answer.
    pub(in crate::model::sequences) async fn run(mut self) -> Option<(Req, FinishedJob)> {
        let gone = self.gone.take();
        unless_gone(gone, self.finished()).await
    }

    async fn finished(self) -> (Req, FinishedJob) {
        let PostTask { req, load, facts, pending, outputs, guard: _guard, .. } = self;
        let Some(Processors { chain, .. }) = &load.processors else {
            return (req, (Err(no_processor()), SequenceScratch::default()));
        };
        match chain.post_async(&facts, pending, outputs).await {
            Ok((answer, scratch)) => (req, (Ok(answer), scratch)),
            Err((refusal, scratch)) => (req, (Err(refusal), scratch)),
        }
    }
}

/// The times of a request that ran alone.
fn alone(rows: u32, run: Duration) -> BatchTimes {
    BatchTimes { requests: 1, rows, executed: rows, run, ..BatchTimes::default() }
}

/// The answer of a plug-in. `None` if the request is over first.
async fn unless_gone<T>(gone: Option<oneshot::Receiver<()>>, answer: impl Future<Output = T>) -> Option<T> {
    let Some(gone) = gone else { return Some(answer.await) };
    match select(pin!(answer), gone).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}

fn no_processor() -> ProcessorRefusal {
    let why = RefusedBy::Failure { what: "the load has no processors".to_owned() };
    ProcessorRefusal { ends: true, ..ProcessorRefusal::new("", why) }
}

/// A refusal in the name of the last processor, which is directly in front of the model.
fn by_last(processors: &Processors, why: RefusedBy) -> ProcessorRefusal {
    ProcessorRefusal::new(processors.chain.names().last().unwrap_or_default(), why)
}

/// Why the model does not accept the inputs of a run. Types and dimensions were checked before.
pub(super) fn not_taken(what: &Invalid) -> String {
    match what {
        Invalid::SequenceBatch => "a step of a sequence has one row".to_owned(),
        Invalid::BatchTooLarge { max } => format!("they have more than {max} rows (max_batch_size)"),
        Invalid::BatchSizes { input } => format!("\"{input}\" has another number of rows than the inputs before it"),
        other => format!("{other:?}"),
    }
}

/// A refusal as a failure for APIs.
pub(in crate::model::sequences) fn failure(
    refusal: ProcessorRefusal,
    model: &str,
    id: &Id,
    ended: bool,
    may_retry: bool,
) -> Failure {
    let ProcessorRefusal { world, plugin, why, .. } = refusal;
    let unavailable = matches!(why, RefusedBy::Unavailable { .. });
    let (code, text, retry) = match why {
        RefusedBy::Plugin { code, text, retry } => (Some(code), text, retry),
        RefusedBy::Failure { what } | RefusedBy::Unavailable { what } => (None, what, None),
    };
    let (model, id) = (model.to_owned(), id.clone());
    let failure = ProcessorFailure { world, model, id, plugin, code, text, retry, ended, may_retry, unavailable };
    Failure::Processor(Box::new(failure))
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sequor_core::{DataType, Shape};

    use super::*;
    use crate::executor::ThreadSteps;
    use crate::processing::ProcessorPool;
    use crate::processing::wat_fixture::{ProcessorWat, chain};
    use crate::tensor::Tensor;

    #[test]
    fn the_outputs_of_all_runs_are_bounded() {
        let pool = Arc::new(ProcessorPool::new(1, ThreadSteps::new()).unwrap());
        let processors = Processors { chain: chain(&[ProcessorWat::default()]), pool };
        let mut processed = Processed::new(RequestMeta::default());
        let data = Bytes::from(vec![0; RUN_BYTES / 2]);
        let tensor = Tensor { dtype: DataType::Uint8, shape: Shape::new(&[data.len() as u64]), data };
        for _ in 0..2 {
            assert!(processed.ran(Some(&processors), vec![Some(tensor.clone())]).is_none());
        }
        let refused = processed.ran(Some(&processors), vec![Some(tensor)]).unwrap().unwrap_err();
        let what = format!("the outputs of its runs have {} bytes; the maximum is {RUN_BYTES}", RUN_BYTES / 2 * 3);
        assert_eq!(refused.why, RefusedBy::Failure { what });
        assert!(processed.outputs.is_empty(), "nothing of them is kept");
    }
}
