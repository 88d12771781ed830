//! Checks control inputs: each tensor has one kind, each kind has one tensor, and each flag has two values.

use std::collections::BTreeSet;

use sequor_proto::model_sequence_batching::{Control, control::Kind};

use crate::config::fault::code;
use crate::config::model::dtype;
use crate::config::model::report::Report;
use sequor_core::DataType;

/// The possible types of a correlation id in a model.
const ID_TYPES: [DataType; 5] = [DataType::Uint64, DataType::Int64, DataType::Uint32, DataType::Int32, DataType::Bytes];

pub(super) fn check(report: &mut Report<'_>) {
    let Some(sequence) = report.sequence() else { return };
    let model = report.model();
    let (mut tensors, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for (i, input) in sequence.control_input.iter().enumerate() {
        let field = format!("sequence_batching.control_input[{i}]");
        if input.name.is_empty() {
            let what = format!("sequence batching control tensor must have a name for {model}");
            report.fault(&field, code::CONTROL, what);
        }
        if input.control.is_empty() {
            let what = format!("sequence batching control tensor '{}' has no control for {model}", input.name);
            report.fault(&field, code::CONTROL, what);
        }
        for (n, control) in input.control.iter().enumerate() {
            let field = format!("{field}.control[{n}]");
            if !input.name.is_empty() && !tensors.insert(input.name.as_str()) {
                let what = format!(
                    "sequence batching control tensor '{}' is specified for multiple control kinds for {model}",
                    input.name
                );
                report.fault(&field, code::CONTROL, what);
            }
            let kind = control.kind().as_str_name();
            if !kinds.insert(kind) {
                let what = format!("sequence batching specifies multiple {kind} tensors for {model}");
                report.fault(&field, code::CONTROL, what);
            }
            if let Some(what) = values(control, model) {
                report.fault(&field, code::CONTROL, what);
            }
        }
    }
}

/// Faults of the values of one control.
fn values(control: &Control, model: &str) -> Option<String> {
    let kind = control.kind().as_str_name();
    let lists = [
        ("int32_false_true", control.int32_false_true.len()),
        ("fp32_false_true", control.fp32_false_true.len()),
        ("bool_false_true", control.bool_false_true.len()),
    ];
    let given: Vec<_> = lists.into_iter().filter(|(_, n)| *n > 0).collect();
    if control.kind() == Kind::ControlSequenceCorrid {
        return correlation_id(control, !given.is_empty(), model);
    }
    match given.as_slice() {
        [] => Some(format!(
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for {kind} for {model}"
        )),
        [(_, 2)] => None,
        [(list, _)] => {
            Some(format!("sequence batching control '{list}' must have exactly 2 entries for {kind} for {model}"))
        }
        _ => Some(format!(
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for {kind} \
             for {model}"
        )),
    }
}

fn correlation_id(control: &Control, has_list: bool, model: &str) -> Option<String> {
    if has_list {
        return Some(format!(
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for \
             CONTROL_SEQUENCE_CORRID for {model}"
        ));
    }
    let known = dtype::from_proto(control.data_type).is_some_and(|t| ID_TYPES.contains(&t));
    (!known).then(|| {
        format!(
            "unexpected data type for control CONTROL_SEQUENCE_CORRID for {model}. Allowed data types are TYPE_UINT64, TYPE_INT64, \
             TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
        )
    })
}
