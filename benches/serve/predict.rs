//! Measures a call of TensorFlow Serving's `Predict` next to `ModelInfer` with the same tensors, and the memory that short sequences leave
//! behind.

use std::time::Duration;

use sequor::bench::{Child, drive, process};
use sequor_proto::ModelInferRequest;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::tensorflow::serving::{ModelSpec, PredictRequest};
use sequor_proto::tensorflow::tensor_shape_proto::Dim;
use sequor_proto::tensorflow::{DataType, TensorProto, TensorShapeProto};
use sequor_proto::tensorflow_service::prediction_service_client::PredictionServiceClient;
use tonic::transport::Channel;

use crate::{Options, models, sequor};

const ELEMENTS: usize = 16;
/// Numbers of finished sequences at which memory is measured.
const BRIEF: [u64; 2] = [10_000, 100_000];
const CLIENTS: u64 = 32;

#[derive(Clone, Copy, PartialEq)]
enum MeasuredCall {
    Infer,
    Predict,
}

/// The server's CPU time a request: `ModelInfer` twice, to show the machine's noise, and `Predict`.
pub(crate) fn figures(options: &Options) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let repository = models::repository();
    let server = Child::serve(&sequor(), repository.path()).expect("the server");
    println!(
        "\nCPU time of a request without state, {ELEMENTS} numbers: us; Predict has its tensors in tensor_content"
    );
    println!("clients   ModelInfer   again   Predict   again/first   Predict/ModelInfer   aim");
    for clients in [1, 32] {
        let mut rows = Vec::new();
        for turn in 0..options.turns {
            let mut calls = [MeasuredCall::Infer, MeasuredCall::Infer, MeasuredCall::Predict];
            if turn % 2 == 1 {
                calls.reverse();
            }
            let mut costs = Vec::new();
            for call in calls {
                costs.push(runtime.block_on(cost(&server, call, clients, options.requests())));
            }
            if turn % 2 == 1 {
                costs.reverse();
            }
            rows.push([costs[0], costs[1], costs[2]]);
        }
        let column = |n: usize| middle(rows.iter().map(|row| row[n]).collect());
        let ratio = |n: usize| middle(rows.iter().map(|row| row[n] / row[0]).collect());
        let verdict = if ratio(2) <= 1.3 { "ok" } else { "MISSED" };
        println!(
            "{clients:>7}{:>13.1}{:>8.1}{:>10.1}{:>14.3}{:>21.3}   1.3 {verdict}",
            column(0),
            column(1),
            column(2),
            ratio(1),
            ratio(2)
        );
    }
    brief(&runtime, options);
}

async fn cost(server: &Child, call: MeasuredCall, clients: usize, requests: u64) -> f64 {
    let warm = clients as u64 * 20;
    run(server, call, clients, warm).await;
    let before = process::cpu(server.pid()).expect("the server");
    run(server, call, clients, requests).await;
    let spent = process::cpu(server.pid()).expect("the server") - before;
    spent.as_secs_f64() * 1e6 / requests as f64
}

async fn run(server: &Child, call: MeasuredCall, clients: usize, requests: u64) {
    let each = requests / clients as u64;
    let channel = drive::connect(&server.grpc).await.expect("a connection");
    let tasks: Vec<_> = (0..clients).map(|_| tokio::spawn(ask(channel.clone(), call, each))).collect();
    for task in tasks {
        task.await.expect("a client");
    }
}

