//! The body of a request while its bytes arrive. Incomplete data counts against `limits.queued`, and a body that stalls or trickles is given
//! up.
//!
//! A whole body, or a whole message of a stream, no longer counts here: the surface that reads it counts it. The message of a single gRPC
//! call counts until its body ends, because the surface gets it only then.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::api::peers::Peer;
use crate::api::queued::{QueuedBytes, QueuedBytesPermit};
use crate::api::{BodyError, Code, Status};
use crate::config::units::Span;
use crate::error::ExceededLimit;

/// A whole message up to this size does not count while its call waits for the end of its body.
const SMALL_MESSAGE: u64 = 64 << 10;

/// Minimum bytes of an incomplete body or message a second, on average, once it has taken longer than `connections.body`.
const MIN_RATE: u64 = 1 << 10;

/// The limits for bodies on a listener.
#[derive(Debug, Clone)]
pub(super) struct BodyLimits {
    /// The counter of queued bytes; `None` counts nothing.
    pub(super) queued: Option<QueuedBytes>,
    /// Maximum bytes of one gRPC message, by the length in its head.
    pub(super) message: usize,
    /// The setting of that maximum, or the kind of message, for the refusal.
    pub(super) limited_by: &'static str,
    /// Maximum time between two reads.
    pub(super) stall: Duration,
}

/// The kind of a body, which decides where the client may pause without a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// One message. The client may not pause.
    Whole,
    /// One gRPC message. Further messages are ignored.
    Message,
    /// gRPC messages. The client may pause between them for any time.
    Messages,
}

