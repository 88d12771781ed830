//! Ends a connection whose client takes no byte for a time. A write that waits for the client also keeps the connection from being idle.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;
use crate::telemetry::{ConnectionClosed, Metrics};

/// A stream whose writes fail if the client takes no byte for a time. It is below TLS, where the bytes that the client takes are visible.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
    is_over: bool,
    activity: Activity,
    metrics: Metrics,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, limit: Duration, activity: Activity, metrics: Metrics) -> WriteTimeout<S> {
        WriteTimeout { stream, limit, stalled: None, is_over: false, activity, metrics }
    }

    fn check<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.set_blocked(outcome.is_pending());
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        if !self.is_over {
            let limit = self.limit;
            let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
            ready!(stalled.as_mut().poll(cx));
            self.is_over = true;
            self.metrics.connection_closed(ConnectionClosed::Write);
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(cx, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn closed(metrics: &Metrics) -> bool {
        metrics.encode().contains("sequor_connections_closed_total{reason=\"write\"} 1\n")
    }

    #[tokio::test]
    async fn only_a_client_that_does_not_read_reaches_the_write_timeout() {
        let metrics = Metrics::new(false);
        let (mut client, server) = duplex(16);
        let mut server = WriteTimeout::new(server, Duration::from_secs(3600), Activity::default(), metrics.clone());
        let writes = async {
            server.write_all(&[7; 1000]).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let mut read = Vec::new();
        let (_, count) = tokio::join!(writes, client.read_to_end(&mut read));
        assert_eq!((count.unwrap(), closed(&metrics)), (1000, false));

        let (_client, server) = duplex(16);
        let mut server = WriteTimeout::new(server, Duration::from_millis(20), Activity::default(), metrics.clone());
        for _ in 0..2 {
            assert_eq!(server.write_all(&[7; 1000]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert!(closed(&metrics), "{}", metrics.encode());
    }
}
