//! The requests of a captured sequence. Their inputs are recorded when they are submitted, and their steps when their answers leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};

use sequor_core::{Id, LoadId};

use crate::model::request::InferRequest;
use crate::state::CapturedStep;
use crate::sync::{AtomicBool, AtomicU64, Mutex};
use crate::tensor::{NamedTensor, Tensor};

/// The capture of a model that is in progress, if there is one.
#[derive(Debug)]
pub(in crate::model::sequences) struct Captures {
    is_active: AtomicBool,
    active: Mutex<Option<Arc<ActiveCapture>>>,
}

/// The sequence that is captured, and the channel for its steps.
#[derive(Debug)]
pub(in crate::model::sequences) struct ActiveCapture {
    id: Id,
    load: LoadId,
    /// Bytes of the state and of the steps that are held.
    held: AtomicU64,
    limit: u64,
    steps: SyncSender<CaptureNews>,
}

/// The outcome of a request of the sequence.
#[derive(Debug)]
pub(in crate::model::sequences) enum CaptureNews {
    Step(CapturedStep),
    /// It failed. Either it changed nothing, or the sequence has ended.
    Failed(u64),
    /// A START failed. If the sequence lives on, it has its first state.
    FailedStart(CapturedStep),
    /// A START copied another sequence, or failed to. The capture copies the state again.
    NewState,
    /// The step would exceed the capture's maximum bytes.
    TooLarge,
}

/// A request of a captured sequence, until its answer leaves.
#[derive(Debug)]
pub(in crate::model::sequences) struct CapturedRequest {
    of: Arc<ActiveCapture>,
    /// The number of its step. Known once it runs.
    pub(in crate::model::sequences) number: u64,
    start: bool,
    end: bool,
    /// Whether it copies another sequence.
    copies: bool,
    /// Whether a processor has refused its answer and the sequence continues from its run.
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

    /// Records a request, if its sequence is captured.
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
    /// Reports the step. Without outputs it failed, or a processor refused it after the run. The tensors are copied, because they share
    /// memory with received messages and other answers.
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

    /// Counts this many bytes. Returns false and counts nothing if they would exceed the maximum.
    pub(in crate::model::sequences) fn takes(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    pub(in crate::model::sequences) fn gives_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Counts a state, even beyond the maximum. The bytes of the steps that it contains are given back later.
    pub(in crate::model::sequences) fn holds(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::AcqRel);
    }

    fn report(&self, news: CaptureNews) {
        // The capture may have ended, or its queue may be full.
        let Err(TrySendError::Full(news) | TrySendError::Disconnected(news)) = self.steps.try_send(news) else {
            return;
        };
        if let CaptureNews::Step(step) | CaptureNews::FailedStart(step) = news {
            self.gives_back(step.bytes());
        }
    }
}
