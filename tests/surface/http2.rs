//! A client that writes and reads the frames of HTTP/2 itself, and that opens a stream's window only when a test says so.

use std::net::SocketAddr;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The first byte of the headers of an answer with status 200.
pub(crate) const OK: u8 = 0x88;

pub(crate) struct Http2Client {
    stream: TcpStream,
    next: u32,
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) ends: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl Http2Client {
    /// Connects with this window for every stream. The window of the connection is large.
    pub(crate) async fn connect(address: SocketAddr, window: u32) -> Http2Client {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = Http2Client { stream, next: 1 };
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let large = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        client.stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &settings), &large].concat()).await.unwrap();
        // The server's windows are as its settings say once it has the acknowledgement, which the ping shows.
        while !matches!(client.read().await.unwrap(), (SETTINGS, 0, ..)) {}
        let acknowledged = [frame(SETTINGS, ACK, 0, &[]), frame(PING, 0, 0, &[0; 8])].concat();
        client.stream.write_all(&acknowledged).await.unwrap();
        while !matches!(client.read().await.unwrap(), (PING, ACK, ..)) {}
        client
    }

    /// Kind, flags, stream and payload of the next frame.
    async fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [_, _, _, kind, flags, number @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((kind, flags, u32::from_be_bytes(number), payload))
    }

    /// Sends a POST with this body. Returns the number of its stream.
    pub(crate) async fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u32 {
        let id = self.begin(path, headers, body).await;
        self.stream.write_all(&frame(DATA, END_STREAM, id, b"")).await.unwrap();
        id
    }

    /// Sends a POST whose body only begins with this.
    pub(crate) async fn begin(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u32 {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let mut block = [&[0x83, 0x86, 0x04][..], &text(path), &[0x01], &text("localhost")].concat();
        for (name, value) in headers {
            block.extend([&[0][..], &text(name), &text(value)].concat());
        }
        let id = self.next;
        self.next += 2;
        let mut bytes = frame(HEADERS, END_HEADERS, id, &block);
        for part in body.chunks(16 << 10) {
            bytes.extend(frame(DATA, 0, id, part));
        }
        self.stream.write_all(&bytes).await.unwrap();
        id
    }

    /// Calls a method of gRPC with one message.
    pub(crate) async fn call(&mut self, path: &str, message: &impl Message) -> u32 {
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let headers = [("content-type", "application/grpc"), ("te", "trailers")];
        self.post(path, &headers, &[&[0][..], &length, &message].concat()).await
    }

    /// Lets the server send this many bytes on a stream.
    pub(crate) async fn open(&mut self, stream: u32, bytes: u32) {
        self.stream.write_all(&frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())).await.unwrap();
    }

    /// The next frame of a stream; `None` at the end of the connection. Pings are answered meanwhile.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let (kind, flags, stream, payload) = self.read().await?;
            match kind {
                PING if flags & ACK == 0 => self.stream.write_all(&frame(PING, ACK, 0, &payload)).await.ok()?,
                DATA | HEADERS | RESET => {
                    let ends = kind != RESET && flags & END_STREAM != 0;
                    return Some(Frame { kind, stream, payload, ends });
                }
                _ => {}
            }
        }
    }

    /// The next frame of this stream. Frames of other streams are dropped.
    pub(crate) async fn next_of(&mut self, stream: u32) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.stream == stream {
                return Some(frame);
            }
        }
    }

    /// The bytes of this stream's body until its end; `None` if the server cuts it.
    pub(crate) async fn body(&mut self, stream: u32) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let frame = self.next_of(stream).await?;
            match frame.kind {
                DATA => body.extend(frame.payload),
                RESET => return None,
                _ => {}
            }
            if frame.ends {
                return Some(body);
            }
        }
    }
}
