//! The body of a response. Its request counts as active, and its bytes against `limits.queued`, until the client has taken them, not only
//! until the connection has.
//!
//! Over HTTP/2 a large body is handed over in pieces, the last byte as a piece of its own. The library takes a piece only when the client's
//! window has room for all before it, so the stream ends with its last byte, and can be reset before.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};

use super::activity::{ActiveRequest, BodyPoll, SendingPart};
use crate::api::peers::Peer;

/// Maximum bytes of a piece.
const PIECE: usize = 16 << 10;

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    content: ResponseContent,
    /// The part of a large body that the connection has not taken.
    rest: Option<(Bytes, Arc<SendingPart>)>,
    sender: ResponseSender,
}

/// The body as its service made it.
#[derive(Debug)]
pub(super) enum ResponseContent {
    Infer(tonic::body::Body),
    Router(Body),
}

/// The connection's side of a response.
#[derive(Debug)]
pub(super) struct ResponseSender {
    /// Active until the connection has taken the whole body. From then on its parts count.
    pub(super) request: ActiveRequest,
    pub(super) peer: Peer,
    /// Whether the body is sent in pieces.
    pub(super) in_pieces: bool,
}

/// A part of a body on its way to the client. The connection drops it once its bytes are written.
#[derive(Debug)]
pub(crate) struct ResponsePart {
    bytes: Bytes,
    held: PartHolder,
}

#[derive(Debug)]
enum PartHolder {
    Whole(SendingPart),
    /// Pieces of one body share its memory.
    Piece(Arc<SendingPart>),
}

impl ResponseBody {
    pub(super) fn new(content: ResponseContent, sender: ResponseSender) -> ResponseBody {
        ResponseBody { content, rest: None, sender }
    }

    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        match &mut self.content {
            ResponseContent::Infer(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            ResponseContent::Router(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn next_part(&mut self, bytes: Bytes) -> ResponsePart {
        let held = self.sender.request.sending(&self.sender.peer, bytes.len());
        if !self.sender.in_pieces || bytes.len() <= PIECE {
            return ResponsePart { bytes, held: PartHolder::Whole(held) };
        }
        self.next_piece(bytes, Arc::new(held))
    }

    fn next_piece(&mut self, mut bytes: Bytes, held: Arc<SendingPart>) -> ResponsePart {
        let piece = bytes.split_to(PIECE.min(bytes.len() - 1).max(1));
        self.rest = (!bytes.is_empty()).then(|| (bytes, Arc::clone(&held)));
        ResponsePart { bytes: piece, held: PartHolder::Piece(held) }
    }
}

type BodyFailure = Box<dyn Error + Send + Sync>;

impl HttpBody for ResponseBody {
    type Data = ResponsePart;
    type Error = BodyFailure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ResponsePart>, BodyFailure>>> {
        let body = &mut *self;
        let part = match body.rest.take() {
            Some((bytes, held)) => body.next_piece(bytes, held),
            None => {
                let Poll::Ready(frame) = body.poll_content(cx) else {
                    body.sender.request.note(BodyPoll::Waits);
                    return Poll::Pending;
                };
                match frame.transpose()?.map(Frame::into_data) {
                    None => return Poll::Ready(None),
                    Some(Ok(bytes)) => body.next_part(bytes),
                    Some(Err(other)) => return Poll::Ready(other.into_trailers().ok().map(|t| Ok(Frame::trailers(t)))),
                }
            }
        };
        body.sender.request.note(BodyPoll::Part);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none()
            && match &self.content {
                ResponseContent::Infer(body) => body.is_end_stream(),
                ResponseContent::Router(body) => body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        // The connection asks before it takes a part.
        match &self.content {
            ResponseContent::Infer(body) => body.size_hint(),
            ResponseContent::Router(body) => body.size_hint(),
        }
    }
}

impl Buf for ResponsePart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        let held = match &self.held {
            PartHolder::Whole(held) => held,
            PartHolder::Piece(held) => held,
        };
        held.progressed();
        self.bytes.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;
    use crate::api::queued::QueuedBytes;
    use crate::server::activity::Activity;
    use crate::telemetry::kinds::Gauge;

    fn body(activity: &Activity, bytes: usize, in_pieces: bool) -> ResponseBody {
        let content = ResponseContent::Router(Body::from((0..bytes).map(|n| (n % 251) as u8).collect::<Vec<_>>()));
        ResponseBody::new(content, ResponseSender { request: activity.begin(), peer: Peer::default(), in_pieces })
    }

    fn parts(body: &mut ResponseBody) -> Vec<ResponsePart> {
        let mut parts = Vec::new();
        while !body.is_end_stream() {
            let frame = body.frame().now_or_never().expect("ready").expect("a frame").expect("no error");
            parts.push(frame.into_data().expect("data"));
        }
        parts
    }

    #[test]
    fn a_body_in_pieces_has_the_same_bytes_and_ends_with_one_byte() {
        for size in [1, 2, PIECE - 1, PIECE, PIECE + 1, PIECE + 2, 2 * PIECE, 3 * PIECE + 5] {
            for in_pieces in [true, false] {
                let mut body = body(&Activity::default(), size, in_pieces);
                let parts = parts(&mut body);
                let sizes: Vec<usize> = parts.iter().map(Buf::remaining).collect();
                match in_pieces && size > PIECE {
                    true => assert!(sizes.iter().all(|n| *n <= PIECE) && sizes.ends_with(&[1]), "{sizes:?}"),
                    false => assert_eq!(sizes, [size]),
                }
                let whole: Vec<u8> = parts.iter().flat_map(|part| part.chunk().to_vec()).collect();
                assert_eq!(whole, (0..size).map(|n| (n % 251) as u8).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_body_counts_until_its_last_part_is_dropped() {
        let queued = QueuedBytes::new(10, Gauge::default());
        let activity = Activity::new(Some(queued.clone()));
        let size = 2 * PIECE + 5;
        let mut body = body(&activity, size, true);
        assert_eq!(queued.answer_bytes(), 0);
        let mut parts = parts(&mut body);
        drop(body);
        let last = parts.pop().expect("a part");
        drop(parts);
        assert_eq!(queued.answer_bytes(), size as u64, "the last piece keeps the memory of all");
        assert!(!activity.is_idle() && !activity.is_idle());
        drop(last);
        assert_eq!(queued.answer_bytes(), 0);
        assert!(!activity.is_idle() && activity.is_idle());
    }
}
