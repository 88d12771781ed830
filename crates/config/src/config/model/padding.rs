//! `[input.X] ragged` and `[output.X] crop` of sequor.toml: pads inputs of different lengths to one length, and removes the padding from
//! outputs.

use sequor_core::{DataType, Dim, Dims};
use sequor_proto::{ModelConfig, ModelInput as ProtoInput};

use super::report::Report;
use super::sequor_toml::{CropKeys, InputSection, RaggedMode, bare};
use super::settings::{BatchInput, BatchInputKind, BatchSource, Crop, Padding, PaddingSide, RaggedInput};
use super::signature::Signature;
use super::{constant, dtype};
use crate::config::fault::{code, did_you_mean};

/// The types of a mask.
pub(super) const MASKS: &[DataType] = &[DataType::Bool, DataType::Int32, DataType::Int64, DataType::Fp32];

/// Checks everything that needs no graph.
pub(super) fn check(report: &mut Report<'_>) {
    let toml = report.toml;
    for (name, keys) in toml.keys.input.iter().filter(|(_, keys)| keys.has_ragged_keys()) {
        if let Some(input) = declared(report, name) {
            check_input(report, name, keys, input);
        }
    }
    for (name, keys) in &toml.keys.output {
        if let Some(crop) = &keys.crop {
            check_crop(report, name, crop);
        }
    }
}

fn declared<'a>(report: &mut Report<'a>, name: &str) -> Option<&'a ProtoInput> {
    let config = report.config;
    let found = config.input.iter().find(|input| input.name == *name);
    if found.is_none() && !config.input.is_empty() {
        let near = did_you_mean(name, config.input.iter().map(|input| input.name.as_str()));
        let what = format!("[input.{}]: the model has no such input{near}", bare(name));
        report.toml_fault(&["input", name], code::INPUT, what);
    }
    found
}

fn check_input(report: &mut Report<'_>, name: &str, keys: &InputSection, input: &ProtoInput) {
    let mut fault = |key: &str, what: String| report.toml_fault(&["input", name, key], code::INPUT, what);
    let padded = matches!(keys.ragged, Some(RaggedMode::Pad | RaggedMode::Bucket));
    if !padded {
        for (key, there) in keys.padding_keys() {
            if there {
                fault(key, format!("{key} needs ragged = \"pad\" or \"bucket\" for the same input"));
            }
        }
        return;
    }
    if input.allow_ragged_batch {
        fault("ragged", "config.pbtxt has allow_ragged_batch for this input, which is ragged = \"concat\"".to_owned());
    }
    if keys.constant.is_some() {
        fault("constant", "an input that clients send has no constant".to_owned());
    }
    let open = input.dims.iter().filter(|dim| **dim == -1).count();
    if open != 1 || input.reshape.is_some() || input.optional {
        let what = "a padded input has exactly one variable dimension, no reshape, and is not optional";
        fault("ragged", format!("{what}; this one has {open} variable dimension(s)"));
    }
    if input.data_type() == sequor_proto::DataType::TypeString {
        fault("ragged", "texts cannot be padded".to_owned());
    }
    let buckets = keys.buckets.as_deref().unwrap_or_default();
    match keys.ragged {
        Some(RaggedMode::Bucket) if buckets.is_empty() || !ascends(buckets) => {
            fault("ragged", "ragged = \"bucket\" needs buckets = [ … ], in ascending order".to_owned());
        }
        Some(RaggedMode::Pad) if keys.buckets.is_some() => {
            fault("buckets", "buckets needs ragged = \"bucket\"".to_owned());
        }
        _ => {}
    }
    if keys.multiple_of == Some(0) {
        fault("multiple_of", "multiple_of must be at least 1".to_owned());
    }
    if !report.batches() {
        let what = "padding means nothing here: max_batch_size is 0, so each request runs alone";
        report.toml_fault(&["input", name, "ragged"], code::INPUT, what);
    }
}

/// Whether these lengths are valid buckets.
pub(super) fn ascends(buckets: &[u64]) -> bool {
    buckets.windows(2).all(|pair| pair.first() < pair.last()) && buckets.first() != Some(&0)
}

fn check_crop(report: &mut Report<'_>, name: &str, crop: &CropKeys) {
    let config = report.config;
    let of_output = config.output.iter().find(|output| output.name == *name);
    let padded = |input: &str| {
        let keys = report.toml.keys.input.get(input);
        keys.is_some_and(|keys| matches!(keys.ragged, Some(RaggedMode::Pad | RaggedMode::Bucket)))
    };
    let what = match (&crop.like, &crop.lengths) {
        _ if of_output.is_none() && !config.output.is_empty() => {
            let near = did_you_mean(name, config.output.iter().map(|output| output.name.as_str()));
            format!("[output.{}]: the model has no such output{near}", bare(name))
        }
        _ if of_output.is_some_and(|output| !output.dims.contains(&-1)) => {
            "crop needs an output with a variable dimension".to_owned()
        }
        (Some(like), None) if !padded(like) => {
            format!("crop: \"{like}\" is not an input with ragged = \"pad\" or \"bucket\"")
        }
        (Some(_), None) if ratio(crop).is_none() => {
            "crop: ratio is two whole numbers above 0, such as \"1/4\"".to_owned()
        }
        (None, Some(lengths)) if !config.output.iter().any(|output| output.name == *lengths) => {
            format!("crop: the model has no output \"{lengths}\" that gives lengths")
        }
        (None, Some(_)) if crop.ratio.is_some() => "crop: ratio goes with like".to_owned(),
        (Some(_), Some(_)) | (None, None) => {
            "crop is { like = INPUT, ratio = \"1/4\" } or { lengths = OUTPUT }".to_owned()
        }
        _ => return,
    };
    report.toml_fault(&["output", name, "crop"], code::OUTPUT, what);
}

