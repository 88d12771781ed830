//! The table from failures to codes and sentences for clients of this protocol. If OpenVINO Model Server has a sentence, it comes first,
//! byte for byte; our reason follows in brackets.

use std::fmt::Display;

use sequor_core::{DataType, Dims, EndReason, Refusal, Shape};

use super::special::SpecialInputFault;
use crate::api::context::SEQUENCE_HEADER;
use crate::api::refusal::{BAD_INPUT, deadline, limit, member, no_version, processor, reason, retry};
use crate::api::{Code, Status, triton};
use crate::error::{Failure, Invalid, NoVersionReason, NotServed, Refused};

const MISSING: &str = "Sequence with provided ID does not exist";

/// Converts a failure to the status that a client of this protocol gets.
pub(crate) fn status(failure: &Failure) -> Status {
    let (code, text) = match failure {
        Failure::Limit(exceeded) => return limit(exceeded),
        Failure::Deadline { allowed } => return deadline(*allowed),
        Failure::Processor(failure) => return processor(failure),
        Failure::Member { .. } => return member(failure, status),
        Failure::NotServed(what) => not_served(what),
        Failure::Invalid { model, what, .. } => (Code::InvalidArgument, sentence(model, what)),
        Failure::Refused(refused) => match self::refused(refused) {
            Some(message) => message,
            None => return triton::status(failure),
        },
        Failure::Run(text) => (Code::Internal, format!("Internal inference error ({text})")),
        Failure::Internal(text) => (Code::Internal, format!("Internal server error ({text})")),
        Failure::NotResumed { why, .. } => {
            (Code::NotFound, format!("{MISSING} (its stored state cannot be resumed: {why})"))
        }
        // OVMS has no sentences for these.
        Failure::StateMemory { .. }
        | Failure::DeviceMemory { .. }
        | Failure::StateNotFinite { .. }
        | Failure::NotCopied { .. }
        | Failure::Store { .. }
        | Failure::NotStored { .. }
        | Failure::PeerSequences { .. }
        | Failure::Control(_) => return triton::status(failure),
    };
    Status { retry: retry(failure), ..Status::new(code, reason(failure), text) }
}

fn not_served(what: &NotServed) -> (Code, String) {
    match what {
        NotServed::UnknownModel { .. } => (Code::NotFound, UNKNOWN_MODEL.to_owned()),
        NotServed::UnknownVersion { .. } | NotServed::BadVersion { .. } | NotServed::NegativeVersion { .. } => {
            (Code::NotFound, UNKNOWN_VERSION.to_owned())
        }
        NotServed::NotReady { .. } | NotServed::NoVersion { why: NoVersionReason::Loading, .. } => {
            let why = no_version(NoVersionReason::Loading);
            (Code::Unavailable, format!("Model with requested version is not loaded yet ({why})"))
        }
        NotServed::NoVersion { model, why } => {
            let why = no_version(*why);
            (Code::NotFound, format!("{UNKNOWN_MODEL} (model '{model}' has no version that is ready: {why})"))
        }
    }
}

pub(super) const UNKNOWN_MODEL: &str = "Model with requested name is not found";
pub(super) const UNKNOWN_VERSION: &str = "Model with requested version is not found";

/// The refusal of an invalid request.
pub(super) fn bad_input(text: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, BAD_INPUT, text)
}

/// The refusal of a version label.
pub(super) fn label(label: &str) -> Status {
    let text = format!("{UNKNOWN_VERSION} (version labels are not served; label '{label}')");
    Status::new(Code::NotFound, crate::api::refusal::NOT_SERVED, text)
}

// === special inputs ===

pub(super) fn special(fault: &SpecialInputFault) -> Status {
    let text = match fault {
        SpecialInputFault::NoShape => "Special input proto does not contain tensor shape information".to_owned(),
        SpecialInputFault::Rank(input) => {
            format!("Invalid number of shape dimensions - Required shape for {input} is: (1)")
        }
        SpecialInputFault::Size(input) => format!("Invalid input shape - Required shape for {input} is: (1)"),
        SpecialInputFault::Type(super::special::SEQUENCE_ID) => {
            "Could not find sequence id in expected tensor proto field uint64_val".to_owned()
        }
        SpecialInputFault::Type(_) => {
            "Could not find sequence control input in expected tensor proto field uint32_val".to_owned()
        }
        SpecialInputFault::Control => "Unexpected value of sequence control input".to_owned(),
        SpecialInputFault::NoId => NO_ID.to_owned(),
        SpecialInputFault::OtherHeader { id, header } => {
            format!("'sequence_id' {id} and {SEQUENCE_HEADER} {header} are not the same sequence")
        }
    };
    bad_input(text)
}

