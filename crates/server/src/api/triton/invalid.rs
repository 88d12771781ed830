//! Triton's sentences for requests that do not fit their model.

use std::fmt::Display;

use sequor_core::DataType;

use crate::api::Code;
use crate::error::{Invalid, WrongSource};

pub(super) fn invalid(model: &str, id: &str, what: &Invalid) -> (Code, String) {
    let text = sentence(model, what);
    match what {
        Invalid::IdTooLong { .. } => (Code::Unimplemented, text),
        what if has_id(what) => {
            let id = if id.is_empty() { "<id_unknown>" } else { id };
            (Code::InvalidArgument, format!("[request id: {id}] {text}"))
        }
        _ => (Code::InvalidArgument, text),
    }
}

/// Whether Triton puts the request's id in front of the sentence.
fn has_id(what: &Invalid) -> bool {
    match what {
        Invalid::UnknownInput { .. }
        | Invalid::UnknownOutput { .. }
        | Invalid::SequenceBatch
        | Invalid::IdType { .. }
        | Invalid::IdTooLong { .. }
        | Invalid::NoData { .. }
        | Invalid::StateInput { .. }
        | Invalid::CopySource(_)
        | Invalid::Malformed(_) => false,
        Invalid::InputCount { .. }
        | Invalid::DuplicateInput { .. }
        | Invalid::DataType { .. }
        | Invalid::UnknownDataType { .. }
        | Invalid::Shape { .. }
        | Invalid::NegativeDim { .. }
        | Invalid::NoBatchDim { .. }
        | Invalid::BatchSizes { .. }
        | Invalid::BatchTooLarge { .. }
        | Invalid::ByteSize { .. }
        | Invalid::StringLength { .. }
        | Invalid::StringData { .. }
        | Invalid::StringCount { .. } => true,
    }
}

fn sentence(model: &str, what: &Invalid) -> String {
    match what {
        Invalid::UnknownInput { input, known } => {
            format!("unexpected inference input '{input}' for model '{model}'{}", it_has("inputs", known))
        }
        Invalid::UnknownOutput { output, known } => {
            format!("unexpected inference output '{output}' for model '{model}'{}", it_has("outputs", known))
        }
        Invalid::InputCount { required, all, got, missing } => input_count(model, (*required, *all), got, missing),
        Invalid::DuplicateInput { input } => format!("input '{input}' already exists in request"),
        Invalid::DataType { input, got, want } => {
            format!("inference input '{input}' data-type is '{got}', but model '{model}' expects '{want}'")
        }
        Invalid::UnknownDataType { input, got, want } => {
            let known = DataType::ALL.map(DataType::name).join(", ");
            format!(
                "inference input '{input}' data-type is '<invalid>', but model '{model}' expects '{want}' \
                 ('{got}' is none of {known})"
            )
        }
        Invalid::Shape { input, want, got, batching } => {
            let note = if *batching { BATCH_NOTE } else { "" };
            format!("unexpected shape for input '{input}' for model '{model}'. Expected {want}, got {got}.{note}")
        }
        Invalid::NegativeDim { input, got } => {
            let got = list(got);
            format!("All input dimensions should be specified for input '{input}' for model '{model}', got {got}")
        }
        Invalid::NoBatchDim { input } => {
            format!("input '{input}' has no shape but model requires batch dimension for '{model}'")
        }
        Invalid::BatchSizes { input } => {
            format!("input '{input}' batch size does not match other inputs for '{model}'")
        }
        Invalid::BatchTooLarge { max } => format!("inference request batch-size must be <= {max} for '{model}'"),
        Invalid::SequenceBatch => format!(
            "inference request to model '{model}' must specify batch-size 1 due to requirements of sequence batcher"
        ),
        Invalid::ByteSize { input, want, got } => {
            format!("input byte size mismatch for input '{input}' for model '{model}'. Expected {want}, got {got}")
        }
        Invalid::StringLength { .. } | Invalid::StringData { .. } | Invalid::StringCount { .. } => strings(model, what),
        Invalid::IdType { control, got, want } => {
            let takes = if *want == DataType::Bytes { "a text" } else { "a whole number" };
            format!(
                "sequence batching control '{control}' data-type is '{got}', but model '{model}' expects '{want}' \
                 (it takes {takes} as sequence_id)"
            )
        }
        Invalid::IdTooLong { limit } => format!("string correlation ID cannot be longer than {limit} characters"),
        Invalid::StateInput { input } => format!(
            "input '{input}' is a state of model '{model}', which its sequences keep by themselves; only a START may bring it"
        ),
        Invalid::CopySource(why) => copy_source(model, *why),
        Invalid::NoData { input } => {
            format!("unable to find data for input tensor '{input}' for model '{model}' in request.")
        }
        Invalid::Malformed(text) => text.clone(),
    }
}

/// Why a request may not have the parameter `sequence_from`.
fn copy_source(model: &str, why: WrongSource) -> String {
    match why {
        WrongSource::NotAllowed => format!(
            "model '{model}' takes no parameter 'sequence_from'; set client_state = true in [sequence] of {model}/sequor.toml"
        ),
        WrongSource::Ensemble => {
            format!("'{model}' is an ensemble, which has no state of its own: it takes no parameter 'sequence_from'")
        }
        WrongSource::NotAtStart => {
            "parameter 'sequence_from' is for START; a later step goes on from the state of its own sequence".to_owned()
        }
        WrongSource::Itself => "parameter 'sequence_from' must name another sequence, whose state is copied".to_owned(),
    }
}

/// Lists the inputs or outputs of the model, for the end of the sentence about an unknown name.
fn it_has(what: &str, known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let more = if known.len() > NAMED { ", …" } else { "" };
    let names: Vec<String> = known.iter().take(NAMED).map(|name| format!("'{name}'")).collect();
    format!(" (its {what}: {}{more})", names.join(", "))
}

/// Maximum names in a sentence.
const NAMED: usize = 16;

const BATCH_NOTE: &str = " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be \
    prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try \
    setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size.";

/// Triton leaves the last bracket open if nothing is missing. This sentence closes it.
fn input_count(model: &str, (required, all): (usize, usize), got: &[String], missing: &[String]) -> String {
    let expected = if required == all {
        format!("expected {all} inputs but got {} inputs", got.len())
    } else {
        format!("expected number of inputs between {required} and {all} but got {} inputs", got.len())
    };
    let quoted = |names: &[String]| list(names.iter().map(|n| format!("'{n}'")));
    format!(
        "{expected} for model '{model}'. Got input(s) {}, but missing required input(s) {}. \
         Please provide all required input(s).",
        quoted(got),
        quoted(missing)
    )
}

fn strings(model: &str, what: &Invalid) -> String {
    match what {
        Invalid::StringLength { input } => format!(
            "incomplete string length indicator for inference input '{input}' for model '{model}', \
             expecting 4 bytes but the data ends before"
        ),
        Invalid::StringData { input, want, left } => format!(
            "incomplete string data for inference input '{input}' for model '{model}', \
             expecting string of length {want} but only {left} bytes available"
        ),
        Invalid::StringCount { input, want, got } if got > want => format!(
            "unexpected number of string elements {got} for inference input '{input}' for model '{model}', \
             expecting {want}"
        ),
        Invalid::StringCount { input, want, got } => {
            format!("expected {want} string elements for inference input '{input}' for model '{model}', got {got}")
        }
        _ => String::new(),
    }
}

/// `[a,b]`
fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    format!("[{}]", items.join(","))
}