/// Checks the graph's inputs for lengths and masks.
pub(super) fn fit(report: &mut Report<'_>, graph: &Signature) {
    let toml = report.toml;
    for (name, keys) in &toml.keys.input {
        let wanted: [(&str, &Option<String>, &[DataType], usize); 2] =
            [("lengths", &keys.lengths, &[DataType::Int32, DataType::Int64], 1), ("mask", &keys.mask, MASKS, 2)];
        for (key, target, dtypes, rank) in wanted {
            let Some(target) = target else { continue };
            let shape = Dims(vec![Dim::Any; rank]);
            if let Some(what) = wrong_target(graph, key, target, (dtypes, &shape)) {
                report.toml_fault(&["input", name, key], code::NO_INPUT, what);
            }
        }
    }
}

/// Why an input of the graph cannot get lengths or a mask. It must have one of these types and this shape.
pub(super) fn wrong_target(
    graph: &Signature,
    key: &str,
    target: &str,
    (dtypes, shape): (&[DataType], &Dims),
) -> Option<String> {
    let Some(port) = graph.input(target) else { return Some(format!("{key}: the model has no input \"{target}\"")) };
    if port.dims == *shape && dtypes.contains(&port.dtype) {
        return None;
    }
    let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.config_name()).collect();
    let (dims, dtype) = (&port.dims, port.dtype.config_name());
    let names = names.join(" or ");
    Some(format!("{key}: \"{target}\" must be {shape} of {names}; in the model it is {dims} of {dtype}"))
}

/// The graph's inputs for lengths and masks.
pub(super) fn targets<'a>(keys: impl Iterator<Item = &'a InputSection>) -> impl Iterator<Item = &'a str> {
    keys.flat_map(|keys| keys.lengths.iter().chain(&keys.mask).map(String::as_str))
}

/// The batching of requests with different shapes.
pub(super) fn ragged(report: &Report<'_>, input: &ProtoInput) -> Option<RaggedInput> {
    let keys = report.toml.keys.input.get(&input.name);
    match keys.and_then(|keys| keys.ragged) {
        Some(RaggedMode::Pad | RaggedMode::Bucket) => {
            let keys = keys?;
            let axis = input.dims.iter().position(|dim| *dim == -1)?;
            let number = toml::Value::Float(keys.value.unwrap_or(0.0));
            Some(RaggedInput::Padded(Padding {
                axis,
                side: PaddingSide::Right,
                value: constant::element(dtype::from_proto(input.data_type)?, &number)?,
                multiple_of: u64::from(keys.multiple_of.unwrap_or(1)),
                buckets: keys.buckets.clone().unwrap_or_default(),
            }))
        }
        Some(RaggedMode::Concat) => Some(RaggedInput::Joined),
        None => input.allow_ragged_batch.then_some(RaggedInput::Joined),
    }
}

/// The batch inputs for lengths and masks.
pub(super) fn batch_inputs(report: &Report<'_>, graph: &Signature) -> Vec<BatchInput> {
    let mut made = Vec::new();
    for (name, keys) in &report.toml.keys.input {
        let source = report.config.input.iter().position(|input| input.name == *name);
        for (target, kind) in [(&keys.lengths, BatchInputKind::Lengths), (&keys.mask, BatchInputKind::Mask)] {
            let port = target.as_ref().and_then(|target| graph.input(target));
            made.extend(port.zip(source).map(|(port, source)| BatchInput {
                targets: vec![port.name.clone()],
                kind,
                dtype: port.dtype,
                source: BatchSource::Input(source),
            }));
        }
    }
    made
}

/// The crop of an output.
pub(super) fn crop(report: &Report<'_>, output: &sequor_proto::ModelOutput) -> Option<Crop> {
    let keys = report.toml.keys.output.get(&output.name)?.crop.as_ref()?;
    let axis = output.dims.iter().position(|dim| *dim == -1)?;
    let config: &ModelConfig = report.config;
    match (&keys.like, &keys.lengths) {
        (Some(like), _) => {
            let source = config.input.iter().position(|input| input.name == *like)?;
            let source_axis = config.input.get(source)?.dims.iter().position(|dim| *dim == -1)?;
            Some(Crop::Like { axis, source: (source, source_axis), ratio: ratio(keys)? })
        }
        (None, Some(lengths)) => {
            let output = config.output.iter().position(|output| output.name == *lengths)?;
            Some(Crop::Lengths { axis, output })
        }
        (None, None) => None,
    }
}

fn ratio(crop: &CropKeys) -> Option<(u64, u64)> {
    let Some(text) = &crop.ratio else { return Some((1, 1)) };
    let (up, down) = text.split_once('/').unwrap_or((text, "1"));
    let number = |text: &str| text.trim().parse().ok().filter(|n| *n > 0);
    Some((number(up)?, number(down)?))
}
