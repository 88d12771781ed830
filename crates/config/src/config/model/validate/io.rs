//! Checks inputs and outputs: names, types, dims, formats, reshapes.

use sequor_proto::{ModelTensorReshape, model_input::Format};

use super::reshape;
use crate::config::fault::code;
use crate::config::model::dtype;
use crate::config::model::names::leaves_directory;
use crate::config::model::report::{Report, nth};

/// The fields that inputs and outputs share.
struct DeclaredTensor<'a> {
    /// `input` or `output`.
    side: &'static str,
    code: &'static str,
    n: usize,
    name: &'a str,
    data_type: i32,
    dims: &'a [i64],
    reshape: Option<&'a ModelTensorReshape>,
    is_shape: bool,
}

pub(super) fn inputs(report: &mut Report<'_>) {
    for (n, input) in report.config.input.iter().enumerate() {
        let reshape = input.reshape.as_ref();
        let (name, data_type, dims) = (input.name.as_str(), input.data_type, input.dims.as_slice());
        let is_shape = input.is_shape_tensor;
        tensor(
            report,
            &DeclaredTensor { side: "input", code: code::INPUT, n, name, data_type, dims, reshape, is_shape },
        );
        if input.format() != Format::None && input.dims.len() != 3 {
            let what = format!("model input NHWC/NCHW require 3 dims for {}", report.model());
            report.fault(&format!("input[{n}].format"), code::INPUT, what);
        }
    }
}

pub(super) fn outputs(report: &mut Report<'_>) {
    for (n, output) in report.config.output.iter().enumerate() {
        let reshape = output.reshape.as_ref();
        let (name, data_type, dims) = (output.name.as_str(), output.data_type, output.dims.as_slice());
        let is_shape = output.is_shape_tensor;
        tensor(
            report,
            &DeclaredTensor { side: "output", code: code::OUTPUT, n, name, data_type, dims, reshape, is_shape },
        );
        if leaves_directory(&output.label_filename) {
            let file = &output.label_filename;
            let what =
                format!("model output '{name}' label_filename '{file}' leaves the directory of {}", report.model());
            report.fault(&format!("output[{n}].label_filename"), code::OUTPUT, what);
        }
    }
}

fn tensor(report: &mut Report<'_>, tensor: &DeclaredTensor<'_>) {
    let DeclaredTensor { side, code, n, name, .. } = *tensor;
    let field = nth(side, n);
    let model = report.model();
    if name.is_empty() {
        report.fault(&field, code, format!("model {side} must specify 'name' for {model}"));
        return;
    }
    let mut fault = |part: &str, code, what: &str| {
        report.fault(&format!("{field}.{part}"), code, format!("model {side} '{name}' {what} for {model}"));
    };
    if dtype::from_proto(tensor.data_type).is_none() {
        fault("data_type", code, "must specify 'data_type'");
    }
    if tensor.dims.is_empty() {
        fault("dims", code, "must specify 'dims'");
    }
    let sound = tensor.dims.iter().all(|d| *d >= 1 || *d == -1);
    if !sound {
        fault("dims", code, "dimension must be integer >= 1, or -1 to indicate a variable-size dimension");
    }
    if tensor.is_shape && report.config.max_batch_size > 0 {
        let what = format!(
            "shape tensors are only supported for TensorRT platform for {model} (the values of a batch would need its size in front, \
             which no graph of ONNX expects; with max_batch_size 0 a shape tensor is an ordinary tensor)"
        );
        report.fault(&format!("{field}.is_shape_tensor"), code, what);
    }
    if let Some(shape) = tensor.reshape.filter(|_| sound && !tensor.dims.is_empty())
        && let Some(what) = reshape::fault(tensor.dims, &shape.shape, report.batches())
    {
        let what = format!("model {side} '{name}' {what} for {model}");
        report.fault(&format!("{field}.reshape"), code::RESHAPE, what);
    }
}