/// A body that is being received.
#[derive(Debug)]
pub(super) struct RequestBody<B = Incoming> {
    inner: B,
    kind: BodyKind,
    framing: Framing,
    /// Bytes of the body so far.
    received: u64,
    limits: BodyLimits,
    peer: Peer,
    permit: Option<QueuedBytesPermit>,
    /// The limit that ends the body, after the whole messages that arrived before.
    exceeded: Option<ExceededLimit>,
    stalled: Option<Pin<Box<Sleep>>>,
    /// When the client was first waited for, within this body or this message of a stream.
    waiting_since: Option<Instant>,
    /// Ends the body when it completes, even within a message.
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<B> RequestBody<B> {
    pub(super) fn new(inner: B, kind: BodyKind, limits: BodyLimits, peer: Peer) -> RequestBody<B> {
        let (framing, permit) = (Framing::default(), None);
        RequestBody {
            inner,
            kind,
            framing,
            received: 0,
            limits,
            peer,
            permit,
            exceeded: None,
            stalled: None,
            waiting_since: None,
            closing: None,
        }
    }

    /// Ends the body when the server closes its connections, so that an idle stream does not delay the stop.
    pub(super) fn until(self, closing: CancellationToken) -> RequestBody<B> {
        RequestBody { closing: Some(Box::pin(closing.cancelled_owned())), ..self }
    }

    fn is_closing(&mut self, cx: &mut Context<'_>) -> bool {
        self.closing.as_mut().is_some_and(|closing| closing.as_mut().poll(cx).is_ready())
    }

    /// Counts arrived bytes. `ended`: whether they are the last ones.
    fn count(&mut self, data: &[u8], ended: bool) -> Result<(), ExceededLimit> {
        self.received = self.received.saturating_add(data.len() as u64);
        let limit = self.limits.message;
        let held = match self.kind {
            BodyKind::Whole => self.received,
            BodyKind::Messages => self.framing.advance(data, limit as u64),
            BodyKind::Message => match self.framing.advance(data, limit as u64) {
                0 if self.received <= SMALL_MESSAGE => 0,
                _ => self.received,
            },
        };
        if self.framing.longest > limit as u64 {
            let (bytes, limited_by) = (self.framing.longest, self.limits.limited_by);
            return Err(ExceededLimit::MessageBytes { bytes, limit, limited_by });
        }
        match &self.limits.queued {
            Some(queued) if held > 0 && !ended => {
                self.permit.get_or_insert_with(|| queued.permit(&self.peer)).resize(held)
            }
            _ => {
                self.permit = None;
                Ok(())
            }
        }
    }

    /// Completes once the client has stalled for too long. A pause between messages does not count.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.kind == BodyKind::Messages && self.framing.unfinished == 0 {
            (self.stalled, self.waiting_since) = (None, None);
            return Poll::Pending;
        }
        let stall = self.limits.stall;
        self.waiting_since.get_or_insert_with(Instant::now);
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        std::task::ready!(stalled.as_mut().poll(cx));
        let text = format!("no byte of the request's body came within {} (connections.body)", Span(stall));
        Poll::Ready(Status::new(Code::Cancelled, "bad_input", text))
    }

    /// Refuses a body that arrives byte by byte. It would hold its memory and its place among the requests for hours.
    fn check_rate(&mut self, now: Instant) -> Result<(), Status> {
        let Some(since) = self.waiting_since else { return Ok(()) };
        let bytes = match self.kind {
            BodyKind::Whole | BodyKind::Message => self.received,
            BodyKind::Messages => self.framing.unfinished,
        };
        if bytes == 0 {
            self.waiting_since = None;
            return Ok(());
        }
        let stall = self.limits.stall;
        if now.saturating_duration_since(since) <= stall + Duration::from_secs(bytes / MIN_RATE) {
            return Ok(());
        }
        let text = format!(
            "the request's body came at less than {MIN_RATE} bytes a second for longer than {} (connections.body)",
            Span(stall)
        );
        Err(Status::new(Code::Cancelled, "bad_input", text))
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.get_mut();
        let ends = |exceeded: ExceededLimit| Poll::Ready(Some(Err(Box::new(BodyError::from(exceeded)) as BoxError)));
        if let Some(exceeded) = body.exceeded.take() {
            return ends(exceeded);
        }
        let Poll::Ready(frame) = Pin::new(&mut body.inner).poll_frame(cx) else {
            if body.is_closing(cx) {
                return Poll::Ready(None);
            }
            return body.poll_stalled(cx).map(|status| Some(Err(Box::new(BodyError::from(status)) as BoxError)));
        };
        body.stalled = None;
        let Some(frame) = frame.transpose().map_err(Into::into)? else {
            body.permit = None;
            return Poll::Ready(None);
        };
        if let Some(data) = frame.data_ref() {
            let ended = body.inner.is_end_stream();
            if let Err(exceeded) = body.count(data, ended) {
                // Pass on the whole messages before it, so that they are answered.
                let whole = data.get(..body.framing.whole).filter(|whole| !whole.is_empty());
                let Some(whole) = whole.filter(|_| body.kind == BodyKind::Messages) else { return ends(exceeded) };
                body.exceeded = Some(exceeded);
                return Poll::Ready(Some(Ok(Frame::data(data.slice_ref(whole)))));
            }
            if !ended
                && body.waiting_since.is_some()
                && let Err(status) = body.check_rate(Instant::now())
            {
                return Poll::Ready(Some(Err(Box::new(BodyError::from(status)))));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.exceeded.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.exceeded.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

/// The progress within the current message.
#[derive(Debug, Default)]
struct Framing {
    unfinished: u64,
    /// Bytes of a message's head: a flag and its length.
    head: [u8; 5],
    head_len: usize,
    /// Bytes of the message that have not arrived yet.
    left: u64,
    /// Size of the longest message whose head has arrived.
    longest: u64,
    /// Length of the part of the last bytes that ends with the last whole message.
    whole: usize,
}

impl Framing {
    fn add(&mut self, bytes: usize) -> u64 {
        self.unfinished = self.unfinished.saturating_add(bytes as u64);
        self.unfinished
    }

    /// Consumes bytes of messages. Returns the number of bytes of the incomplete message. Stops at a message that is larger than the limit.
    fn advance(&mut self, bytes: &[u8], limit: u64) -> u64 {
        let mut data = bytes;
        self.whole = 0;
        while !data.is_empty() {
            if self.left > 0 {
                let (now, rest) = data.split_at(data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)));
                self.left -= now.len() as u64;
                self.add(now.len());
                data = rest;
            } else if let Some(((byte, rest), place)) = data.split_first().zip(self.head.get_mut(self.head_len)) {
                *place = *byte;
                self.head_len += 1;
                self.add(1);
                data = rest;
            }
            if self.head_len == self.head.len() {
                let [_, length @ ..] = self.head;
                (self.left, self.head_len) = (u64::from(u32::from_be_bytes(length)), 0);
                self.longest = self.longest.max(self.left);
                if self.left > limit {
                    break;
                }
            } else if self.head_len > 0 {
                continue;
            }
            if self.left == 0 {
                (self.unfinished, self.whole) = (0, bytes.len() - data.len());
            }
        }
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt;
    use http_body_util::StreamBody;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;
    use crate::telemetry::kinds::Gauge;

    fn message(length: usize) -> Vec<u8> {
        [&[0][..], &u32::try_from(length).unwrap().to_be_bytes(), &vec![7; length]].concat()
    }

    #[test]
    fn messages_are_framed_correctly_for_any_chunk_size() {
        let bytes = [message(3), message(0), message(10), message(2)[..6].to_vec()].concat();
        for size in 1..bytes.len() {
            let mut framing = Framing::default();
            let mut last = 0;
            for part in bytes.chunks(size) {
                last = framing.advance(part, u64::MAX);
                assert!(last <= 15);
            }
            assert_eq!(last, 6, "{size}");
        }
        let mut framing = Framing::default();
        assert_eq!(framing.advance(&message(3), 9), 0);
        assert_eq!((framing.advance(&[0], 9), framing.advance(&[0, 0, 0, 9, 1], 9)), (1, 6));
    }

    const STALL: Duration = Duration::from_millis(20);

    type Sender = tokio::sync::mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

    fn body(
        kind: BodyKind,
        limit: u64,
    ) -> (Sender, Gauge, RequestBody<impl HttpBody<Data = Bytes, Error = BoxError> + Unpin>) {
        let (sender, frames) = tokio::sync::mpsc::channel(8);
        let shown = Gauge::default();
        let limits = BodyLimits {
            queued: Some(QueuedBytes::new(limit, shown.clone())),
            message: 200,
            limited_by: "",
            stall: STALL,
        };
        (sender, shown, RequestBody::new(StreamBody::new(ReceiverStream::new(frames)), kind, limits, Peer::default()))
    }

    async fn send(sender: &Sender, bytes: &[u8]) {
        sender.send(Ok(Frame::data(Bytes::copy_from_slice(bytes)))).await.unwrap();
    }

    async fn code(body: &mut (impl HttpBody<Data = Bytes, Error = BoxError> + Unpin)) -> Option<tonic::Code> {
        let error = body.frame().await?.err()?;
        Some(BodyError::status_of(&*error).unwrap().code.grpc())
    }

    #[tokio::test]
    async fn incomplete_messages_are_counted_and_refused_beyond_the_limit() {
        let (sender, shown, mut whole) = body(BodyKind::Whole, 100);
        for count in [40, 80] {
            send(&sender, &[1; 40]).await;
            whole.frame().await.unwrap().unwrap();
            assert_eq!(shown.get(), count);
        }
        send(&sender, &[1; 40]).await;
        assert_eq!(code(&mut whole).await, Some(tonic::Code::Unavailable));
        drop(whole);
        assert_eq!(shown.get(), 0);
        let (sender, shown, mut messages) = body(BodyKind::Messages, 100);
        send(&sender, &[&message(90)[..], &message(40)[..10]].concat()).await;
        messages.frame().await.unwrap().unwrap();
        assert_eq!(shown.get(), 10);
        send(&sender, &message(40)[10..]).await;
        messages.frame().await.unwrap().unwrap();
        assert_eq!(shown.get(), 0);
    }

    #[tokio::test]
    async fn whole_messages_before_one_that_is_refused_are_handed_on() {
        // A message beyond the limit, in part and whole, and a message for which the queue has no room.
        let refused =
            [message(201)[..5].to_vec(), message(201)[..9].to_vec(), message(201), message(150)[..120].to_vec()];
        for (n, last) in refused.into_iter().enumerate() {
            let whole = [message(20), message(0), message(30)].concat();
            let (sender, _, mut messages) = body(BodyKind::Messages, 100);
            // The first message begins in an earlier frame.
            send(&sender, &whole[..7]).await;
            assert_eq!(messages.frame().await.unwrap().unwrap().into_data().unwrap(), whole[..7]);
            send(&sender, &[&whole[7..], &last[..]].concat()).await;
            drop(sender);
            assert_eq!(messages.frame().await.unwrap().unwrap().into_data().unwrap(), whole[7..], "{n}");
            assert!(!messages.is_end_stream(), "{n}");
            assert!(code(&mut messages).await.is_some(), "{n}");
        }
    }

    #[tokio::test]
    async fn a_body_that_stops_is_given_up_and_a_stream_may_rest_between_messages() {
        for kind in [BodyKind::Whole, BodyKind::Message] {
            let (sender, _, mut body) = body(kind, 100);
            assert_eq!(code(&mut body).await, Some(tonic::Code::Cancelled), "{kind:?}");
            drop(sender);
        }
        let (sender, _, mut messages) = body(BodyKind::Messages, 100);
        let longer = tokio::time::timeout(STALL * 3, messages.frame());
        assert!(longer.await.is_err());
        send(&sender, &message(9)[..7]).await;
        messages.frame().await.unwrap().unwrap();
        assert_eq!(code(&mut messages).await, Some(tonic::Code::Cancelled));
    }

    #[tokio::test]
    async fn a_client_that_was_waited_for_is_given_up_at_its_next_byte_if_it_was_too_slow() {
        for kind in [BodyKind::Whole, BodyKind::Message, BodyKind::Messages] {
            let (sender, _, mut body) = body(kind, 1000);
            send(&sender, &message(100)[..9]).await;
            body.frame().await.unwrap().unwrap();
            assert!(body.frame().now_or_never().is_none(), "{kind:?}");
            // The client has taken a minute.
            body.waiting_since = body.waiting_since.and_then(|since| since.checked_sub(Duration::from_secs(60)));
            assert!(body.waiting_since.is_some(), "{kind:?}");
            send(&sender, &[7]).await;
            assert_eq!(code(&mut body).await, Some(tonic::Code::Cancelled), "{kind:?}");
        }
    }

    #[test]
    fn a_body_that_arrives_byte_by_byte_is_given_up_and_messages_of_a_stream_each_have_their_time() {
        let began = Instant::now();
        let at = |kind, received: &[u8], after: Duration| {
            let (_, _, mut body) = body(kind, 1000);
            body.count(received, false).unwrap();
            body.waiting_since = Some(began);
            body.check_rate(began + after).map_err(|status| status.code.grpc())
        };
        let second = Duration::from_secs(1);
        for kind in [BodyKind::Whole, BodyKind::Message, BodyKind::Messages] {
            assert_eq!(at(kind, &message(100)[..9], STALL), Ok(()), "{kind:?}");
            assert_eq!(at(kind, &message(100)[..9], second), Err(tonic::Code::Cancelled), "{kind:?}");
        }
        let (_, _, mut large) = body(BodyKind::Whole, 1 << 20);
        large.count(&[0; 10 << 10], false).unwrap();
        large.waiting_since = Some(began);
        assert!(large.check_rate(began + second * 10).is_ok(), "10 KiB in 10 s");
        assert!(large.check_rate(began + second * 11).is_err());
        assert_eq!(at(BodyKind::Messages, &message(100), second), Ok(()), "no message has begun");
    }
}
