//! `model_warmup`: samples that run before a model is ready.

use std::path::{Path, PathBuf};

use sequor_core::{DataType, Dims, Shape};
use sequor_proto::model_warmup::{Input, input::InputDataType};
use sequor_proto::{ModelConfig, ModelWarmup};

use crate::config::fault::{code, did_you_mean};
use crate::config::units::human;

use super::dtype;
use super::names::leaves_directory;
use super::report::Report;
use super::settings::{WarmupData, WarmupInput, WarmupSample};

/// Maximum bytes of one sample, for all its rows and inputs.
const MAX_SAMPLE_BYTES: u64 = 1 << 30;

pub(super) fn check(report: &mut Report<'_>, file_size: &dyn Fn(&Path) -> Option<u64>) {
    for (i, sample) in report.config.model_warmup.iter().enumerate() {
        let field = format!("model_warmup[{i}]");
        let (name, most) = (&sample.name, i64::from(report.max_batch_size()).max(1));
        if i64::from(sample.batch_size) > most {
            let model = report.model();
            let what = format!(
                "warm-up sample '{name}' has batch_size {}, and the maximum of {model} is {most}",
                sample.batch_size
            );
            report.fault(&format!("{field}.batch_size"), code::BATCHING, what);
        }
        for (input, given) in &sample.inputs {
            check_input(report, &field, input, given, file_size);
        }
        check_size(report, &field, sample);
        check_names(report, &field, sample);
    }
}

/// Checks that a sample fits the memory of any server: its configuration may come from a client.
fn check_size(report: &mut Report<'_>, field: &str, sample: &ModelWarmup) {
    let row = sample.inputs.values().try_fold(0_u64, |bytes, input| {
        let size = dtype::from_proto(input.data_type).map_or(1, DataType::zero_size);
        bytes.checked_add(shape(input).bytes(size)?)
    });
    let bytes = row.and_then(|row| row.checked_mul(u64::from(sample.batch_size.max(1))));
    if bytes.is_none_or(|bytes| bytes > MAX_SAMPLE_BYTES) {
        let what = format!(
            "warm-up sample '{}' has more than {} in all rows and inputs; give it smaller dims or a smaller batch_size",
            sample.name,
            human(MAX_SAMPLE_BYTES)
        );
        report.fault(field, code::INPUT, what);
    }
}

fn check_input(
    report: &mut Report<'_>,
    field: &str,
    name: &str,
    input: &Input,
    file_size: &dyn Fn(&Path) -> Option<u64>,
) {
    let field = format!("{field}.inputs");
    if input.dims.iter().any(|dim| *dim < 0) {
        let what = format!("warmup setting expects all variable-size dimensions are specified for input '{name}'");
        return report.fault(&field, code::INPUT, what);
    }
    let Some(dtype) = dtype::from_proto(input.data_type) else {
        let what = format!("warmup setting expects input '{name}' to have data_type set");
        return report.fault(&field, code::INPUT, what);
    };
    match &input.input_data_type {
        None => {
            let what = format!("warmup setting expects input '{name}' to have input_data_type set");
            report.fault(&field, code::INPUT, what);
        }
        Some(InputDataType::InputDataFile(file)) if file.is_empty() || leaves_directory(file) => {
            let what = format!("input_data_file '{file}' is not a file of the folder warmup");
            report.fault(&field, code::INPUT, what);
        }
        Some(InputDataType::InputDataFile(file)) => {
            let path = warmup_file(report.directory, file);
            let need = dtype.size().zip(shape(input).elements()).map(|(size, n)| n.saturating_mul(size as u64));
            let what = match (file_size(&path), need) {
                (None, _) => format!("{} cannot be read", path.display()),
                (Some(there), Some(need)) if there < need => format!(
                    "warmup setting expects {need} bytes, but the data provided from {} only has {there} bytes",
                    path.display()
                ),
                _ => return,
            };
            report.fault(&field, code::INPUT, what);
        }
        Some(InputDataType::ZeroData(_) | InputDataType::RandomData(_)) => {}
    }
    let declared = report.config.input.iter().find(|declared| declared.name == *name);
    if let Some(declared) = declared
        && (declared.data_type != input.data_type || !Dims::from_wire(&declared.dims).matches(&shape(input)))
    {
        let (dims, of) = (Dims::from_wire(&declared.dims), declared.data_type().as_str_name());
        let (got, got_type) = (shape(input), input.data_type().as_str_name());
        let what = format!("warm-up input '{name}' is {got_type} {got}, and the model's input is {of} {dims}");
        report.fault(&field, code::INPUT, what);
    }
}

/// Checks that a sample has every required input, and that every name is one of the model's.
fn check_names(report: &mut Report<'_>, field: &str, sample: &ModelWarmup) {
    let config = report.config;
    // Without inputs in the configuration, the graph decides later.
    if config.input.is_empty() || sample.batch_size == 0 {
        return;
    }
    for input in config.input.iter().filter(|input| !input.optional && !sample.inputs.contains_key(&input.name)) {
        let what = format!("warm-up sample '{}' has no input '{}'", sample.name, input.name);
        report.fault(field, code::INPUT, what);
    }
    let names = || {
        let controls = report.sequence().into_iter().flat_map(|s| s.control_input.iter().map(|c| c.name.as_str()));
        let states = report.sequence().into_iter().flat_map(|s| s.state.iter().map(|s| s.input_name.as_str()));
        let described = config.batch_input.iter().flat_map(|b| b.target_name.iter().map(String::as_str));
        let constants = report.toml.keys.input.keys().map(String::as_str);
        config.input.iter().map(|i| i.name.as_str()).chain(controls).chain(states).chain(described).chain(constants)
    };
    let unknown: Vec<(String, String)> = sample
        .inputs
        .keys()
        .filter(|name| !names().any(|known| known == *name))
        .map(|name| (name.clone(), did_you_mean(name, names())))
        .collect();
    for (name, near) in unknown {
        let what = format!("warm-up sample '{}': the model has no input '{name}'{near}", sample.name);
        report.fault(&format!("{field}.inputs"), code::NO_INPUT, what);
    }
}

fn shape(input: &Input) -> Shape {
    Shape(input.dims.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).collect())
}

/// The path of an `input_data_file`.
fn warmup_file(directory: &Path, file: &str) -> PathBuf {
    directory.join("warmup").join(file)
}

/// The samples in the server's own types.
pub(super) fn samples(config: &ModelConfig, directory: &Path) -> Vec<WarmupSample> {
    let input = |(name, input): (&String, &Input)| {
        Some(WarmupInput {
            name: name.clone(),
            dtype: dtype::from_proto(input.data_type)?,
            shape: shape(input),
            data: match &input.input_data_type {
                Some(InputDataType::InputDataFile(file)) => WarmupData::File(warmup_file(directory, file)),
                Some(InputDataType::RandomData(_)) => WarmupData::Random,
                Some(InputDataType::ZeroData(_)) | None => WarmupData::Zero,
            },
        })
    };
    let sample = |(index, sample): (usize, &ModelWarmup)| WarmupSample {
        index,
        name: sample.name.clone(),
        batch_size: sample.batch_size,
        count: sample.count,
        inputs: sample.inputs.iter().filter_map(input).collect(),
    };
    config.model_warmup.iter().enumerate().map(sample).collect()
}
