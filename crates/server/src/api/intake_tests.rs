//! Tests intake with models of the stand-in backend.

use std::sync::Arc;

use axum::http::HeaderMap;
use futures_util::poll;
use sequor_core::{DataType, Dialect, Id, Shape};
use tempfile::TempDir;

use super::*;
use crate::api::Caller;
use crate::api::ConnectionOrder;
use crate::config::units::Size;
use crate::model::{NamedTensor, SequenceStep, Tensor};

const SUM: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
    sequence_batching { state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;
const SAME: &str = r#"
    backend: "onnxruntime" max_batch_size: 8
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
"#;

fn api(limits: ServerLimits) -> (Api, TempDir) {
    let models = [("sum", SUM, "accumulate INT32"), ("same", SAME, "identity INT32 dims=-1")];
    let (repository, folder) = Repository::of_models(&models);
    (Api::new(repository, Metrics::new(false), limits), folder)
}

fn context() -> RequestContext {
    let caller = Caller { name: Caller::LOCAL.to_owned(), address: ([127, 0, 0, 1], 9).into() };
    RequestContext::new(&Arc::new(caller), &ConnectionOrder::default(), &HeaderMap::new())
}

/// Sends a START to this model under OVMS's rules.
fn start(api: &Api, model: &str, id: Id) -> Result<Underway, Failure> {
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data: vec![1, 0, 0, 0].into() };
    let request = InferRequest {
        model: model.to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id, start: true, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::OVMS,
    };
    let context = context();
    let permit = api.queued_permit(&context);
    let decoded = Decoded { model: api.find(model, "").unwrap(), request, permit };
    let mut count = api.count(&context, Surface::KserveGrpc, (model, ""), Some(&decoded.model));
    api.begin(&context, decoded, &mut count)
}

#[tokio::test]
async fn a_draining_server_starts_no_sequence_and_runs_models_without_sequences() {
    let (api, _folder) = api(ServerLimits::default());
    start(&api, "sum", Id::None).expect("a new id").await.expect("an answer");
    api.set_phase(ServerPhase::Announcing);
    start(&api, "sum", Id::Int(7)).expect("announced only").await.expect("an answer");
    api.set_phase(ServerPhase::Finishing);
    for id in [Id::None, Id::Int(8)] {
        let refused = start(&api, "sum", id).expect_err("no new sequence");
        assert!(matches!(&refused, Failure::Refused(why) if why.refusal == Refusal::Stopping), "{refused:?}");
    }
    let ran = start(&api, "same", Id::Int(9)).expect("no sequence").await;
    assert!(ran.is_ok(), "{ran:?}");
    let stopped = tokio::task::spawn_blocking(move || api.repository().stop());
    stopped.await.unwrap();
}

#[tokio::test]
async fn a_body_counts_while_its_request_waits_for_its_turn() {
    let limits = ServerLimits { queued: Size(1 << 20), ..ServerLimits::default() };
    let (api, _folder) = api(limits);
    let context = context();
    let queued = || api.metrics().queued().get();
    let first = context.order.turn().await;
    let (small, large) = (10 << 10, 600 << 10);
    let mut one = Box::pin(api.turn(&context, small));
    assert!(poll!(&mut one).is_pending());
    let mut two = Box::pin(api.turn(&context, large));
    assert!(poll!(&mut two).is_pending());
    assert_eq!(queued(), (small + large) as i64);
    let refused = api.turn(&context, large).await.expect_err("no room");
    assert!(matches!(refused, Failure::Limit(ExceededLimit::QueuedBytes { .. })), "{refused:?}");
    drop(first);
    let (turn, permit) = one.await.expect("its turn");
    assert_eq!(queued(), large as i64, "a small body does not count while it is decoded");
    drop((turn, permit));
    let (turn, permit) = two.await.expect("its turn");
    assert_eq!(queued(), large as i64);
    drop((turn, permit));
    assert_eq!(queued(), 0);
    let at_once = api.turn(&context, small).await.expect("its turn");
    assert_eq!(queued(), 0);
    drop(at_once);
}
