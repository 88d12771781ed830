//! The first bytes of a connection, within their time: a client that sends nothing, or half of a preface, is not kept. What was read is read
//! once more by the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use crate::config::server::Connections;
use crate::telemetry::ConnectionClosed;

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of the frame that must follow it.
const FRAME_HEAD: usize = 9;

/// Waits for as many bytes as show that a client means to talk. `Err(None)` is a client that has left.
pub(super) async fn read<S: AsyncRead + Unpin>(
    mut stream: S,
    options: &Connections,
) -> Result<ReplayedStream<S>, Option<ConnectionClosed>> {
    let mut head = BytesMut::with_capacity(1024);
    let first = timeout(options.first_byte.0, stream.read_buf(&mut head)).await;
    if first.map_err(|_| ConnectionClosed::FirstByte)?.map_err(|_| None)? == 0 {
        return Err(None);
    }
    let rest = async {
        while is_preface(&head) && stream.read_buf(&mut head).await? > 0 {}
        io::Result::Ok(())
    };
    timeout(options.head.0, rest).await.map_err(|_| ConnectionClosed::Head)?.map_err(|_| None)?;
    Ok(ReplayedStream { head: head.freeze(), stream })
}

/// Whether these bytes may become the beginning of an HTTP/2 connection, and are not yet.
fn is_preface(bytes: &[u8]) -> bool {
    let seen = bytes.iter().zip(PREFACE).all(|(byte, want)| byte == want);
    seen && bytes.len() < PREFACE.len() + FRAME_HEAD
}

/// A stream some of whose bytes were read already.
#[derive(Debug)]
pub(super) struct ReplayedStream<S> {
    head: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplayedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.head.len().min(buf.remaining());
        buf.put_slice(&self.head.split_to(count));
        if !self.head.has_remaining() {
            self.head = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplayedStream<S> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use crate::config::units::Span;

    /// What becomes of a connection whose client sends this and then waits.
    async fn sent(bytes: &[u8]) -> Result<(), Option<ConnectionClosed>> {
        let (mut client, server) = duplex(1024);
        client.write_all(bytes).await.unwrap();
        let moment = Duration::from_millis(20);
        let options = Connections { first_byte: Span(moment), head: Span(moment), ..Connections::default() };
        let mut replay = read(server, &options).await?;
        drop(client);
        let mut all = Vec::new();
        replay.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, bytes);
        Ok(())
    }

    #[tokio::test]
    async fn a_client_that_does_not_begin_is_not_kept() {
        assert_eq!(sent(b"").await, Err(Some(ConnectionClosed::FirstByte)));
        for begun in [&PREFACE[..1], &PREFACE[..10], PREFACE, &[PREFACE, &[0; FRAME_HEAD - 1]].concat()] {
            assert_eq!(sent(begun).await, Err(Some(ConnectionClosed::Head)), "{begun:?}");
        }
        for begun in [&b"G"[..], b"PRINT", b"GET / HTTP/1.1\r\n", &[PREFACE, &[0; FRAME_HEAD]].concat()] {
            assert_eq!(sent(begun).await, Ok(()), "{begun:?}");
        }
    }
}