const NO_ID: &str = "Sequence ID has not been provided in request inputs";

// === inputs that do not fit their model ===

fn sentence(model: &str, what: &Invalid) -> String {
    match what {
        Invalid::InputCount { all, got, missing, .. } if got.len() == *all && !missing.is_empty() => {
            let missing = missing.first().map(String::as_str).unwrap_or_default();
            format!("Missing input with specific name - Required input: {missing}")
        }
        Invalid::InputCount { all, got, missing, .. } => {
            let why = if missing.is_empty() { String::new() } else { format!(" (missing: {})", missing.join(", ")) };
            format!("Invalid number of inputs - Expected: {all}; Actual: {}{why}", got.len())
        }
        Invalid::UnknownInput { input, .. } => {
            format!("Missing input with specific name (model '{model}' has no input '{input}')")
        }
        Invalid::DuplicateInput { input } => format!("Invalid number of inputs (input '{input}' comes twice)"),
        Invalid::UnknownOutput { output, .. } => {
            format!("Missing output with specific name (model '{model}' has no output '{output}')")
        }
        Invalid::DataType { input, got, want } => {
            mismatch("precision", precision_name(*want), precision_name(*got), input)
        }
        Invalid::UnknownDataType { input, got, want } => mismatch("precision", precision_name(*want), got, input),
        Invalid::Shape { input, want, got, .. } if want.rank() != got.rank() => {
            let (want, got) = (dims(want), dims_of(got));
            format!("Invalid number of shape dimensions - Expected: {want}; Actual: {got}; input name: {input}")
        }
        Invalid::Shape { input, want, got, .. } => mismatch("shape", dims(want), dims_of(got), input),
        Invalid::NegativeDim { input, got } => {
            let got = bracketed(got);
            format!(
                "Invalid input shape - Negative or zero dimension size is not acceptable: {got}; input name: {input}"
            )
        }
        Invalid::NoBatchDim { input } => {
            format!(
                "Invalid number of shape dimensions - input name: {input} (model '{model}' needs a batch dimension)"
            )
        }
        Invalid::BatchSizes { input } => {
            format!("Invalid input batch size - input name: {input} (other inputs have another batch size)")
        }
        Invalid::BatchTooLarge { max } => {
            format!(
                "Invalid input batch size (the maximum of model '{model}' is {max}, the max_batch_size of its config.pbtxt)"
            )
        }
        Invalid::SequenceBatch => {
            format!("Invalid input batch size - Expected: 1 (model '{model}' takes one row of a sequence at a time)")
        }
        Invalid::ByteSize { input, want, got } => bytes(input, *want, *got),
        Invalid::StringCount { input, want, got } => values(input, *want, *got),
        Invalid::StringLength { input } | Invalid::StringData { input, .. } => {
            format!("Invalid content size of tensor proto - input name: {input} (a text ends too early)")
        }
        Invalid::IdType { got, want, .. } => {
            format!("Could not find sequence id (model '{model}' takes ids of type {want}, not {got})")
        }
        Invalid::IdTooLong { limit } => format!("Could not find sequence id (its maximum is {limit} characters)"),
        Invalid::StateInput { input } => format!(
            "Missing input with specific name (model '{model}' takes its state '{input}' as an input of a START alone)"
        ),
        // TensorFlow Serving's protocol has no parameters.
        Invalid::CopySource(_) => "Invalid parameter sequence_from".to_owned(),
        Invalid::NoData { input } => {
            format!("Invalid content size of tensor proto - Actual: 0 bytes; input name: {input}")
        }
        Invalid::Malformed(text) => text.clone(),
    }
}

fn mismatch(what: &str, want: impl Display, got: impl Display, input: &str) -> String {
    format!("Invalid input {what} - Expected: {want}; Actual: {got}; input name: {input}")
}

/// The refusal of an input whose type no model supports. OVMS calls each of these types INVALID.
pub(super) fn precision(input: &str, want: Option<DataType>, got: &str) -> Status {
    let text = mismatch("precision", want.map_or("none", precision_name), "INVALID", input);
    bad_input(format!("{text} ({got})"))
}

