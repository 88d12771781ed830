//! Reads the first bytes of a connection, within their timeout. A client that sends nothing or half a preface is disconnected. The
//! connection then reads these bytes again (`metered`).

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::config::server::Connections;
use crate::telemetry::ConnectionClosed;

/// The preface of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of the frame that must follow the preface.
const FRAME_HEAD: usize = 9;

/// Reads enough bytes to see that a client uses HTTP. `Err(None)`: the client has left.
pub(super) async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    options: &Connections,
) -> Result<Bytes, Option<ConnectionClosed>> {
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
    Ok(head.freeze())
}

/// Whether these bytes are an incomplete beginning of an HTTP/2 connection.
fn is_preface(bytes: &[u8]) -> bool {
    let seen = bytes.iter().zip(PREFACE).all(|(byte, want)| byte == want);
    seen && bytes.len() < PREFACE.len() + FRAME_HEAD
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use crate::api::message_meter::MessageMeter;
    use crate::config::units::Span;
    use crate::server::metered::MeteredStream;

    /// The result for a client that sends these bytes and then waits.
    async fn sent(bytes: &[u8]) -> Result<(), Option<ConnectionClosed>> {
        let (mut client, mut server) = duplex(1024);
        client.write_all(bytes).await.unwrap();
        let moment = Duration::from_millis(20);
        let options = Connections { first_byte: Span(moment), head: Span(moment), ..Connections::default() };
        let head = read(&mut server, &options).await?;
        drop(client);
        let mut all = Vec::new();
        MeteredStream::new(head, server, MessageMeter::default(), moment).read_to_end(&mut all).await.unwrap();
        assert_eq!(all, bytes);
        Ok(())
    }

    #[tokio::test]
    async fn a_client_that_does_not_send_its_first_bytes_is_disconnected() {
        assert_eq!(sent(b"").await, Err(Some(ConnectionClosed::FirstByte)));
        for begun in [&PREFACE[..1], &PREFACE[..10], PREFACE, &[PREFACE, &[0; FRAME_HEAD - 1]].concat()] {
            assert_eq!(sent(begun).await, Err(Some(ConnectionClosed::Head)), "{begun:?}");
        }
        for begun in [&b"G"[..], b"PRINT", b"GET / HTTP/1.1\r\n", &[PREFACE, &[0; FRAME_HEAD]].concat()] {
            assert_eq!(sent(begun).await, Ok(()), "{begun:?}");
        }
    }
}
