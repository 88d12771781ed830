//! Tests that web pages in a browser cannot use a server that they can reach, unless their origin is allowed.

use sequor::server::ServerOptions;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::rig::{Rig, START, exchange, step, values};

const FOREIGN: (&str, &str) = ("origin", "http://example.org");
const TEXT: (&str, &str) = ("content-type", "text/plain");
const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");
const JSON: (&str, &str) = ("content-type", "application/json");

/// The status of opening a WebSocket from a page of this origin.
async fn socket(rig: &Rig, origin: &str) -> Option<u16> {
    let address = rig.addresses.http.unwrap();
    let mut request = format!("ws://{address}/v2/models/sum/stream").into_client_request().unwrap();
    request.headers_mut().insert("origin", origin.parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    match tokio_tungstenite::client_async(request, stream).await {
        Ok(_) => None,
        Err(Error::Http(answer)) => Some(answer.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let rig = Rig::new();
    let mut client = rig.client().await;
    assert_eq!(values(client.model_infer(step(1, "", 1, &[START])).await.unwrap().get_ref()), [1]);
    let off = br#"{"log_info":false,"log_warning":false,"log_error":false}"#;
    for headers in [&[TEXT, SAME][..], &[TEXT, FOREIGN], &[JSON, FOREIGN], &[FOREIGN]] {
        let answer = rig.http("POST /v2/logging", headers, off).await;
        assert!([400, 403].contains(&answer.status), "{headers:?}: {}", answer.head);
        assert_eq!(rig.get("/v2/logging").await["log_info"], true);
    }
    for path in ["POST /v2/repository/models/sum/unload", "POST /v2/systemsharedmemory/unregister"] {
        assert_eq!(rig.http(path, &[JSON, FOREIGN], b"{}").await.status, 403, "{path}");
    }
    let end = br#"{"inputs":[{"name":"INPUT","shape":[1,1],"datatype":"INT32","data":[9]}],"parameters":{"sequence_id":1,"sequence_end":true}}"#;
    assert_eq!(rig.http("POST /v2/models/sum/infer", &[TEXT, FOREIGN], end).await.json()["reason"], "denied");
    assert_eq!(socket(&rig, "http://example.org").await, Some(403));
    let own = format!("http://{}", rig.addresses.http.unwrap());
    assert_eq!(socket(&rig, &own).await, None);
    // The live sequence is unaffected, and the server still answers.
    assert_eq!(values(client.model_infer(step(1, "", 2, &[])).await.unwrap().get_ref()), [3]);
    assert_eq!(rig.http("GET /v2/health/live", &[], b"").await.status, 200);
}

#[tokio::test]
async fn an_allowed_origin_calls_as_the_servers_own() {
    let options = ServerOptions { allowed_origins: vec!["http://example.org".to_owned()], ..ServerOptions::default() };
    let rig = Rig::served(options);
    assert_eq!(socket(&rig, "http://example.org").await, None);
    assert_eq!(socket(&rig, "https://example.org").await, Some(403));
    assert_eq!(rig.http("POST /v2/logging", &[JSON, FOREIGN], b"{}").await.status, 200);
}

#[tokio::test]
async fn an_admin_listener_without_keys_accepts_only_local_host_names() {
    let rig = Rig::new();
    let admin = rig.addresses.admin.unwrap();
    // A wrong Host header, as after DNS rebinding.
    for host in ["rebound.example.org", "", "local host", "0.0.0.0"] {
        let answer =
            raw(admin, &format!("GET /admin/config HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{host:?}: {answer}");
    }
    for head in ["GET /admin/config HTTP/1.0\r\n\r\n", "GET /admin/config HTTP/1.1\r\nconnection: close\r\n\r\n"] {
        let answer = raw(admin, head).await;
        assert!(answer.contains(" 403 ") || answer.contains(" 400 "), "{head:?}: {answer}");
    }
    let own = raw(admin, &format!("GET /admin/config HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")).await;
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    assert_eq!(exchange(rig.addresses.http.unwrap(), "GET /v2/health/live", &[], b"").await.status, 200);
}

/// The answer to these bytes.
async fn raw(address: std::net::SocketAddr, bytes: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