/// The refusal of an input that the model does not have. `missing`: an input that the request lacks.
pub(super) fn unknown_input(model: &str, input: &str, missing: Option<&str>) -> Status {
    let required = missing.map(|missing| format!(" - Required input: {missing}")).unwrap_or_default();
    bad_input(format!("Missing input with specific name{required} (model '{model}' has no input '{input}')"))
}

/// The refusal of a list whose length differs from its shape.
pub(super) fn value_count(input: &str, want: Option<u64>, got: u64) -> Status {
    bad_input(values(input, want.unwrap_or(u64::MAX), got))
}

fn values(input: &str, want: u64, got: u64) -> String {
    format!("Invalid number of values in tensor proto container - Expected: {want}; Actual: {got}; input name: {input}")
}

/// The refusal of content whose size differs from its shape.
pub(super) fn content_size(input: &str, want: Option<u64>, got: u64) -> Status {
    bad_input(bytes(input, want.unwrap_or(u64::MAX), got))
}

fn bytes(input: &str, want: u64, got: u64) -> String {
    format!("Invalid content size of tensor proto - Expected: {want} bytes; Actual: {got} bytes; input name: {input}")
}

/// OVMS's name for a type.
const fn precision_name(dtype: DataType) -> &'static str {
    match dtype {
        DataType::Bool => "BOOL",
        DataType::Uint8 => "U8",
        DataType::Uint16 => "U16",
        DataType::Uint32 => "U32",
        DataType::Uint64 => "U64",
        DataType::Int8 => "I8",
        DataType::Int16 => "I16",
        DataType::Int32 => "I32",
        DataType::Int64 => "I64",
        DataType::Fp16 => "FP16",
        DataType::Fp32 => "FP32",
        DataType::Fp64 => "FP64",
        DataType::Bytes => "STRING",
        DataType::Bf16 => "BF16",
    }
}

fn dims(dims: &Dims) -> String {
    bracketed(&dims.to_wire())
}

fn dims_of(shape: &Shape) -> String {
    bracketed(&shape.0)
}

/// `(1,10)`
fn bracketed(dims: &[impl Display]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("({})", dims.join(","))
}

// === sequences ===

/// The refusals for which OVMS has a sentence.
fn refused(refused: &Refused) -> Option<(Code, String)> {
    Some(match &refused.refusal {
        Refusal::Unknown(None) => (Code::NotFound, MISSING.to_owned()),
        Refusal::Unknown(Some(stone)) => (Code::NotFound, format!("{MISSING}{}", ended(refused, stone.why))),
        // A client may send this request again unchanged, so the sentence must not tell it to START.
        Refusal::Ended(EndReason::Drained) if refused.may_retry => return None,
        Refusal::Ended(EndReason::Fenced) => return None,
        Refusal::Ended(why) => (Code::NotFound, format!("{MISSING}{}", ended(refused, *why))),
        Refusal::Live => (Code::AlreadyExists, "Sequence with provided ID already exists".to_owned()),
        Refusal::Ending => (
            Code::FailedPrecondition,
            "Sequence last request is being processed and it's not available anymore".to_owned(),
        ),
        Refusal::TooMany { .. } | Refusal::StoreFull { .. } => {
            (Code::Unavailable, "Max sequence number has been reached. Could not create new sequence.".to_owned())
        }
        Refusal::NoId => (Code::InvalidArgument, NO_ID.to_owned()),
        Refusal::NoVersion => (Code::NotFound, UNKNOWN_MODEL.to_owned()),
        Refusal::BacklogFull { .. }
        | Refusal::Stopping
        | Refusal::QueueTimeout { .. }
        | Refusal::BacklogTimeout { .. }
        | Refusal::Cancelled
        | Refusal::QueueFull { .. }
        | Refusal::StepGap { .. }
        | Refusal::StepGone { .. }
        | Refusal::StepBusy { .. }
        | Refusal::Elsewhere
        | Refusal::Policy(_)
        | Refusal::Failed(_) => return None,
    })
}

