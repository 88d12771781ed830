//! Framing of the inference calls' messages: a codec that leaves decoding to the API handler, and decompression before it.
//!
//! Messages are decompressed here and not by tonic, for three reasons:
//! - the decompressed bytes count against `limits.queued` as they grow;
//! - a large message is decompressed off the connection's task;
//! - the request keeps its turn on the connection.
//!
//! A unary call takes its turn once its body has ended, as it does without compression. So a client that leaves a call open does not block
//! the other calls of its connection.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderName, Request};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prost::Message;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::compress::{InflateError, Packing};
use super::order::Turn;
use super::queued::QueuedBytesPermit;
use super::refusal::BAD_INPUT;
use super::{Api, Code, RequestContext, Status};
use crate::config::units::human;
use crate::error::Failure;

/// Bytes of the flag and length in front of each message.
const HEAD: usize = 5;
/// The header that names the compression of messages.
static ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Maximum bytes of a message with only names and settings, uncompressed. The library decodes such a message before it is counted, and an
/// empty text takes 2 bytes in it and 24 in memory.
pub(crate) const SHORT_MESSAGE: usize = 128 << 10;

// === messages stay bytes ===

/// Bytes of the two buffers of a call with one message. Most messages fit, and larger ones take a larger buffer. Tonic's default is 8 KiB,
/// which costs the allocator several times as much.
const UNARY_BUFFER: usize = 768;
/// Bytes of a message after which tonic passes it on in parts: its default.
const YIELD: usize = 32 << 10;

/// Encodes answers; requests stay bytes.
#[derive(Debug)]
pub(crate) struct RawCodec<T> {
    buffers: BufferSettings,
    encodes: PhantomData<T>,
}

impl<T> RawCodec<T> {
    pub(crate) fn new(kind: CallKind) -> Self {
        let buffers = match kind {
            CallKind::Unary => BufferSettings::new(UNARY_BUFFER, YIELD),
            CallKind::Stream => BufferSettings::default(),
        };
        RawCodec { buffers, encodes: PhantomData }
    }
}

#[derive(Debug)]
pub(crate) struct RawDecoder(BufferSettings);

impl<T: Message + Send + 'static> Codec for RawCodec<T> {
    type Encode = T;
    type Decode = Bytes;
    type Encoder = ProstEncoder<T>;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::new(self.buffers)
    }

    fn decoder(&mut self) -> RawDecoder {
        RawDecoder(self.buffers)
    }
}

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0
    }
}

/// Refuses an answer whose tensors exceed a message's maximum: the length is a 32-bit number.
pub(crate) fn check_size(bytes: usize) -> Result<(), Status> {
    if u32::try_from(bytes).is_ok() {
        return Ok(());
    }
    let bytes = human(bytes as u64);
    let text = format!("the answer has {bytes}; a message of gRPC has less than 4 GiB. Ask for fewer outputs");
    Err(Status::new(Code::TooLarge, BAD_INPUT, text))
}

// === compressed messages ===

/// The accounting of a decompressed message.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// The permit that counts its bytes against `limits.queued`, or the refusal.
    pub(crate) permit: Result<QueuedBytesPermit, Failure>,
    /// `None` if the message is refused or belongs to a stream.
    pub(crate) turn: Option<Turn>,
}

impl Unpacked {
    /// Takes the turn of a unary call whose body has arrived completely, if every earlier request is admitted.
    pub(crate) fn now(api: &Api, context: &RequestContext, message: usize) -> Option<Unpacked> {
        let turn = context.order.try_turn()?;
        Some(match api.body_permit(context, message) {
            Ok(permit) => Unpacked { permit: Ok(permit), turn: Some(turn) },
            Err(failure) => Unpacked { permit: Err(failure), turn: None },
        })
    }

    /// Waits for the turn of a unary call whose body has arrived completely. The permit counts the bytes as received.
    pub(crate) async fn in_turn(api: &Api, context: &RequestContext, message: usize) -> Unpacked {
        match api.turn(context, message).await {
            Ok((turn, permit)) => Unpacked { permit: Ok(permit), turn: Some(turn) },
            Err(failure) => Unpacked { permit: Err(failure), turn: None },
        }
    }
}

/// Decompressed messages of a call that are not read yet, in order. `None` for a call without compression.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnpackedQueue(Option<Arc<Mutex<VecDeque<Unpacked>>>>);

impl UnpackedQueue {
    pub(crate) fn pop(&self) -> Option<Unpacked> {
        self.0.as_ref()?.lock().pop_front()
    }
}

/// Whether a call has one message or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// One message. It takes its turn on its connection once the body has ended.
    Unary,
    /// Many messages, in the order of the stream.
    Stream,
}

