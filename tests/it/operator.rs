//! Requests of an operator about a server's plug-ins, over the admin listener.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::python::prepared;
use crate::server::Server;

/// The component of a guest that `cargo xtask test` built.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    std::fs::read(prepared("SEQUOR_GUESTS").join(format!("{name}.wasm"))).unwrap()
}

/// Sends a request with the listener's own name as the host. Returns status and body.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {kind}\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n", body.len()).unwrap();
    // A refusal may arrive before the whole body is read.
    let _ = stream.write_all(body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer:?}"));
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or_else(|| panic!("{head:?}")), body.to_owned())
}

fn granted(server: &Server, method: &str, path: &str, kind: &str, body: &[u8]) -> Value {
    let (status, text) = ask(server.admin.unwrap(), method, path, kind, body);
    assert_eq!(status, 200, "{method} {path}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The refusal of this upload.
pub(crate) fn refused(server: &Server, path: &str, component: &[u8]) -> String {
    let (status, text) = ask(server.admin.unwrap(), "POST", path, "application/wasm", component);
    assert!((400..500).contains(&status), "{path}: {status} {text}");
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    json["error"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
}

pub(crate) fn load(server: &Server, name: &str, component: &[u8]) -> Value {
    granted(server, "POST", &format!("/admin/plugins/{name}"), "application/wasm", component)
}

pub(crate) fn replace(server: &Server, name: &str, component: &[u8]) -> Value {
    granted(server, "POST", &format!("/admin/plugins/{name}/replace"), "application/wasm", component)
}

/// Attaches a plug-in. `how` has `config` and `time`.
pub(crate) fn attach(server: &Server, name: &str, model: &str, mut how: Value) -> Value {
    how["model"] = json!(model);
    granted(server, "POST", &format!("/admin/plugins/{name}/attach"), "application/json", how.to_string().as_bytes())
}

/// Detaches it from a model, and removes it.
pub(crate) fn dismiss(server: &Server, name: &str, model: &str) {
    let body = json!({ "model": model }).to_string();
    granted(server, "POST", &format!("/admin/plugins/{name}/detach"), "application/json", body.as_bytes());
    granted(server, "DELETE", &format!("/admin/plugins/{name}"), "application/json", b"");
}

/// The single attachment of a plug-in.
pub(crate) fn attached(server: &Server, name: &str) -> Value {
    let shown = granted(server, "GET", &format!("/admin/plugins/{name}"), "application/json", b"");
    shown["attached"][0].clone()
}

/// Its log, line by line.
pub(crate) fn logs(server: &Server, name: &str) -> Vec<String> {
    let lines = granted(server, "GET", &format!("/admin/plugins/{name}/logs"), "application/json", b"");
    lines.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}
