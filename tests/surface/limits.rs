//! Tests the limits on waiting requests.

use std::sync::Arc;
use std::time::Duration;

use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::config::units::Size;
use sequor::model::Clock;
use sequor_core::Id;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::{ModelInferRequest, ModelInferResponse};
use serde_json::json;
use tokio::task::JoinHandle;
use tonic::{Code, Response, Status};

use crate::rig::{END, Rig, START, SUM, parameter, request, step, values, write};

/// The limit on queued bytes, and the size of a large request.
const LIMIT: u64 = 1 << 20;
const LARGE: usize = 300 << 10;

/// A server with a model whose requests wait for seven others, which never arrive.
fn rig() -> Rig {
    let batching = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 600000000 }";
    let waits = ("waits", &*format!("{}{batching}", crate::rig::SAME), "identity INT32 dims=-1");
    Rig::with(ServerLimits { queued: Size(LIMIT), ..ServerLimits::default() }, &[waits])
}

fn large() -> Vec<i32> {
    vec![1; LARGE / 4]
}

/// Sends large requests that wait; `count` of them.
async fn waiting(rig: &Rig, count: usize) -> Vec<JoinHandle<Result<Response<ModelInferResponse>, Status>>> {
    let mut waiting = Vec::new();
    for n in 1..=count {
        let mut client = rig.client().await;
        waiting.push(tokio::spawn(async move { client.model_infer(request("waits", "", &large())).await }));
        rig.until(|rig| rig.metrics.queued().get() == (n * LARGE) as i64).await;
    }
    waiting
}

#[tokio::test]
async fn queued_bytes_are_limited_and_a_refused_request_may_be_retried() {
    let rig = rig();
    let mut client = rig.client().await;
    let started = client.model_infer(step(7, "", 40, &[START])).await.unwrap();
    assert_eq!(values(started.get_ref()), [40]);
    let waiting = waiting(&rig, 3).await;

    let refused = client.model_infer(request("same", "late", &large())).await.unwrap_err();
    let text = "queued bytes of requests and answers 900 KiB of 1 MiB (limits.queued); this request needs ";
    assert_eq!((refused.code(), refused.message().starts_with(text)), (Code::Unavailable, true), "{refused}");
    let shown = |key: &str| refused.metadata().get(key).map(|value| value.to_str().unwrap());
    assert_eq!((shown("sequor-reason"), shown("grpc-retry-pushback-ms")), (Some("queue_full"), Some("1000")));
    let input = json!({ "name": "INPUT", "shape": [1, LARGE / 4], "datatype": "INT32", "data": large() });
    let refused = rig.post("/v2/models/same/infer", json!({ "inputs": [input] })).await;
    assert_eq!((refused.status, &refused.json()["reason"]), (503, &json!("queue_full")));
    assert!(refused.head.contains("retry-after: 1\r\n"), "{}", refused.head);
    // A small request fits, and does not count any more once it is answered.
    assert_eq!(values(client.model_infer(step(7, "", 2, &[])).await.unwrap().get_ref()), [42]);
    assert_eq!(rig.metrics.queued().get(), 3 * LARGE as i64);

    // A client that gives up frees its share.
    waiting.iter().for_each(JoinHandle::abort);
    rig.until(|rig| rig.metrics.queued().get() == 0).await;
    let answer = client.model_infer(request("same", "late", &large())).await.unwrap();
    assert_eq!(values(answer.get_ref()).len(), LARGE / 4);
}

#[tokio::test]
async fn a_start_waits_for_a_slot_no_longer_than_its_time_out() {
    const TIMEOUT: Duration = Duration::from_millis(20);
    let (clock, folder) = (Clock::manual(), tempfile::tempdir().unwrap());
    write(folder.path(), "kept", SUM, 1, "accumulate INT32");
    let rig = Rig::timed(Arc::new(MockBackend::new()), ServerLimits::default(), clock.clone(), folder);
    rig.repository.load_all(rig.folder.path()).unwrap();
    // Waits until the sequence has `count` requests in its queue.
    let queued = async |id: i64, count: u32| {
        let id = Id::Int(id.cast_unsigned());
        rig.until(|rig| {
            let live = rig.repository.live_sequences("kept").unwrap();
            live.iter().any(|live| live.id == id && live.queued == count)
        })
        .await;
    };
    let run_out = async |id: i64, count: u32| {
        queued(id, count).await;
        clock.advance(TIMEOUT);
    };
    let step = |id, flags: &[&str]| ModelInferRequest { model_name: "kept".to_owned(), ..step(id, "", 1, flags) };
    let mut client = rig.client().await;
    for id in 1..=4 {
        client.model_infer(step(id, &[START])).await.unwrap();
    }
    let late = || {
        let mut late = step(5, &[START]);
        let micros = i64::try_from(TIMEOUT.as_micros()).unwrap();
        late.parameters.insert("timeout".to_owned(), parameter(ParameterChoice::Int64Param(micros)));
        late
    };
    // The next step is refused with the START, and only the START may be retried.
    let start = {
        let mut client = rig.client().await;
        let late = late();
        tokio::spawn(async move { client.model_infer(late).await })
    };
    queued(5, 1).await;
    let (behind, ()) = tokio::join!(client.model_infer(step(5, &[])), run_out(5, 2));
    let behind = behind.unwrap_err();
    let pushback = |status: &Status| status.metadata().get("grpc-retry-pushback-ms").cloned();
    assert_eq!((behind.code(), pushback(&behind)), (Code::Unavailable, Some("-1".parse().unwrap())));
    assert_eq!(pushback(&start.await.unwrap().unwrap_err()), Some("1000".parse().unwrap()));
    let (refused, ()) = tokio::join!(client.model_infer(late()), run_out(5, 1));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let text =
        "timeout of the corresponding sequence has been expired (no slot for sequence 5 of model 'kept' within 20 ms";
    assert!(refused.message().starts_with(text), "{}", refused.message());
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "backlog_timeout");
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
    let parameters = json!({ "sequence_id": 6, "sequence_start": true, "timeout": TIMEOUT.as_micros() });
    let refused = rig.post("/v2/models/kept/infer", json!({ "inputs": [input], "parameters": parameters }));
    let (refused, ()) = tokio::join!(refused, run_out(6, 1));
    assert_eq!((refused.status, &refused.json()["reason"]), (503, &json!("backlog_timeout")));
    assert!(refused.head.contains("retry-after: 1\r\n"), "{}", refused.head);
    // It has left nothing behind. Live sequences continue, and with a free slot it can start.
    let gone = client.model_infer(step(5, &[])).await.unwrap_err();
    assert_eq!(gone.code(), Code::InvalidArgument);
    assert_eq!(values(client.model_infer(step(1, &[END])).await.unwrap().get_ref()), [2]);
    assert_eq!(values(client.model_infer(step(5, &[START])).await.unwrap().get_ref()), [1]);
}
