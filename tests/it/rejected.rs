//! Tests requests that a scheduler plug-in rejects: a START may be sent again, and a rejected later step has ended its sequence.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use sequor_proto::infer_parameter::ParameterChoice;
use serde_json::{Value, json};
use tonic::Code;

use crate::operator::{attach, dismiss, guest, load};
use crate::server::{Call, Server};
use crate::steps::{accumulators, parameter, step};

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

/// A server with the live sequences 1 and 2, whose scheduler rejects every request.
async fn refusing(plugin: &str) -> Server {
    refusing_with(plugin, json!({})).await
}

/// Like [`refusing`], with a configuration of the scheduler.
async fn refusing_with(plugin: &str, config: Value) -> Server {
    let call = Call::serve("repository").arguments(["--admin-upload=true"]);
    accumulators(&call.folder.path().join("repository"), 8, 600_000_000);
    let server = call.start();
    let mut client = server.client().await;
    for id in [1, 2] {
        client.model_infer(step(MODEL, id, String::new(), 1, true, false)).await.unwrap();
    }
    load(&server, "rejecting", &guest(plugin));
    // A debug build is slow, and the built-in policy replaces a late decision.
    attach(&server, "rejecting", MODEL, json!({ "time": "10s", "config": config }));
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_start_may_be_retried_and_a_rejected_step_ends_its_sequence() {
    let server = refusing("hostile-reject").await;
    let mut client = server.client().await;
    let mut infer = async |id, start| {
        let request = step(MODEL, id, String::new(), 1, start, false);
        let status = client.model_infer(request).await.unwrap_err();
        let message = |key: &str| status.metadata().get(key).map(|value| value.to_str().unwrap().to_owned());
        (status.code(), message("sequor-reason").unwrap(), message("grpc-retry-pushback-ms"))
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
    // A stopping server waits for open connections.
    drop(client);
    assert_eq!(server.stop().code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shed_step_is_refused_with_its_codes_text_and_the_sequence_continues() {
    let server = refusing("hostile-shed").await;
    let mut client = server.client().await;
    let status = client.model_infer(step(MODEL, 1, String::new(), 1, false, false)).await.unwrap_err();
    let field = |key: &str| status.metadata().get(key).map(|value| value.to_str().unwrap().to_owned());
    let expected = (Code::ResourceExhausted, Some("plugin_rejected".to_owned()), Some("2000".to_owned()));
    assert_eq!((status.code(), field("sequor-reason"), field("grpc-retry-pushback-ms")), expected);
    assert!(status.message().starts_with("this tenant is over its quota "), "{}", status.message());
    let (status, head, body) = post(server.http, 1, false);
    assert_eq!((status, &body["reason"]), (429, &json!("plugin_rejected")), "{body}");
    assert!(head.contains("\r\nretry-after: 2"), "{head}");
    // The built-in policy runs the next step of the same sequence; its sum does not include the rejected steps.
    dismiss(&server, "rejecting", MODEL);
    let answer = client.model_infer(step(MODEL, 1, String::new(), 5, false, false)).await.unwrap().into_inner();
    assert_eq!(&answer.raw_output_contents[0][..], 6i32.to_le_bytes());
    drop(client);
    assert_eq!(server.stop().code, Some(0));
}

/// `edf` defines its code in plugin.toml. With a margin of an hour, every deadline is too near.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_that_cannot_be_met_is_refused_with_the_text_of_its_code() {
    let server = refusing_with("edf", json!({ "margin_us": 3_600_000_000u64 })).await;
    let mut client = server.client().await;
    let mut request = step(MODEL, 3, String::new(), 1, true, false);
    request.parameters.insert("timeout".to_owned(), parameter(ParameterChoice::Int64Param(60_000_000)));
    let status = client.model_infer(request).await.unwrap_err();
    let field = |key: &str| status.metadata().get(key).map(|value| value.to_str().unwrap().to_owned());
    let expected = (Code::DeadlineExceeded, Some("plugin_rejected".to_owned()), Some("1000".to_owned()));
    assert_eq!((status.code(), field("sequor-reason"), field("grpc-retry-pushback-ms")), expected);
    assert!(status.message().starts_with("the deadline cannot be met "), "{}", status.message());
    // A request without a deadline is not rejected.
    let answer = client.model_infer(step(MODEL, 1, String::new(), 5, false, false)).await.unwrap().into_inner();
    assert_eq!(&answer.raw_output_contents[0][..], 6i32.to_le_bytes());
    drop(client);
    assert_eq!(server.stop().code, Some(0));
}