/// The body of a call. If the call names a supported compression, its messages are decompressed.
pub(crate) fn unpack<B>(
    api: &Api,
    context: &RequestContext,
    kind: CallKind,
    request: Request<B>,
) -> (Request<Body>, UnpackedQueue)
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let (mut parts, body) = request.into_parts();
    let body = Body::new(body);
    let Some(packing) = packing(&parts.headers) else {
        return (Request::from_parts(parts, body), UnpackedQueue::default());
    };
    let ready = Arc::<Mutex<VecDeque<Unpacked>>>::default();
    let queue = UnpackedQueue(Some(Arc::clone(&ready)));
    parts.headers.remove(&ENCODING);
    let state = Unpacking {
        api: api.clone(),
        context: context.clone(),
        packing,
        kind,
        body: Some(body),
        received: BytesMut::new(),
        held: None,
        ready: VecDeque::new(),
        messages: ready,
        is_plain: false,
    };
    let frames = futures_util::stream::unfold(state, |mut state| async move { Some((state.next().await?, state)) });
    (Request::from_parts(parts, Body::from_stream(frames)), queue)
}

fn packing(headers: &HeaderMap) -> Option<Packing> {
    headers.get(&ENCODING)?.to_str().ok().and_then(Packing::of_encoding)
}

struct Unpacking {
    api: Api,
    context: RequestContext,
    packing: Packing,
    kind: CallKind,
    /// `None` once the body has ended.
    body: Option<Body>,
    /// Received bytes that are not passed on yet.
    received: BytesMut,
    /// The message of a unary call, held until the body ends.
    held: Option<PackedMessage>,
    /// The messages to pass on.
    ready: VecDeque<Bytes>,
    /// The same messages for their handler.
    messages: Arc<Mutex<VecDeque<Unpacked>>>,
    /// Whether the rest is passed on unchanged. It is malformed or too long, and tonic reports that.
    is_plain: bool,
}

/// A message that was received completely.
struct PackedMessage {
    is_packed: bool,
    bytes: Bytes,
}

impl Unpacking {
    async fn next(&mut self) -> Option<Result<Bytes, tonic::Status>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(Ok(bytes));
            }
            if let Some(message) = self.take_message() {
                match self.kind {
                    CallKind::Stream => {
                        let permit = self.api.body_permit(&self.context, message.bytes.len());
                        if let Err(status) = self.unpack(message, permit, None).await {
                            return Some(Err(status));
                        }
                    }
                    // A unary call has one message. Further ones are read and ignored.
                    CallKind::Unary if self.held.is_none() => self.held = Some(message),
                    CallKind::Unary => {}
                }
                continue;
            }
            let Some(body) = &mut self.body else {
                let message = self.held.take()?;
                let Unpacked { permit, turn } = Unpacked::in_turn(&self.api, &self.context, message.bytes.len()).await;
                if let Err(status) = self.unpack(message, permit, turn).await {
                    return Some(Err(status));
                }
                continue;
            };
            match body.frame().await {
                None => {
                    self.body = None;
                    // The body ended within a message.
                    if !self.received.is_empty() {
                        self.pass_on();
                    }
                }
                Some(Err(error)) => return Some(Err(tonic::Status::from_error(Box::new(error)))),
                Some(Ok(frame)) => {
                    // Trailers of a request are ignored.
                    if let Ok(data) = frame.into_data() {
                        self.received.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// Takes the first completely received message.
    fn take_message(&mut self) -> Option<PackedMessage> {
        let (head, rest) = self.received.split_first_chunk::<HEAD>()?;
        let [flag, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if self.is_plain || flag > 1 || length > self.api.limits().request() {
            self.is_plain = true;
            self.pass_on();
            return None;
        }
        if rest.len() < length {
            return None;
        }
        self.received.advance(HEAD);
        Some(PackedMessage { is_packed: flag == 1, bytes: self.received.split_to(length).freeze() })
    }

    fn pass_on(&mut self) {
        self.is_plain = true;
        // For a unary call, tonic reads only these bytes.
        self.held = None;
        self.ready.push_back(self.received.split().freeze());
    }

    /// Decompresses a message and passes it on. `permit` counts the bytes as received.
    async fn unpack(
        &mut self,
        PackedMessage { is_packed, bytes }: PackedMessage,
        permit: Result<QueuedBytesPermit, Failure>,
        turn: Option<Turn>,
    ) -> Result<(), tonic::Status> {
        let limit = self.api.limits().request();
        let (message, permit) = match permit {
            Err(failure) => (Bytes::new(), Err(failure)),
            Ok(permit) if !is_packed => (bytes, Ok(permit)),
            Ok(permit) => match self.packing.inflate(bytes, limit, permit).await {
                Ok((message, permit)) => (message, Ok(permit)),
                Err(InflateError::Refused(failure)) => (Bytes::new(), Err(failure)),
                Err(InflateError::TooLarge) => {
                    return Err(tonic::Status::resource_exhausted(format!(
                        "Error decompressing: size limit, of {limit} bytes, exceeded while decompressing message"
                    )));
                }
                Err(InflateError::Broken(why)) => {
                    return Err(tonic::Status::internal(format!("Error decompressing: {why}, while sending request")));
                }
            },
        };
        let mut head = BytesMut::with_capacity(HEAD);
        head.extend_from_slice(&[0]);
        head.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.messages.lock().push_back(Unpacked { permit, turn });
        self.ready.extend([head.freeze(), message]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_longer_than_its_length_prefix_allows_is_refused() {
        let most = u32::MAX as usize;
        assert_eq!(check_size(most), Ok(()));
        assert_eq!(check_size(most + 1).map_err(|status| status.code), Err(Code::TooLarge));
    }
}