async fn ask(channel: Channel, call: MeasuredCall, requests: u64) {
    let data: Vec<u8> = (0..ELEMENTS).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let mut infer = GrpcInferenceServiceClient::new(channel.clone());
    let mut predict = PredictionServiceClient::new(channel);
    let input = InferInputTensor {
        name: "INPUT".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, ELEMENTS as i64],
        ..InferInputTensor::default()
    };
    let infer_request = ModelInferRequest {
        model_name: "identity".to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![data.clone().into()],
        ..ModelInferRequest::default()
    };
    let predict_request = predict_request("identity", tensor(&[1, ELEMENTS as i64], data), &[]);
    for _ in 0..requests {
        match call {
            MeasuredCall::Infer => {
                let answer = infer.model_infer(infer_request.clone()).await.expect("an answer").into_inner();
                assert_eq!(answer.raw_output_contents[0].len(), 4 * ELEMENTS);
            }
            MeasuredCall::Predict => {
                let answer = predict.predict(predict_request.clone()).await.expect("an answer").into_inner();
                assert_eq!(answer.outputs["OUTPUT"].tensor_content.len(), 4 * ELEMENTS);
            }
        }
    }
}

fn shape(dims: &[i64]) -> Option<TensorShapeProto> {
    let dim = dims.iter().map(|size| Dim { size: *size, name: String::new() }).collect();
    Some(TensorShapeProto { dim, unknown_rank: false })
}

fn tensor(dims: &[i64], data: Vec<u8>) -> TensorProto {
    let dtype = DataType::DtFloat.into();
    TensorProto { dtype, tensor_shape: shape(dims), tensor_content: data.into(), ..TensorProto::default() }
}

fn predict_request(model: &str, input: TensorProto, special: &[(&str, TensorProto)]) -> PredictRequest {
    let special = special.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone()));
    let inputs = std::iter::once(("INPUT".to_owned(), input)).chain(special).collect();
    let model_spec = Some(ModelSpec { name: model.to_owned(), ..ModelSpec::default() });
    PredictRequest { model_spec, inputs, ..PredictRequest::default() }
}

// === memory ===

/// Sequences of two requests, START and END: the server's memory after some of them and after ten times as many.
fn brief(runtime: &tokio::runtime::Runtime, options: &Options) {
    let repository = models::repository();
    let server = Child::serve(&sequor(), repository.path()).expect("the server");
    let part = if options.quick { 10 } else { 1 };
    let [few, many] = BRIEF.map(|count| count / part);
    let memory = || {
        std::thread::sleep(Duration::from_secs(1));
        process::resident(server.pid()).expect("the server") as f64 / f64::from(1 << 20)
    };
    runtime.block_on(live(&server, 1, few));
    let after_few = memory();
    runtime.block_on(live(&server, few + 1, many));
    let after_many = memory();
    let verdict = if after_many <= after_few + 5.0 { "ok" } else { "MISSED" };
    println!(
        "\nmemory after {few} sequences of START and END {after_few:.1} MiB, after {many} {after_many:.1} MiB   at most 5 MiB more: {verdict}"
    );
}

/// Plays the sequences with these ids, each once.
async fn live(server: &Child, first: u64, last: u64) {
    let channel = drive::connect(&server.grpc).await.expect("a connection");
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut predict = PredictionServiceClient::new(channel.clone());
            tokio::spawn(async move {
                for id in (first..=last).filter(|id| id % CLIENTS == client) {
                    for control in [1, 2] {
                        let request = step(id, control);
                        predict.predict(request).await.expect("an answer");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client");
    }
}

fn step(id: u64, control: u32) -> PredictRequest {
    step_of("oldest", id, control, 1)
}

/// A step of a sequence of this model, with this many numbers.
pub(crate) fn step_of(model: &str, id: u64, control: u32, numbers: i64) -> PredictRequest {
    let id = TensorProto {
        dtype: DataType::DtUint64.into(),
        tensor_shape: shape(&[1]),
        uint64_val: vec![id],
        ..TensorProto::default()
    };
    let control = TensorProto {
        dtype: DataType::DtUint32.into(),
        tensor_shape: shape(&[1]),
        uint32_val: vec![control],
        ..TensorProto::default()
    };
    let data = (0..numbers).flat_map(|_| 1f32.to_le_bytes()).collect();
    let input = tensor(&[1, numbers], data);
    predict_request(model, input, &[("sequence_id", id), ("sequence_control_input", control)])
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
