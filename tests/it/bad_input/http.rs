//! Tests invalid or contradictory HTTP/1.1 requests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::pieces::{Piece, bytes};
use super::{Rig, begins, cases, same};

/// A timeout that only a hang reaches.
const HANGS: Duration = Duration::from_secs(180);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    what: String,
    #[serde(default = "post")]
    verb: String,
    #[serde(default = "infer")]
    path: String,
    #[serde(default)]
    head: Vec<Piece>,
    /// Number of meaningless header lines.
    #[serde(default)]
    lines: usize,
    body: Vec<Piece>,
    /// Whether the first piece of the body is JSON, and a header has its length.
    #[serde(default)]
    json_length: bool,
    /// Whether the client closes its sending side.
    #[serde(default)]
    ends: bool,
    status: u16,
    /// Whether the answer has no text, because the connection itself made it.
    #[serde(default)]
    bare: bool,
    reason: Option<String>,
    text: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

fn infer() -> String {
    "/v2/models/sum/infer".to_owned()
}

/// An answer; status 0 means that there was none.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) reason: Option<String>,
    body: String,
}

impl Answer {
    /// The error text in the body.
    pub(super) fn error(&self) -> Result<String, String> {
        let json: Value = serde_json::from_str(&self.body).map_err(|e| format!("{e}: {self:?}"))?;
        Ok(json["error"].as_str().unwrap_or_default().to_owned())
    }
}

/// Sends bytes unchanged and reads the first answer.
pub(super) fn ask(address: SocketAddr, sent: &[u8], ends: bool) -> Result<Answer, String> {
    let mut stream = TcpStream::connect(address).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(HANGS)).map_err(|e| e.to_string())?;
    stream.set_write_timeout(Some(HANGS)).map_err(|e| e.to_string())?;
    // The server may answer and stop reading before the end.
    let written = stream.write_all(sent);
    if ends && written.is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Err("no answer".to_owned()),
            Err(_) => break,
        }
        if let Some(answer) = parse(&answer, false) {
            return Ok(answer);
        }
    }
    Ok(parse(&answer, true).unwrap_or(Answer { status: 0, reason: None, body: String::new() }))
}

/// The first answer, once it is complete.
fn parse(bytes: &[u8], is_all: bool) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let line = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length: usize = line("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    if body.len() < length && !is_all {
        return None;
    }
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer { status, reason: line("sequor-reason"), body: body[..length.min(body.len())].to_owned() })
}

impl Case {
    fn bytes(&self, id: i64) -> Vec<u8> {
        let body = bytes(&self.body, id);
        let mut head = format!("{} {} HTTP/1.1\r\nhost: x\r\n", self.verb, self.path).into_bytes();
        for line in &self.head {
            head.extend_from_slice(&bytes(std::slice::from_ref(line), id));
            head.extend_from_slice(b"\r\n");
        }
        for n in 0..self.lines {
            head.extend_from_slice(format!("x-{n}: y\r\n").as_bytes());
        }
        if self.json_length {
            let json = bytes(&self.body[..1], id).len();
            head.extend_from_slice(format!("inference-header-content-length: {json}\r\n").as_bytes());
        }
        let is_told = |line: &&Piece| matches!(line, Piece::Text(t) if t.contains("content-length: ") && !t.contains("header") || t.contains("chunked"));
        if !self.head.iter().any(|line| is_told(&line)) {
            head.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        [head, b"\r\n".to_vec(), body].concat()
    }

    fn send(&self, rig: &Rig, id: i64) -> Result<(), String> {
        let answer = ask(rig.server.http, &self.bytes(id), self.ends)?;
        if answer.status != self.status {
            return Err(format!("want {}, got {answer:?}", self.status));
        }
        if self.bare || self.status == 0 {
            return Ok(());
        }
        match answer.error() {
            Ok(message) => begins(&message, self.text.as_deref().unwrap_or_default(), id)?,
            Err(e) if self.text.as_deref() != Some("") => return Err(e),
            Err(_) => {}
        }
        same("reason", &answer.reason, &self.reason)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bytes_over_http_that_are_no_request_are_refused() {
    let rig = Rig::new().await;
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases::<Case>("http") {
        count += 1;
        wrong.extend(rig.check(&case.what, "sum", async |id| case.send(&rig, id)).await);
    }
    rig.assert_well(&wrong, count);
}