/// Why a sequence ended, unless its client ended it.
fn ended(refused: &Refused, why: EndReason) -> String {
    match why {
        EndReason::End => String::new(),
        _ => format!(" (sequence {} {})", refused.id, triton::ended_because(refused, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tfs::special::{CONTROL, SEQUENCE_ID};
    use crate::error::EndedBy;

    fn refused_with(refusal: Refusal) -> Refused {
        Refused {
            refusal,
            model: "m".to_owned(),
            id: sequor_core::Id::Int(7),
            ended_ago: None,
            idle: None,
            may_retry: true,
            rejection: None,
            member: None,
            ended_by: None,
        }
    }

    /// The error table of stateful models: code and text over gRPC, status over HTTP.
    #[test]
    fn the_errors_of_sequences_are_those_of_ovms() {
        let refused = |refusal| status(&refused_with(refusal).into());
        let rows = [
            (refused(Refusal::Unknown(None)), Code::NotFound, 404, "Sequence with provided ID does not exist"),
            (refused(Refusal::Live), Code::AlreadyExists, 409, "Sequence with provided ID already exists"),
            (
                refused(Refusal::Ending),
                Code::FailedPrecondition,
                412,
                "Sequence last request is being processed and it's not available anymore",
            ),
            (
                refused(Refusal::TooMany { limit: 500 }),
                Code::Unavailable,
                503,
                "Max sequence number has been reached. Could not create new sequence.",
            ),
            (special(&SpecialInputFault::NoId), Code::InvalidArgument, 400, NO_ID),
            (refused(Refusal::NoId), Code::InvalidArgument, 400, NO_ID),
            (
                special(&SpecialInputFault::Control),
                Code::InvalidArgument,
                400,
                "Unexpected value of sequence control input",
            ),
            (
                special(&SpecialInputFault::Type(SEQUENCE_ID)),
                Code::InvalidArgument,
                400,
                "Could not find sequence id in expected tensor proto field uint64_val",
            ),
            (
                special(&SpecialInputFault::Type(CONTROL)),
                Code::InvalidArgument,
                400,
                "Could not find sequence control input in expected tensor proto field uint32_val",
            ),
            (
                special(&SpecialInputFault::NoShape),
                Code::InvalidArgument,
                400,
                "Special input proto does not contain tensor shape information",
            ),
            (
                special(&SpecialInputFault::Rank(SEQUENCE_ID)),
                Code::InvalidArgument,
                400,
                "Invalid number of shape dimensions - Required shape for sequence_id is: (1)",
            ),
            (
                special(&SpecialInputFault::Size(CONTROL)),
                Code::InvalidArgument,
                400,
                "Invalid input shape - Required shape for sequence_control_input is: (1)",
            ),
        ];
        for (status, code, http, text) in rows {
            assert_eq!((status.code, status.code.tfs_http(), status.message.as_str()), (code, http, text));
        }
        let loading = status(&Failure::NotServed(NotServed::NotReady { model: "m".to_owned(), version: 1 }));
        let found = (loading.code, loading.code.tfs_http(), loading.message.as_str());
        assert_eq!(
            found,
            (
                Code::Unavailable,
                503,
                "Model with requested version is not loaded yet (it is being loaded; retry after 1 s)"
            )
        );
        let lost = status(&Failure::Internal("lost".to_owned()));
        assert_eq!((lost.code, lost.message.as_str()), (Code::Internal, "Internal server error (lost)"));
    }

    #[test]
    fn an_error_reports_why_a_sequence_ended_if_its_client_did_not_end_it() {
        let mut of = refused_with(Refusal::Unknown(None));
        assert_eq!(ended(&of, EndReason::End), "");
        assert_eq!(ended(&of, EndReason::Idle), " (sequence 7 expired)");
        of.ended_by = Some(EndedBy { plugin: "redact".to_owned(), world: "processor" });
        let by_plugin = " (sequence 7 was ended by processor 'redact', which rejected a step)";
        assert_eq!(ended(&of, EndReason::Rejected), by_plugin);
    }

    #[test]
    fn shapes_are_written_as_ovms_does() {
        let (want, got) = (Dims::from_wire(&[-1, 10]), Shape::new(&[1, 11]));
        let text = sentence("m", &Invalid::Shape { input: "x".to_owned(), want: want.clone(), got, batching: true });
        assert_eq!(text, "Invalid input shape - Expected: (-1,10); Actual: (1,11); input name: x");
        let got = Shape::new(&[10]);
        let text = sentence("m", &Invalid::Shape { input: "x".to_owned(), want, got, batching: true });
        assert_eq!(text, "Invalid number of shape dimensions - Expected: (-1,10); Actual: (10); input name: x");
    }
}
