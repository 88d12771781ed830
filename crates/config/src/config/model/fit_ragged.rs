//! Checks that a graph fits the configuration's ragged inputs, batch inputs and batch outputs.

use sequor_core::{DataType, Dim, Dims};
use sequor_proto::{ModelInput, batch_input::Kind};

use super::dtype;
use super::report::Report;
use super::signature::{Port, Signature};
use crate::config::fault::code;

/// Checks that a ragged input is a flat list in the graph.
pub(super) fn check_ragged(report: &mut Report<'_>, field: &str, port: &Port, input: &ModelInput) {
    if port.dims.0 == [Dim::Any] {
        return;
    }
    let (name, dims) = (&input.name, &port.dims);
    let what = format!(
        "configuration expects model provides input with shape [-1]  for ragged input '{name}', model provides {dims} (requests are \
         joined to one list of elements: the model needs an input of shape [-1], and one more that a batch_input fills, to know where each \
         request ends. For this model, set ragged = \"pad\" with lengths or mask for [input.{name}] in sequor.toml)"
    );
    report.fault(&format!("{field}.allow_ragged_batch"), code::DIMS, what);
}

pub(super) fn check(report: &mut Report<'_>, graph: &Signature) {
    let config = report.config;
    for (i, input) in config.batch_input.iter().enumerate() {
        let field = format!("batch_input[{i}]");
        let rank = input.source_input.first().and_then(|name| source_rank(report, name)).unwrap_or(0);
        let item = Dim::Fixed(rank as u64);
        let fits: &dyn Fn(&Dims) -> bool = match input.kind() {
            Kind::BatchItemShape => {
                &|d| matches!(d.0.as_slice(), [Dim::Any, last] if *last == Dim::Any || *last == item)
            }
            _ => &|d| d.0 == [Dim::Any],
        };
        let wants = if input.kind() == Kind::BatchItemShape { format!("[-1,{rank}]") } else { "[-1]".to_owned() };
        for name in &input.target_name {
            check_target(report, graph, &field, name, (dtype::from_proto(input.data_type), fits, &wants));
        }
    }
    for (i, output) in config.batch_output.iter().enumerate() {
        let rank = output.source_input.first().and_then(|name| source_rank(report, name)).unwrap_or(0);
        for name in &output.target_name {
            let Some(of) = config.output.iter().find(|o| o.name == *name) else { continue };
            let dims = of.reshape.as_ref().map_or(&of.dims, |r| &r.shape);
            if dims.iter().skip(rank).any(|dim| *dim == -1) {
                let what = format!(
                    "output '{name}' has a variable dimension that its source input does not have: the source has {rank} dimension(s)"
                );
                report.fault(&format!("batch_output[{i}]"), code::DIMS, what);
            }
            if graph.output(name).is_some_and(|port| port.dims.rank() == 0) {
                let what = format!("output '{name}' of the model has one element and cannot be cut by batch_output");
                report.fault(&format!("batch_output[{i}]"), code::DIMS, what);
            }
        }
    }
}

type WantedPort<'a> = (Option<DataType>, &'a dyn Fn(&Dims) -> bool, &'a str);

fn check_target(
    report: &mut Report<'_>,
    graph: &Signature,
    field: &str,
    name: &str,
    (dtype, fits, wants): WantedPort<'_>,
) {
    let field = format!("{field}.target_name");
    let Some(port) = graph.input(name) else {
        let what = format!("batch input \"{name}\": the model has no such input");
        return report.fault(&field, code::NO_INPUT, what);
    };
    if let Some(dtype) = dtype.filter(|dtype| *dtype != port.dtype) {
        let (model, declared) = (port.dtype.config_name(), dtype.config_name());
        report.fault(&field, code::TYPE, format!("batch input \"{name}\": model has {model}, config says {declared}"));
    }
    if !fits(&port.dims) {
        let what = format!("batch input \"{name}\": model takes {}, and its kind needs {wants}", port.dims);
        report.fault(&field, code::DIMS, what);
    }
}

/// Number of dimensions of an item of this input, in the graph's form.
fn source_rank(report: &Report<'_>, name: &str) -> Option<usize> {
    let input = report.config.input.iter().find(|input| input.name == *name)?;
    Some(input.reshape.as_ref().map_or(input.dims.len(), |r| r.shape.len()))
}
