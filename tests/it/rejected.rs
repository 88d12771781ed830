//! What a client reads of a request that a scheduler plug-in rejects: a START may be sent again, and a later step ended its sequence.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tonic::Code;

use crate::operator::{attach, guest, load};
use crate::server::{Call, Server};
use crate::steps::{accumulators, step};

const MODEL: &str = "oldest";

/// Status, head and body of a step over HTTP.
fn post(address: SocketAddr, id: i64, start: bool) -> (u16, String, Value) {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
    let parameters = json!({ "sequence_id": id, "sequence_start": start });
    let body = json!({ "inputs": [input], "parameters": parameters }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap())
}

/// A server on which sequences 1 and 2 live, and whose scheduler rejects every request.
async fn rejecting() -> Server {
    let call = Call::serve("repository").arguments(["--admin-upload=true"]);
    accumulators(&call.folder.path().join("repository"), 8, 600_000_000);
    let server = call.start();
    let mut client = server.client().await;
    for id in [1, 2] {
        client.model_infer(step(MODEL, id, String::new(), 1, true, false)).await.unwrap();
    }
    load(&server, "rejecting", &guest("hostile-reject"));
    // A debug build is slow, and a decision that comes late would be the built-in policy's.
    attach(&server, "rejecting", MODEL, json!({ "time": "10s" }));
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_start_may_be_sent_again_and_a_rejected_step_ended_its_sequence() {
    let server = rejecting().await;
    let mut client = server.client().await;
    let mut infer = async |id, start| {
        let request = step(MODEL, id, String::new(), 1, start, false);
        let status = client.model_infer(request).await.unwrap_err();
        let said = |key: &str| status.metadata().get(key).map(|value| value.to_str().unwrap().to_owned());
        (status.code(), said("sequor-reason").unwrap(), said("grpc-retry-pushback-ms"))
    };
    let rejected = || "plugin_rejected".to_owned();
    // Over gRPC: a START, a later step, and one after that.
    assert_eq!(infer(3, true).await, (Code::Unavailable, rejected(), Some("1000".to_owned())));
    assert_eq!(infer(1, false).await, (Code::FailedPrecondition, rejected(), None));
    assert_eq!(infer(1, false).await, (Code::InvalidArgument, rejected(), None));
    // Over HTTP.
    let (status, head, body) = post(server.http, 4, true);
    assert_eq!((status, &body["reason"]), (503, &json!("plugin_rejected")), "{body}");
    assert!(head.contains("\r\nretry-after: 1"), "{head}");
    for want in [412, 400] {
        let (status, head, body) = post(server.http, 2, false);
        assert_eq!((status, &body["reason"]), (want, &json!("plugin_rejected")), "{body}");
        assert!(!head.contains("retry-after"), "{head}");
    }
    // A server that stops waits for open connections.
    drop(client);
    assert_eq!(server.stop().code, Some(0));
}
