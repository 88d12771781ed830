//! Tests other clients: curl, Node, a browser, and a client that knows the services only through reflection.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzEncoder;
use serde_json::{Value, json};

use crate::python::{self, prepared};
use crate::server::{Call, Server, models, root};

/// A timeout that only a hanging browser reaches.
const HANGS: Duration = Duration::from_secs(180);

fn step(sequence: u64, value: i32, start: bool) -> Value {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value] });
    let parameters = json!({ "sequence_id": sequence, "sequence_start": start });
    json!({ "parameters": parameters, "inputs": [input], "outputs": [{ "name": "OUTPUT" }] })
}

/// curl's output: the body of the answer, with the head for `-i`.
fn curl(arguments: &[&str], body: &[u8]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("curl has to be installed: {e}"));
    child.stdin.take().unwrap().write_all(body).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn curl_gets_answers_over_http_1_and_2_chunked_and_compressed() {
    let server = Server::of_models();
    let url = format!("http://{}/v2/models/accumulator_int32/infer", server.http);
    let body = |value, start| step(7, value, start).to_string().into_bytes();
    let sum = |answer: &str| -> Value {
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or(("", answer));
        serde_json::from_str::<Value>(body).unwrap_or_else(|e| panic!("{e}: {answer}"))["outputs"][0]["data"].clone()
    };
    assert_eq!(sum(&curl(&["--data-binary", "@-", &url], &body(1, true))), json!([1]));
    // A chunked body without a length; and HTTP/2 without an upgrade.
    let chunked = ["--header", "transfer-encoding: chunked", "--data-binary", "@-", &url];
    assert_eq!(sum(&curl(&chunked, &body(2, false))), json!([3]));
    assert_eq!(sum(&curl(&["--http2-prior-knowledge", "--data-binary", "@-", &url], &body(4, false))), json!([7]));
    // A client that waits for 100 Continue.
    let waits = ["-i", "--header", "expect: 100-continue", "--data-binary", "@-", &url];
    let answer = curl(&waits, &body(8, false));
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with('}') && answer.contains("\"data\":[15]"), "{answer}");
    // A compressed request.
    let mut packed = Vec::new();
    GzEncoder::new(&body(16, false)[..], Compression::best()).read_to_end(&mut packed).unwrap();
    let gzip = ["--header", "content-encoding: gzip", "--data-binary", "@-", &url];
    assert_eq!(sum(&curl(&gzip, &packed)), json!([31]));
    // A compressed answer, which must be large enough.
    let row = vec![0.25; 8 * 100];
    let input = json!({ "name": "INPUT", "shape": [1, 100, 8], "datatype": "FP32", "data": row });
    let gru = json!({ "inputs": [input], "parameters": { "sequence_id": 1, "sequence_start": true } }).to_string();
    let gru_url = url.replace("accumulator_int32", "gru");
    let plain = curl(&["-i", "--data-binary", "@-", &gru_url], gru.as_bytes());
    let packed = curl(&["-i", "--compressed", "--data-binary", "@-", &gru_url], gru.as_bytes());
    assert!(!plain.contains("content-encoding") && packed.contains("content-encoding: "), "{packed}");
    assert_eq!(sum(&packed), sum(&plain));
    assert!(sum(&packed).as_array().is_some_and(|data| data.len() >= 16), "{packed}");

    let refused = curl(&["-i", "--data-binary", "@-", &url], step(8, 1, false).to_string().as_bytes());
    let (head, body) = refused.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400") && head.contains("sequor-reason: never_started"), "{head}");
    let object: Value = serde_json::from_str(body).unwrap();
    let sentence = "inference request for sequence 8 to model 'accumulator_int32' must specify the START flag on the first request of the \
                    sequence";
    assert!(object["error"].as_str().unwrap().starts_with(sentence) && object["reason"] == "never_started", "{object}");
    let code = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    for (path, status) in [("/v2/models/nope/infer", "404"), ("/v2/health/ready", "405"), ("/v3", "404")] {
        let url = format!("http://{}{path}", server.http);
        assert_eq!(curl(&[&code[..], &["--data-binary", "@-", &url]].concat(), b"{}"), status, "{path}");
    }
    // Refused requests have not changed the sequence.
    let url_only = ["--data-binary", "@-", url.as_str()];
    assert_eq!(sum(&curl(&url_only, step(7, 32, false).to_string().as_bytes())), json!([63]));
}

#[test]
fn a_client_that_asks_reflection_can_call() {
    let server = Server::of_models();
    python::check("reflection.py", &server);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn javascript_streams_over_websocket_in_node() {
    let server = Server::of_models();
    let done = Command::new(prepared("SEQUOR_NODE"))
        .arg(root().join("tests/js/node.mjs"))
        .arg(server.http.to_string())
        .output()
        .unwrap();
    let message = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{message}");
    assert!(message.contains("checks; wrong: 0"), "{message}");
    assert_eq!(server.stop().code, Some(0));
}

/// A browser that is killed at the end of its test.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn javascript_streams_over_websocket_in_a_browser() {
    let pages = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("--http-allowed-origins=http://{}", pages.local_addr().unwrap());
    let server = Call::serve(models()).arguments([origin]).start();
    let page = format!("http://{}/page.html?server={}", pages.local_addr().unwrap(), server.http);
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(prepared("SEQUOR_BROWSER"));
    // Tests in a container run as root, and the browser's sandbox does not work there.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).arg(page);
    let browser = Browser(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let found: Value = serde_json::from_str(&serve_pages(&pages)).unwrap();
    drop(browser);
    assert_eq!(found["wrong"], json!([]), "{found}");
    assert!(found["count"].as_u64().unwrap() > 180, "{found}");
    assert_eq!(server.stop().code, Some(0));
}

/// Serves the files of `tests/js` to the browser until it reports its result.
fn serve_pages(pages: &TcpListener) -> String {
    pages.set_nonblocking(true).unwrap();
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < HANGS, "the browser has not said what it found");
        match pages.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                if let Some(found) = page(stream) {
                    return found;
                }
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Answers one request. Returns the browser's result, if the request contains it.
fn page(stream: TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(HANGS)).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() <= 2 {
            break;
        }
        if let Some(message) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = message.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let path = first.split_whitespace().nth(1).unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
    let file = root().join("tests/js").join(path.trim_start_matches('/'));
    let content = fs::read(&file).unwrap_or_default();
    let kind = if path.ends_with(".mjs") { "text/javascript" } else { "text/html" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        content.len()
    );
    let mut stream = reader.into_inner();
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content)).ok()?;
    (path == "/found").then(|| String::from_utf8(body).unwrap())
}
