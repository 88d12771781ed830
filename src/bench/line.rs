//! Carries a sender's requests to the server and their answers back, as single calls or on one stream. Both keep the order of sending on
//! the wire.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt, TryStreamExt};
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::plan::ClientKey;
use super::script::RequestMark;

type GrpcClient = GrpcInferenceServiceClient<Channel>;

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) mark: RequestMark,
    /// The time when it was sent, or was due.
    pub(super) at: Instant,
}

/// An answered request.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    pub(super) sent: Sent,
    pub(super) at: Instant,
    pub(super) answer: Result<ModelInferResponse, CallFailure>,
}

#[derive(Debug, Clone)]
pub(super) struct CallFailure {
    pub(super) code: &'static str,
    pub(super) text: String,
    /// Whether the connection or stream is lost, and not only the request.
    pub(super) broken: bool,
}

pub(super) enum Transport {
    Calls {
        client: GrpcClient,
        key: Option<ClientKey>,
        flying: FuturesUnordered<InFlightCall>,
    },
    Stream {
        client: GrpcClient,
        key: Option<ClientKey>,
        open: Option<OpenStream>,
        flying: VecDeque<Sent>,
        lost: Option<CallFailure>,
    },
}

/// A call in flight.
pub(super) struct InFlightCall {
    sent: Sent,
    call: Pin<Box<dyn Future<Output = Result<ModelInferResponse, CallFailure>> + Send>>,
}

impl Future for InFlightCall {
    type Output = AnsweredRequest;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AnsweredRequest> {
        let answer = std::task::ready!(self.call.as_mut().poll(cx));
        Poll::Ready(AnsweredRequest { sent: self.sent, at: Instant::now(), answer })
    }
}

/// Requests that a stream accepts before they are on the wire; more than any sender has in flight.
const ROOM: usize = 1024;

pub(super) struct OpenStream {
    requests: mpsc::Sender<ModelInferRequest>,
    answers: Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>,
}

impl Transport {
    pub(super) fn new(channel: Channel, streaming: bool, key: Option<ClientKey>) -> Transport {
        let client = GrpcClient::new(channel).max_decoding_message_size(usize::MAX);
        match streaming {
            false => Transport::Calls { client, key, flying: FuturesUnordered::new() },
            true => Transport::Stream { client, key, open: None, flying: VecDeque::new(), lost: None },
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        match self {
            Transport::Calls { flying, .. } => flying.len(),
            Transport::Stream { flying, .. } => flying.len(),
        }
    }

    /// The due times of the requests in flight.
    pub(super) fn sent_at(&self) -> Vec<Instant> {
        match self {
            Transport::Calls { flying, .. } => flying.iter().map(|call| call.sent.at).collect(),
            Transport::Stream { flying, .. } => flying.iter().map(|sent| sent.at).collect(),
        }
    }

    /// Sends a request. It is in flight once [`Transport::next`] is awaited.
    pub(super) fn send(&mut self, sent: Sent, message: ModelInferRequest) {
        match self {
            Transport::Calls { client, key, flying } => {
                let mut client = client.clone();
                let message = ClientKey::shown(key.as_ref(), message);
                let call = async move {
                    let answer = client.model_infer(message).await;
                    answer.map(tonic::Response::into_inner).map_err(|status| fault(&status))
                };
                flying.push(InFlightCall { sent, call: Box::pin(call) });
            }
            Transport::Stream { client, key, open, flying, lost } => {
                let stream = open.get_or_insert_with(|| begin(client.clone(), key.as_ref()));
                flying.push_back(sent);
                if stream.requests.try_send(message).is_err() {
                    *lost =
                        Some(CallFailure { code: "STREAM", text: "the stream takes nothing".to_owned(), broken: true });
                }
            }
        }
    }

    /// The next answered request; `None` if none is in flight. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<AnsweredRequest> {
        let (open, flying, lost) = match self {
            Transport::Calls { flying, .. } => return flying.next().await,
            Transport::Stream { open, flying, lost, .. } => (open, flying, lost),
        };
        loop {
            flying.front()?;
            if let Some(fault) = lost.clone() {
                // A lost stream fails all its requests, one after the other.
                *open = None;
                let sent = flying.pop_front()?;
                if flying.is_empty() {
                    *lost = None;
                }
                return Some(AnsweredRequest { sent, at: Instant::now(), answer: Err(fault) });
            }
            match open.as_mut()?.answers.next().await {
                Some(Ok(answer)) => {
                    if let Some(back) = matched(flying, answer) {
                        return Some(back);
                    }
                }
                Some(Err(status)) => *lost = Some(CallFailure { broken: true, ..fault(&status) }),
                None => {
                    *lost = Some(CallFailure { code: "STREAM", text: "the stream ended".to_owned(), broken: true });
                }
            }
        }
    }
}

/// Opens a stream. Sends nothing before the first request, because some servers do not answer before that.
fn begin(mut client: GrpcClient, key: Option<&ClientKey>) -> OpenStream {
    let (requests, receiver) = mpsc::channel(ROOM);
    let messages = ClientKey::shown(key, ReceiverStream::new(receiver));
    let call = async move { client.model_stream_infer(messages).await.map(tonic::Response::into_inner) };
    OpenStream { requests, answers: Box::pin(stream::once(call).try_flatten()) }
}

/// Finds the request for this answer: by its mark, otherwise the oldest one.
fn matched(flying: &mut VecDeque<Sent>, answer: ModelStreamInferResponse) -> Option<AnsweredRequest> {
    let at = Instant::now();
    let message = answer.infer_response.unwrap_or_default();
    let number = message.id.parse::<u64>().ok();
    let place = number.and_then(|n| flying.iter().position(|sent| sent.mark.number == n)).unwrap_or(0);
    let sent = flying.remove(place)?;
    let answer = match answer.error_message {
        text if text.is_empty() => Ok(message),
        text => Err(CallFailure { code: "ERROR", text, broken: false }),
    };
    Some(AnsweredRequest { sent, at, answer })
}

fn fault(status: &Status) -> CallFailure {
    // A lost connection is the client's own error and has a cause; an error from the server has none.
    let broken = std::error::Error::source(status).is_some();
    CallFailure { code: name(status.code()), text: status.message().to_owned(), broken }
}

/// gRPC's name for a code.
fn name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
