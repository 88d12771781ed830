//! The stream of a connection. It begins with the bytes that `first_bytes` has read. After an upgrade, it counts the bytes of an incomplete
//! message, and ends the connection if the message stalls. `request_body` counts the bodies of HTTP requests.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::api::message_meter::MessageMeter;
use crate::api::{Code, Status};
use crate::config::units::Span;

/// A stream whose reads are added to a meter.
#[derive(Debug)]
pub(super) struct MeteredStream<S> {
    /// Bytes that were already read from the stream, to be read again.
    head: Bytes,
    stream: S,
    meter: MessageMeter,
    /// Maximum time between two reads of one message.
    stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> MeteredStream<S> {
    pub(super) fn new(head: Bytes, stream: S, meter: MessageMeter, stall: Duration) -> MeteredStream<S> {
        MeteredStream { head, stream, meter, stall, stalled: None }
    }

    /// Ready with an error if the client paused too long within a message.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !self.meter.is_unfinished() {
            self.stalled = None;
            return Poll::Pending;
        }
        let stall = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        ready!(stalled.as_mut().poll(cx));
        let text = format!("no byte of the message came within {} (connections.body)", Span(stall));
        self.meter.refuse(Status::new(Code::Cancelled, "bad_input", text));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Unpin> MeteredStream<S> {
    fn poll_uncounted(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.head.len().min(buf.remaining());
        buf.put_slice(&self.head.split_to(count));
        if self.head.is_empty() {
            // An empty slice would keep the whole buffer in memory.
            self.head = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.meter.counts() {
            return self.poll_uncounted(cx, buf);
        }
        let before = buf.filled().len();
        let Poll::Ready(read) = self.poll_uncounted(cx, buf) else {
            return self.poll_stalled(cx).map(Err);
        };
        self.stalled = None;
        let fits = self.meter.add(buf.filled().len() - before);
        Poll::Ready(read.and_then(|()| if fits { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
