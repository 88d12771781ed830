//! One `ModelStreamInfer` call. It admits requests in the order of their arrival and answers them in that order. Errors are replies as
//! well.
//!
//! Unread answers are bounded. At the bound the stream reads no more requests, its sequences idle, and other clients continue.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sequor_proto::{ModelInferResponse, ModelStreamInferResponse};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_stream::Stream;

use super::message::{CallMetadata, ReadMessage, ScannedMessage};
use super::reply_queue::Sender;
use super::response_format::ResponseFormat;
use super::surface::{CallAnswer, Kserve};
use super::{contents, encode};
use crate::api::frames::{Unpacked, UnpackedQueue};
use crate::api::intake::Decoded;
use crate::api::refusal::unsent;
use crate::api::request_count::{Receipt, SentAnswer};
use crate::api::{Code, RequestContext, ServerPhase, Status};
use crate::model::{InferAnswer, TensorMetadata};

/// The assumed size of an answer before the first answer is known, and the maximum number of requests in flight until then.
const GUESS: usize = 64 << 10;
const UNKNOWN: usize = 8;
/// The assumed size of a reply without its tensors.
const FRAME: usize = 256;
/// Maximum steps of one poll, so that other tasks get their turn.
const TURN: usize = 64;

/// The task of a stream. Dropping it cancels the requests in flight.
pub(crate) struct StreamTask<S> {
    kserve: Kserve,
    /// The context of each of its requests, which includes the deadline of the call.
    context: RequestContext,
    metadata: Arc<CallMetadata>,
    /// `None` once the client sends no more.
    messages: Option<S>,
    /// The permits of messages that were unpacked.
    unpacked: UnpackedQueue,
    /// A large message, which another thread decodes. No other message is read meanwhile.
    decoding: Option<JoinHandle<Result<ReadMessage, tonic::Status>>>,
    replies: Sender<ModelStreamInferResponse>,
    waiting: VecDeque<(CallAnswer, ResponseFormat)>,
    /// The first waiting answer, while it is being written.
    writing: Option<Writing>,
    /// Size of the largest answer so far, or of the largest one that a model with fixed outputs makes. The next answers are assumed to be no
    /// larger.
    largest: Option<usize>,
    closing: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The status that ends the stream once everything is answered.
    end: Option<tonic::Status>,
}

impl<S> StreamTask<S>
where
    S: Stream<Item = Result<Bytes, tonic::Status>> + Unpin + Send + 'static,
{
    pub(super) fn new(
        kserve: Kserve,
        context: RequestContext,
        metadata: CallMetadata,
        messages: S,
        unpacked: UnpackedQueue,
        replies: Sender<ModelStreamInferResponse>,
    ) -> StreamTask<S> {
        let mut phases = kserve.api().phases();
        let closing = Box::pin(async move {
            if phases.wait_for(|phase| *phase == ServerPhase::Closing).await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        let (waiting, messages, metadata) = (VecDeque::new(), Some(messages), Arc::new(metadata));
        let (decoding, writing, largest, end) = (None, None, None, None);
        StreamTask {
            kserve,
            context: context.for_stream(),
            metadata,
            messages,
            unpacked,
            decoding,
            replies,
            waiting,
            writing,
            largest,
            closing,
            end,
        }
    }

    /// Queues the replies of finished requests. `Err` ends the stream.
    fn answer(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        while let Some((answer, form)) = self.waiting.front_mut() {
            if self.writing.is_none() {
                let Poll::Ready(outcome) = Pin::new(&mut *answer).poll(cx) else { break };
                let form = std::mem::take(form);
                self.writing = Some(Writing::begin(outcome, form));
            }
            let Some(writing) = &mut self.writing else { break };
            let Poll::Ready(written) = Pin::new(writing).poll(cx) else { break };
            self.writing = None;
            let outcome = SentAnswer::of(&written);
            let Some((CallAnswer { call, count, .. }, _)) = self.waiting.pop_front() else { break };
            let reply = match written {
                Ok(answer) => ModelStreamInferResponse { error_message: String::new(), infer_response: Some(answer) },
                Err(status) if self.metadata.strict => return count.answer(Err(status)),
                Err(status) => encode::failure(&call, status),
            };
            let bytes = reply_size(&reply);
            self.largest = self.largest.max(Some(bytes));
            let permit = self.kserve.api().answer_permit(&self.context, bytes);
            self.replies.push(reply, bytes, Some(Receipt::new(count, outcome).holding(permit)));
        }
        Ok(())
    }

    /// Queues replies, and admits the next request if there is room for its answer. `Ready(true)` asks for another call; `Ready(false)` is
    /// the end.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Err(status) = self.answer(cx) {
            self.replies.end(Some(status.into()));
            return Poll::Ready(false);
        }
        let Some(unread) = self.replies.unread(cx) else { return Poll::Ready(false) };
        if let Some(decoding) = &mut self.decoding {
            let decoded = std::task::ready!(Pin::new(decoding).poll(cx));
            self.decoding = None;
            let ended = |error| tonic::Status::internal(format!("a request could not be decoded: {error}"));
            self.begin(decoded.unwrap_or_else(|error| Err(ended(error))));
            return Poll::Ready(true);
        }
        let Some(messages) = &mut self.messages else {
            if !self.waiting.is_empty() {
                return Poll::Pending;
            }
            self.replies.end(self.end.take());
            return Poll::Ready(false);
        };
        let limit = self.kserve.api().limits().stream_unread();
        if is_full(unread, self.waiting.len(), self.largest, limit) {
            if self.waiting.is_empty() {
                self.replies.wait_for_room(limit / 2);
            }
            return Poll::Pending;
        }
        match std::task::ready!(Pin::new(messages).poll_next(cx)) {
            Some(Ok(message)) => self.decode(message),
            Some(Err(status)) => (self.messages, self.end) = (None, Some(status)),
            None => self.messages = None,
        }
        Poll::Ready(true)
    }

    fn decode(&mut self, message: Bytes) {
        let permit = match self.unpacked.pop() {
            Some(Unpacked { permit, .. }) => permit,
            None => self.kserve.api().body_permit(&self.context, message.len()),
        };
        let scanned = ScannedMessage::new(&self.kserve, message, permit);
        if scanned.is_long() {
            let (kserve, metadata) = (self.kserve.clone(), Arc::clone(&self.metadata));
            self.decoding = Some(spawn_blocking(move || scanned.decode(&kserve, &metadata)));
        } else {
            self.begin(scanned.decode(&self.kserve, &self.metadata));
        }
    }

    /// Admits a request. If the bytes are no valid message, the stream ends after the admitted requests.
    fn begin(&mut self, read: Result<ReadMessage, tonic::Status>) {
        match read {
            Ok(ReadMessage { call, request, form }) => {
                if self.largest.is_none() {
                    self.largest = request.as_ref().ok().and_then(known_size);
                }
                self.waiting.push_back((self.kserve.begin(&self.context, call, request), form));
            }
            Err(status) => (self.messages, self.end) = (None, Some(status)),
        }
    }

    fn close(&mut self) {
        self.messages = None;
        let text = "the server is stopping; open the stream again elsewhere";
        let status = Status::new(Code::Unavailable, "draining", text);
        self.end.get_or_insert_with(|| status.into());
    }
}

