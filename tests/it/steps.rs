//! Builds steps of sequences of the int32 accumulator, and models of it in each strategy.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::{InferParameter, ModelInferRequest, ModelInferResponse};

use crate::server::{Server, copy, get, models};

/// The two models of [`accumulators`].
pub(crate) const STRATEGIES: [&str; 2] = ["oldest", "direct"];

/// Writes the int32 accumulator into a repository twice, once a strategy, with this many slots and idle time.
pub(crate) fn accumulators(repository: &Path, slots: u32, idle_micros: u64) {
    let source = models().join("accumulator_int32");
    let config = fs::read_to_string(source.join("config.pbtxt")).unwrap();
    let replaced = |config: &str, from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        config.replace(from, to)
    };
    let config = replaced(&config, "idle_microseconds: 5000000", &format!("idle_microseconds: {idle_micros}"));
    let oldest = replaced(&config, "max_candidate_sequences: 8", &format!("max_candidate_sequences: {slots}"));
    let direct = replaced(&config, "oldest {\n    max_candidate_sequences: 8\n  }", "direct { }");
    let direct = replaced(&direct, "max_batch_size: 8", &format!("max_batch_size: {slots}"));
    for (name, config) in STRATEGIES.iter().zip([oldest, direct]) {
        copy(&source, &repository.join(name));
        fs::write(repository.join(name).join("config.pbtxt"), replaced(&config, "accumulator_int32", name)).unwrap();
    }
}

pub(crate) fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

/// A step of a sequence, which requests only the sum. `mark` is the request's id.
pub(crate) fn step(model: &str, id: i64, mark: String, value: i32, start: bool, end: bool) -> ModelInferRequest {
    let named = |name: &str, choice| (name.to_owned(), parameter(choice));
    ModelInferRequest {
        model_name: model.to_owned(),
        id: mark,
        parameters: BTreeMap::from([
            named("sequence_id", ParameterChoice::Int64Param(id)),
            named("sequence_start", ParameterChoice::BoolParam(start)),
            named("sequence_end", ParameterChoice::BoolParam(end)),
        ]),
        inputs: vec![InferInputTensor {
            name: "INPUT".to_owned(),
            datatype: "INT32".to_owned(),
            shape: vec![1, 1],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![value.to_le_bytes().to_vec().into()],
        ..ModelInferRequest::default()
    }
}

/// The running sum in an answer, if it has one.
pub(crate) fn sum(answer: &ModelInferResponse) -> Option<i32> {
    let at = answer.outputs.iter().position(|output| output.name == "OUTPUT")?;
    Some(i32::from_le_bytes(answer.raw_output_contents.get(at)?.as_ref().try_into().ok()?))
}

/// The sum of a metric's samples that contain all of these label texts.
pub(crate) fn metric(server: &Server, name: &str, labels: &[&str]) -> f64 {
    let (status, text) = get(server.metrics, "/metrics");
    assert_eq!(status, 200);
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|l| line.contains(l))
    };
    let value = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap();
    text.lines().filter(is_it).map(value).sum()
}
