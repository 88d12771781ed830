//! The body of a response. Its request counts as active until the client has taken the last byte, not only until the connection has.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};

use super::activity::{ActiveRequest, SendingPart};

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    content: ResponseContent,
    /// Active until the connection has taken the whole body. From then on its parts count.
    request: ActiveRequest,
}

/// The body as its service made it.
#[derive(Debug)]
pub(super) enum ResponseContent {
    Infer(tonic::body::Body),
    Router(Body),
}

/// A part of a body on its way to the client. The connection drops it once its bytes are written.
#[derive(Debug)]
pub(crate) struct ResponsePart {
    bytes: Bytes,
    #[allow(dead_code, reason = "only its drop matters")]
    sending: SendingPart,
}

impl ResponseBody {
    pub(super) fn new(content: ResponseContent, request: ActiveRequest) -> ResponseBody {
        ResponseBody { content, request }
    }

    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        match &mut self.content {
            ResponseContent::Infer(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            ResponseContent::Router(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
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
        let frame = ready!(self.poll_content(cx));
        let part = |bytes| ResponsePart { bytes, sending: self.request.sending() };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            ResponseContent::Infer(body) => body.is_end_stream(),
            ResponseContent::Router(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
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
        self.bytes.advance(count);
    }
}