impl<S> Future for StreamTask<S>
where
    S: Stream<Item = Result<Bytes, tonic::Status>> + Unpin + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        if task.messages.is_some() && task.closing.as_mut().poll(cx).is_ready() {
            task.close();
        }
        for _ in 0..TURN {
            if !std::task::ready!(task.step(cx)) {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The conversion of an answer to a message.
enum Writing {
    Done(Option<Result<ModelInferResponse, Status>>),
    /// A large answer, converted on another thread.
    Task(JoinHandle<Result<ModelInferResponse, Status>>),
}

impl Writing {
    fn begin(outcome: Result<InferAnswer, Status>, form: ResponseFormat) -> Writing {
        match outcome {
            Ok(answer) if encode::is_long(&answer, &form) => {
                Writing::Task(spawn_blocking(move || encode::answer(answer, &form)))
            }
            outcome => Writing::Done(Some(outcome.and_then(|answer| encode::answer(answer, &form)))),
        }
    }
}

impl Future for Writing {
    type Output = Result<ModelInferResponse, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<ModelInferResponse, Status>> {
        let lost = |why: String| {
            unsent(Status::new(Code::Internal, "internal", format!("an answer could not be written: {why}")))
        };
        match &mut *self {
            Writing::Done(written) => Poll::Ready(written.take().unwrap_or_else(|| Err(lost("twice".to_owned())))),
            Writing::Task(task) => {
                Pin::new(task).poll(cx).map(|ended| ended.unwrap_or_else(|e| Err(lost(e.to_string()))))
            }
        }
    }
}

/// Whether the unread and the expected answers reach the limit. If no request waits and the unread answers are below the limit, one is
/// always admitted. `largest` is the size of the largest answer, once it is known.
pub(super) fn is_full(unread: usize, waiting: usize, largest: Option<usize>, limit: usize) -> bool {
    let expected = waiting.saturating_mul(largest.unwrap_or(GUESS));
    let is_unknown = largest.is_none() && waiting >= UNKNOWN;
    unread >= limit || is_unknown || (waiting > 0 && unread.saturating_add(expected) >= limit)
}

/// The size of the tensors that answer this request, if its model has only outputs of fixed sizes.
pub(super) fn known_size(decoded: &Decoded) -> Option<usize> {
    let rows = match decoded.model.config().max_batch_size {
        0 => 1,
        _ => decoded.request.inputs.first().and_then(|input| usize::try_from(*input.tensor.shape.0.first()?).ok())?,
    };
    let size = |output: &TensorMetadata| {
        let dims = output.dims.0.iter().skip(usize::from(decoded.model.config().max_batch_size > 0));
        let elements = dims.map(|dim| dim.fixed()).try_fold(1_u64, |sum, dim| sum.checked_mul(dim?))?;
        usize::try_from(elements).ok()?.checked_mul(output.dtype.size()?)?.checked_mul(rows)
    };
    let sizes = decoded.model.metadata().outputs.iter().map(size).collect::<Option<Vec<usize>>>()?;
    sizes.into_iter().try_fold(0_usize, usize::checked_add)
}

/// Size of a reply in bytes.
fn reply_size(reply: &ModelStreamInferResponse) -> usize {
    let answer = |answer: &ModelInferResponse| {
        let raw: usize = answer.raw_output_contents.iter().map(Bytes::len).sum();
        let lists = answer.outputs.iter().filter_map(|output| output.contents.as_ref());
        raw + lists.map(contents::size).sum::<usize>()
    };
    FRAME + reply.error_message.len() + reply.infer_response.as_ref().map_or(0, answer)
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
