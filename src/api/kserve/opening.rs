//! What a gRPC call says in its metadata, and the requests that are read by it, called one by one or in a stream.

use sequor_proto::ModelInferRequest;
use tonic::metadata::MetadataMap;

use super::form::Form;
use super::{SEQUENCE_HEADER, decode};
use crate::api::intake::Call;
use crate::api::{Api, Status};
use crate::model::{InferRequest, Served};
use crate::telemetry::metrics::Surface;

/// Metadata of a stream whose first error shall end it.
const STRICT: &str = "triton_grpc_error";
/// Metadata of a client that cannot read tensors as bytes.
const TYPED: &str = "x-typed-contents";

/// How the client opened the call, as its metadata says.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// What the metadata says of the sequence.
    pub(crate) sequence: Option<String>,
    /// The first error ends the stream (`triton_grpc_error`).
    pub(crate) strict: bool,
    /// The client wants lists where it has sent lists.
    pub(crate) typed: bool,
    /// What features of models come from.
    pub(crate) headers: Vec<(String, String)>,
}

/// What is known of a request before it is read.
pub(super) fn call(message: &ModelInferRequest) -> Call {
    Call {
        surface: Surface::KserveGrpc,
        model: message.model_name.clone(),
        version: message.model_version.clone(),
        mark: message.id.clone(),
    }
}

impl Opening {
    pub(super) fn of(api: &Api, metadata: &MetadataMap) -> Opening {
        let is_true = |key| metadata.get(key).is_some_and(|value| value == "true");
        Opening {
            sequence: metadata.get(SEQUENCE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned),
            strict: is_true(STRICT),
            typed: is_true(TYPED),
            headers: api.headers(|name| metadata.get(name)?.to_str().ok()),
        }
    }
}

/// Finds the model of a request, reads the request, and takes from the model what the form of its answer needs.
pub(super) fn read(
    api: &Api,
    message: ModelInferRequest,
    opening: &Opening,
) -> (Result<(Served, InferRequest), Status>, Form) {
    let read = || {
        let model = api.find(&message.model_name, &message.model_version)?;
        let is_typed = opening.typed && message.raw_input_contents.is_empty();
        let (mut request, mut form) = decode::infer(message, opening.sequence.as_deref(), api.regions(), &model)?;
        request.headers.clone_from(&opening.headers);
        form.typed |= is_typed;
        form.fit_to(&model, &request)?;
        Ok((model, request, form))
    };
    match read() {
        Ok((model, request, form)) => (Ok((model, request)), form),
        Err(status) => (Err(status), Form::default()),
    }
}
