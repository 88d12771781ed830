//! The requests of a sequence that is captured: their inputs are noted when they are submitted, and their steps when their answers leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};

use sequor_core::{Id, LoadId};

use crate::model::request::InferRequest;
use crate::state::CapturedStep;
use crate::sync::{AtomicBool, AtomicU64, Mutex};
use crate::tensor::{NamedTensor, Tensor};

/// The capture of a model that is under way, if there is one.
#[derive(Debug)]
pub(in crate::model::sequences) struct Captures {
    is_active: AtomicBool,
    active: Mutex<Option<Arc<ActiveCapture>>>,
}

/// The sequence that is captured, and where its steps go.
#[derive(Debug)]
pub(in crate::model::sequences) struct ActiveCapture {
    id: Id,
    load: LoadId,
    /// Bytes that are held: the state, and the steps.
    held: AtomicU64,
    limit: u64,
    steps: SyncSender<CaptureNews>,
}

/// What became of a request of the sequence.
#[derive(Debug)]
pub(in crate::model::sequences) enum CaptureNews {
    Step(CapturedStep),
    /// It failed: it changed nothing, or the sequence has ended with it.
    Failed(u64),
    /// A START failed: the sequence, if it lives on, has its first state.
    FailedStart(CapturedStep),
    /// A START began with a copy of another sequence, or would have. The state is copied anew.
    NewState,
    /// It would exceed the maximum bytes.
    TooLarge,
}

/// The request of a captured sequence, until its answer leaves.
#[derive(Debug)]
pub(in crate::model::sequences) struct CapturedRequest {
    of: Arc<ActiveCapture>,
    /// Its number in the sequence. Known once it runs.
    pub(in crate::model::sequences) number: u64,
    start: bool,
    end: bool,
    /// Whether it begins with a copy of another sequence.
    copies: bool,
    /// Whether a processor has refused its answer, and the sequence goes on from its run.
    pub(in crate::model::sequences) is_refused: bool,
    inputs: Vec<NamedTensor>,
}

/// Ends a capture when it is dropped.
#[derive(Debug)]
pub(in crate::model::sequences) struct CaptureGuard<'a> {
    captures: &'a Captures,
    pub(in crate::model::sequences) active: Arc<ActiveCapture>,
}

impl Drop for CaptureGuard<'_> {
    fn drop(&mut self) {
        self.captures.is_active.store(false, Ordering::Release);
        *self.captures.active.lock() = None;
    }
}

impl Captures {
    pub(in crate::model::sequences) fn new() -> Captures {
        Captures { is_active: AtomicBool::new(false), active: Mutex::default() }
    }

    /// Begins a capture, unless another one is under way.
    pub(in crate::model::sequences) fn begin(&self, capture: ActiveCapture) -> Option<CaptureGuard<'_>> {
        let mut active = self.active.lock();
        if active.is_some() {
            return None;
        }
        let capture = Arc::new(capture);
        *active = Some(Arc::clone(&capture));
        self.is_active.store(true, Ordering::Release);
        Some(CaptureGuard { captures: self, active: capture })
    }

    /// Notes a request, if its sequence is captured.
    pub(in crate::model::sequences) fn note(
        &self,
        request: &InferRequest,
        load: LoadId,
    ) -> Option<Box<CapturedRequest>> {
        if !self.is_active.load(Ordering::Acquire) {
            return None;
        }
        let active = self.active.lock();
        let of = active.as_ref().filter(|of| of.id == request.sequence.id && of.load == load)?;
        let (start, end) = (request.sequence.start, request.sequence.end);
        let (copies, inputs) = (request.sequence.from.is_some(), request.inputs.clone());
        Some(Box::new(CapturedRequest { of: Arc::clone(of), number: 0, start, end, copies, is_refused: false, inputs }))
    }
}

impl CapturedRequest {
    /// Notes the step; without outputs it failed, or a processor refused it after the run. The tensors are copied: they are parts of what the server received and of memory that answers
    /// share.
    pub(in crate::model::sequences) fn answered(self, outputs: Option<Vec<NamedTensor>>) {
        let CapturedRequest { of, number, start, end, copies, is_refused, inputs } = self;
        let refused = outputs.is_none();
        if refused && !is_refused && !start {
            return of.report(CaptureNews::Failed(number));
        }
        if copies {
            return of.report(CaptureNews::NewState);
        }
        let step = CapturedStep { number, start, end, refused, inputs, outputs: outputs.unwrap_or_default() };
        if !of.takes(step.bytes()) {
            return of.report(CaptureNews::TooLarge);
        }
        let all = |of: Vec<NamedTensor>| of.into_iter().map(copied).collect();
        let step = CapturedStep { inputs: all(step.inputs), outputs: all(step.outputs), ..step };
        of.report(if refused && !is_refused { CaptureNews::FailedStart(step) } else { CaptureNews::Step(step) });
    }
}

fn copied(NamedTensor { name, tensor }: NamedTensor) -> NamedTensor {
    let data = tensor.data.to_vec().into();
    NamedTensor { name, tensor: Tensor { data, ..tensor } }
}

impl ActiveCapture {
    pub(in crate::model::sequences) fn new(
        id: Id,
        load: LoadId,
        bytes: u64,
        steps: SyncSender<CaptureNews>,
    ) -> ActiveCapture {
        ActiveCapture { id, load, held: AtomicU64::new(0), limit: bytes, steps }
    }

    /// Whether so many bytes more may be noted.
    pub(in crate::model::sequences) fn takes(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    pub(in crate::model::sequences) fn gives_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Counts a state, also beyond the maximum: steps that the state contains are given back later.
    pub(in crate::model::sequences) fn holds(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::AcqRel);
    }

    fn report(&self, news: CaptureNews) {
        // The capture may be over, or behind.
        let Err(TrySendError::Full(news) | TrySendError::Disconnected(news)) = self.steps.try_send(news) else {
            return;
        };
        if let CaptureNews::Step(step) | CaptureNews::FailedStart(step) = news {
            self.gives_back(step.bytes());
        }
    }
}
