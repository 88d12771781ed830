//! Tests Triton's test aids over sockets: `TRITONSERVER_DELAY_SCHEDULER` holds requests until enough of them have arrived. Tests can thus
//! create batches of a known size, for example with a bad row.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest, ModelStatisticsRequest};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::python::prepared;
use crate::server::{Call, Server, root};
use crate::steps::{metric, step, sum};

const HANGS: Duration = Duration::from_secs(180);

type Answer = Result<Vec<u8>, tonic::Status>;

/// A running sum; the graph `lookup` adds entries of a table.
fn sum_model(repository: &Path, name: &str, graph: &str, batching: &str) {
    let (dtype, state, dims) = if graph == "lookup" { ("INT64", "FP32", 1) } else { ("INT32", "INT32", -1) };
    let config = format!(
        r#"backend: "onnxruntime" max_batch_size: 16
        input [ {{ name: "INPUT" data_type: TYPE_{dtype} dims: [ 1 ] }} ]
        output [ {{ name: "OUTPUT" data_type: TYPE_{state} dims: [ {dims} ] }} ]
        instance_group [ {{ kind: KIND_CPU count: 1 }} ]
        sequence_batching {{ max_sequence_idle_microseconds: 600000000 {batching} state [ {{
            input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_{state} dims: [ 1 ] }} ] }}"#
    );
    fs::create_dir_all(repository.join(name).join("1")).unwrap();
    fs::write(repository.join(name).join("config.pbtxt"), config).unwrap();
    let graph = root().join("tests/models").join(format!("{graph}.onnx"));
    fs::copy(graph, repository.join(name).join("1/model.onnx")).unwrap();
}

/// A stateless model that returns its 16 numbers.
fn identity_model(repository: &Path, name: &str, batching: &str) {
    let tensor = |name| format!(r#"{{ name: "{name}" data_type: TYPE_FP32 dims: [ 16 ] }}"#);
    let (input, output) = (tensor("INPUT"), tensor("OUTPUT"));
    let config = format!(
        r#"backend: "onnxruntime" max_batch_size: 8 input [ {input} ] output [ {output} ]
        instance_group [ {{ kind: KIND_CPU count: 1 }} ] dynamic_batching {{ {batching} }}"#
    );
    fs::create_dir_all(repository.join(name).join("1")).unwrap();
    fs::write(repository.join(name).join("config.pbtxt"), config).unwrap();
    fs::copy(root().join("benches/models/identity.onnx"), repository.join(name).join("1/model.onnx")).unwrap();
}

/// A server with one model, with or without a hold.
struct Held {
    server: Server,
    client: GrpcInferenceServiceClient<Channel>,
}

impl Held {
    async fn of(graph: &str, batching: &str, aids: &[(&str, &str)]) -> Held {
        let call = Call::serve("repository");
        let repository = call.folder.path().join("repository");
        match graph {
            "identity" => identity_model(&repository, "sum", batching),
            graph => sum_model(&repository, "sum", graph, batching),
        }
        Held::start(call, aids).await
    }

    async fn start(mut call: Call, aids: &[(&str, &str)]) -> Held {
        for (name, value) in aids {
            call = call.environment(name, value);
        }
        let server = call.start();
        let client = server.client().await;
        Held { server, client }
    }

    fn send(&self, request: ModelInferRequest) -> JoinHandle<Answer> {
        let mut client = self.client.clone();
        tokio::spawn(async move {
            let answer = client.model_infer(request).await?.into_inner();
            Ok(answer.raw_output_contents[0].to_vec())
        })
    }

    /// Waits until this many requests are in flight, and checks that none of these is answered.
    async fn holds(&self, count: usize, sent: &[JoinHandle<Answer>]) {
        let until = Instant::now() + HANGS;
        while metric(&self.server, "sequor_requests_in_flight", &[]) < count as f64 {
            assert!(!sent.iter().any(JoinHandle::is_finished), "answered, though it is to be held");
            assert!(Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The requests before this one would have run by now if the server did not hold them.
        assert!(self.batches().await.is_empty());
        assert!(!sent.iter().any(JoinHandle::is_finished), "answered, though it is to be held");
    }

    /// The sizes of the batches that ran, with their counts.
    async fn batches(&self) -> Vec<(u64, u64)> {
        let request = ModelStatisticsRequest { name: "sum".to_owned(), version: String::new() };
        let message = self.client.clone().model_statistics(request).await.unwrap().into_inner();
        let batches = message.model_stats[0].batch_stats.iter();
        batches.map(|batch| (batch.batch_size, batch.compute_infer.unwrap().count)).collect()
    }

    async fn answers(sent: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
        let mut answers = Vec::new();
        for answer in sent {
            answers.push(tokio::time::timeout(HANGS, answer).await.expect("an answer").unwrap());
        }
        answers
    }
}

fn int(answer: &Answer) -> i32 {
    i32::from_le_bytes(answer.as_ref().unwrap().as_slice().try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_delay_scheduler_holds_a_direct_model_once_until_enough_requests_wait() {
    let held = Held::of("sum_int32", "direct { }", &[("TRITONSERVER_DELAY_SCHEDULER", "6")]).await;
    let at = |id: i64, n: i32| step("sum", id, String::new(), 10 * id as i32 + n, n == 0, false);
    let mut sent: Vec<_> = [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)].map(|(id, n)| held.send(at(id, n))).into();
    held.holds(5, &sent).await;
    sent.push(held.send(at(3, 1)));
    let got: Vec<i32> = Held::answers(sent).await.iter().map(int).collect();
    assert_eq!(got, [10, 20, 30, 21, 41, 61]);
    assert_eq!(held.batches().await, [(3, 2)], "what came together ran together");
    // A single request runs at once.
    assert_eq!(int(&Held::answers(vec![held.send(at(1, 2))]).await[0]), 33);
    assert_eq!(held.batches().await, [(1, 1), (3, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_backlog_delay_holds_a_model_until_enough_sequences_wait() {
    let aids = [("TRITONSERVER_DELAY_SCHEDULER", "16"), ("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")];
    let held = Held::of("sum_int32", "direct { }", &aids).await;
    // As many whole sequences as slots, and one more that waits for a slot.
    let whole = |id: i64| step("sum", id, String::new(), id as i32, true, true);
    let mut sent: Vec<_> = (1..=17).map(|id| held.send(whole(id))).collect();
    held.holds(17, &sent).await;
    assert_eq!(metric(&held.server, "sequor_sequences_backlogged", &[]), 1.0);
    sent.push(held.send(whole(18)));
    let got: Vec<i32> = Held::answers(sent).await.iter().map(int).collect();
    assert_eq!(got, (1..=18).collect::<Vec<_>>());
    assert_eq!(held.batches().await, [(2, 1), (16, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_delay_scheduler_never_holds_an_oldest_model() {
    let aids = [("TRITONSERVER_DELAY_SCHEDULER", "6"), ("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")];
    let held = Held::of("sum_int32", "oldest { max_candidate_sequences: 4 }", &aids).await;
    let answer = held.client.clone().model_infer(step("sum", 1, String::new(), 7, true, true)).await.unwrap();
    assert_eq!(sum(answer.get_ref()), Some(7));
}

// === delays, which hold requests for a while ===

/// A delay so long that a request that waits for it hangs.
const LONG: &str = "max_queue_delay_microseconds: 600000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn direct_waits_for_the_minimum_slot_utilization_up_to_its_delay() {
    let held = Held::of("sum_int32", &format!("direct {{ {LONG} minimum_slot_utilization: 0.125 }}"), &[]).await;
    let start = |id: i64| step("sum", id, String::new(), id as i32, true, false);
    let mut sent = vec![held.send(start(1))];
    held.holds(1, &sent).await;
    sent.push(held.send(start(2)));
    assert_eq!(Held::answers(sent).await.iter().map(int).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(held.batches().await, [(2, 1)], "two of sixteen slots are an eighth");
    // A delay without `minimum_slot_utilization` does not hold a request; with it, the delay ends.
    for batching in [LONG, "max_queue_delay_microseconds: 200000 minimum_slot_utilization: 1.0"] {
        let held = Held::of("sum_int32", &format!("direct {{ {batching} }}"), &[]).await;
        assert_eq!(int(&Held::answers(vec![held.send(start(7))]).await[0]), 7);
    }
}

fn row(value: f32) -> ModelInferRequest {
    let mut request = step("sum", 0, String::new(), 0, false, false);
    request.parameters.clear();
    request.inputs[0].datatype = "FP32".to_owned();
    request.inputs[0].shape = vec![1, 16];
    request.raw_input_contents = vec![value.to_le_bytes().repeat(16).into()];
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn stateless_requests_batch_in_order_up_to_the_largest_preferred_size() {
    // The number of waiting requests, the preferred sizes, and the resulting batches.
    let cases = [
        ("5", "preferred_batch_size: [ 2, 4 ]", vec![(1, 1), (4, 1)]),
        ("3", "preferred_batch_size: [ 8 ]", vec![(3, 1)]),
        ("5", "", vec![(5, 1)]),
    ];
    for (count, batching, want) in cases {
        let held = Held::of("identity", batching, &[("TRITONSERVER_DELAY_SCHEDULER", count)]).await;
        let sent: Vec<_> = (1..=count.parse().unwrap()).map(|n: u8| held.send(row(n.into()))).collect();
        for (n, answer) in (1u8..).zip(Held::answers(sent).await) {
            assert_eq!(answer.unwrap(), f32::from(n).to_le_bytes().repeat(16), "{n}");
        }
        assert_eq!(held.batches().await, want, "{batching}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_waits_for_its_preferred_size_up_to_the_queue_delay() {
    let held = Held::of("identity", &format!("preferred_batch_size: [ 4 ] {LONG}"), &[]).await;
    let mut sent: Vec<_> = (0..3u8).map(|n| held.send(row(n.into()))).collect();
    held.holds(3, &sent).await;
    sent.push(held.send(row(3.0)));
    assert!(Held::answers(sent).await.iter().all(Result::is_ok));
    assert_eq!(held.batches().await, [(4, 1)]);
    let held = Held::of("identity", "preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 200000", &[]).await;
    assert!(Held::answers(vec![held.send(row(1.0))]).await[0].is_ok());
    assert_eq!(held.batches().await, [(1, 1)]);
}

/// Tests both of Triton's example strategies for `custom_batching`, as plug-ins. All six requests are decided within the maximum wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_scheduler_plugin_forms_the_batches_of_a_stateless_model() {
    // Each input has 64 bytes. Every third request has another key, if the plug-in uses keys.
    let volume =
        "[plugins.scheduler]\nuse = \"volume\"\nmax_wait = \"60s\"\nconfig = { MAX_BATCH_VOLUME_BYTES = 128 }\n";
    let keys = "[plugins.scheduler]\nuse = \"batch-key\"\nmax_wait = \"60s\"\n[[feature]]\nname = \"batch-key\"\nfrom = \"parameter\"\n\
                key = \"adapter\"\ntype = \"key\"\n";
    for (plugin, batches) in [(volume, vec![(2, 3)]), (keys, vec![(2, 1), (4, 1)])] {
        let call = Call::serve("repository").environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
        // The test checks decisions, not their time on a busy machine.
        let call = call.environment("SEQUOR_PLUGINS_TIME", "1s");
        let repository = call.folder.path().join("repository");
        identity_model(&repository, "sum", "");
        fs::write(repository.join("sum/sequor.toml"), plugin).unwrap();
        let held = Held::start(call, &[("TRITONSERVER_DELAY_SCHEDULER", "6")]).await;
        let of = |n: u8| {
            let mut request = row(n.into());
            let adapter = ParameterChoice::StringParam(if n.is_multiple_of(3) { "fr" } else { "de" }.to_owned());
            request.parameters.insert("adapter".to_owned(), InferParameter { parameter_choice: Some(adapter) });
            held.send(request)
        };
        let sent: Vec<_> = (1..=6).map(of).collect();
        for (n, answer) in (1u8..).zip(Held::answers(sent).await) {
            assert_eq!(answer.unwrap(), f32::from(n).to_le_bytes().repeat(16), "{n}");
        }
        assert_eq!(held.batches().await, batches, "{plugin}");
    }
}

// === a bad row ===

/// A step whose input is an index into a table of four.
fn look_up(id: i64, index: i64, start: bool) -> ModelInferRequest {
    let mut request = step("sum", id, String::new(), 0, start, false);
    request.inputs[0].datatype = "INT64".to_owned();
    request.raw_input_contents = vec![index.to_le_bytes().to_vec().into()];
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_bad_row_among_sixteen_is_one_error_and_fifteen_answers() {
    let strategies = ["direct { }", "oldest { preferred_batch_size: [ 16 ] max_queue_delay_microseconds: 60000000 }"];
    for strategy in strategies {
        let held = Held::of("lookup", strategy, &[("TRITONSERVER_DELAY_SCHEDULER", "16")]).await;
        let bad = 8;
        let index = |id: i64| if id == bad { 99 } else { id % 4 };
        let sent: Vec<_> = (1..=16).map(|id| held.send(look_up(id, index(id), true))).collect();
        let entry = |index: i64| 10f32.powi(index as i32);
        for (id, answer) in (1..).zip(Held::answers(sent).await) {
            if id == bad {
                let failed = answer.unwrap_err();
                assert_eq!(failed.code(), tonic::Code::Internal, "{failed}");
                assert!(failed.message().starts_with("onnx runtime error 2: "), "{failed}");
                assert!(failed.message().contains("idx=99"), "{failed}");
                assert_eq!(failed.metadata().get("sequor-reason").unwrap(), "run_failed");
            } else {
                assert_eq!(answer.unwrap(), entry(id % 4).to_le_bytes(), "{id}");
            }
        }
        let batches = held.batches().await;
        assert!(batches.iter().any(|(size, _)| *size == 16), "all sixteen were one batch: {batches:?}");
        // Every sequence continues from its state; the failed one from its initial state.
        let sent: Vec<_> = (1..=16).map(|id| held.send(look_up(id, 3, false))).collect();
        for (id, answer) in (1..).zip(Held::answers(sent).await) {
            let had = if id == bad { 0.0 } else { entry(id % 4) };
            assert_eq!(answer.unwrap(), (had + 1000.0).to_le_bytes(), "{id}");
        }
    }
}
