//! A model as a request addresses it: found, and ready to take requests.

use std::io;
use std::sync::Arc;

use sequor_core::{DataType, Id, Shape};
use sequor_proto as proto;

use crate::config::model::settings::{ControlKind, Input, Padding, RaggedInput, Scheduling};
use crate::error::{Failure, Invalid, NotServed};
use crate::model::load::{LoadedModel, Metadata};
use crate::model::request::{InferRequest, SequenceStep, intake};
use crate::model::sequences::{
    CaptureLimits, ModelScheduler, Pending, RequestOrigin, TransferError, VersionStatistics, capture, gated,
    state_transfer, submission, usage,
};
use crate::telemetry::RequestCounters;

use super::digest::model_digest;
use super::entry::CatalogEntry;

/// One version (or the server's choice of it) of one model, found and ready.
#[derive(Debug, Clone)]
pub struct ModelHandle {
    model: Arc<ModelScheduler>,
    version: Option<u64>,
    load: Arc<LoadedModel>,
}

impl ModelHandle {
    /// Finds a model in its entry. `version` is the client's text; if it is empty, the server chooses.
    pub(super) fn find(entry: Option<&CatalogEntry>, model: &str, version: &str) -> Result<ModelHandle, NotServed> {
        let version = parse_version(version)?;
        let name = || model.to_owned();
        let entry = entry.ok_or_else(|| NotServed::UnknownModel { model: name() })?;
        let Some(found) = entry.model.as_ref().filter(|_| entry.open) else {
            return Err(match version.filter(|_| entry.loading) {
                Some(version) => NotServed::NotReady { model: name(), version },
                None => NotServed::NoVersion { model: name(), why: entry.no_version_reason() },
            });
        };
        match (found.load_for(version), version) {
            (Some(load), _) => Ok(ModelHandle { model: Arc::clone(found), version, load }),
            (None, Some(version)) => Err(NotServed::UnknownVersion { model: name(), version }),
            (None, None) => Err(NotServed::NoVersion { model: name(), why: entry.no_version_reason() }),
        }
    }

    /// Handles of the model's other loads, the newest first. A sequence may live on one of them. Empty if there is one load.
    pub fn others(&self) -> Vec<ModelHandle> {
        let is_other = |load: &&Arc<LoadedModel>| {
            load.key != self.load.key && self.version.is_none_or(|version| version == load.version)
        };
        let loads = self.model.loads();
        loads.iter().rev().filter(is_other).map(|load| ModelHandle { load: Arc::clone(load), ..self.clone() }).collect()
    }

    /// Whether this load runs a step of this sequence.
    pub fn runs(&self, step: &SequenceStep) -> bool {
        submission::load_of(&self.model, step, self.version).is_some_and(|load| load.key == self.load.key)
    }

    /// The statistics of the version that the client named, or of all versions if it named none.
    pub(super) fn statistics(&self) -> Vec<VersionStatistics> {
        usage::statistics(&self.model, self.version)
    }

    /// The type that the model declares for an input, or for a state that a START may contain.
    pub fn input_type(&self, name: &str) -> Option<DataType> {
        intake::input_type(&self.load.client, name)
    }

    /// The names of the inputs that every request must contain.
    pub fn required_inputs(&self) -> impl Iterator<Item = &str> {
        self.load.client.inputs.iter().filter(|input| !input.optional).map(|input| input.name.as_str())
    }

    /// The version of this load.
    pub fn version(&self) -> u64 {
        self.load.version
    }

    /// Whether its requests are steps of sequences.
    pub fn is_stateful(&self) -> bool {
        matches!(self.load.settings.scheduling, Scheduling::Sequence(_))
    }

    /// The inputs that are padded to one length in a batch: their indices and their padding.
    pub fn padded_inputs(&self) -> Vec<(usize, Padding)> {
        let padding = |(at, input): (usize, &Input)| match &input.ragged {
            Some(RaggedInput::Padded(padding)) => Some((at, padding.clone())),
            _ => None,
        };
        self.load.client.inputs.iter().enumerate().filter_map(padding).collect()
    }

    /// Whether sequences with states of different lengths share its batches.
    pub fn pads_states(&self) -> bool {
        self.load.states.iter().any(|state| state.padding.is_some())
    }

    /// Whether sequences need a text as their id, because the model has an input for it.
    pub fn needs_text_ids(&self) -> bool {
        let Scheduling::Sequence(sequence) = &self.load.client.scheduling else { return false };
        sequence.controls.iter().any(|control| control.kind == ControlKind::CorrelationId(DataType::Bytes))
    }

    /// Whether config.pbtxt declares that a request may have several answers. Sequor always sends one answer.
    pub fn is_decoupled(&self) -> bool {
        self.load.client.proto.model_transaction_policy.is_some_and(|policy| policy.decoupled)
    }

    /// Checks the type and the shape of an input before its data is read.
    pub fn check_form(&self, input: &str, dtype: DataType, shape: &Shape) -> Result<(), Invalid> {
        intake::check_form(&self.load.client, input, dtype, shape)
    }

    /// Checks the names of a request's inputs before their data is read.
    pub fn check_inputs(&self, names: &[&str]) -> Result<(), Invalid> {
        intake::check_names(&self.load.client, names)
    }

    pub fn metadata(&self) -> Arc<Metadata> {
        let mut metadata = (*self.load.metadata).clone();
        metadata.versions = self.model.loads().iter().filter(|l| !l.is_retired()).map(|l| l.version).collect();
        metadata.versions.sort_unstable();
        metadata.versions.dedup();
        Arc::new(metadata)
    }

    pub fn config(&self) -> Arc<proto::ModelConfig> {
        Arc::clone(&self.load.client.proto)
    }

    /// Names of the classes of an output, if it has any.
    pub fn labels(&self, output: &str) -> Option<Arc<[String]>> {
        self.load.labels(output)
    }

    /// Why a loaded model is not ready. `None` if it is ready.
    pub fn unready(&self) -> Option<String> {
        let replaced = || "this version was replaced, and only its live sequences go on".to_owned();
        if self.load.is_retired() { Some(replaced()) } else { self.load.unready() }
    }

    /// The counts of requests to this model, of all versions.
    pub fn request_counters(&self) -> RequestCounters {
        self.load.metrics.requests.clone()
    }

    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        self.submit_from(RequestOrigin::default(), request)
    }

    /// Submits a request with its origin: the client whose live sequences are counted, and the connection that may run a short step inline.
    pub fn submit_from(&self, origin: RequestOrigin<'_>, request: InferRequest) -> Result<Pending, Failure> {
        let submission = gated::submit(&self.model, request, self.version, origin)?;
        Ok(Pending::new(submission, Arc::clone(&self.model)))
    }

    /// The state of a live sequence as a `.safetensors` file. Waits until no batch of its instance runs.
    pub fn export(&self, id: &Id) -> Result<Vec<u8>, TransferError> {
        state_transfer::export(&self.model, id, self.version)
    }

    /// Copies a live sequence's state to an id that has no live sequence. The id's next step continues from the copy.
    pub fn fork(&self, id: &Id, to: Id) -> Result<(), TransferError> {
        self.import(to, &self.export(id)?)
    }

    /// SHA-256 of the files of this version, as hexadecimal digits.
    pub fn digest(&self) -> io::Result<String> {
        digest_of(&self.load)
    }

    /// The state of a live sequence and the steps that follow, as a file. Blocks until the steps have run, so call it on a thread of its own.
    pub fn capture(&self, id: &Id, limits: CaptureLimits) -> Result<Vec<u8>, TransferError> {
        let load = state_transfer::load_of(&self.model, id, self.version)?;
        let digest = digest_of(&load).map_err(|error| TransferError::Other {
            model: self.model.name.clone(),
            what: "a capture",
            why: error.to_string(),
        })?;
        capture::capture(&self.model, &load, id, &digest, limits)
    }

    /// Keeps a state for an id that has no live sequence. The id's next step continues from it.
    pub fn import(&self, id: Id, file: &[u8]) -> Result<(), TransferError> {
        state_transfer::import(&self.model, &self.load, id, file)
    }
}

fn digest_of(load: &LoadedModel) -> io::Result<String> {
    let folder = load.settings.directory.join(load.version.to_string());
    let digest = model_digest(&folder, &load.scratch_owners().unwrap_or_default())?;
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Parses a version as Triton does (`stol`). White space before the digits and all text after them are ignored, so `1.0` and ` 1` are 1.
fn parse_version(text: &str) -> Result<Option<u64>, NotServed> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = || NotServed::BadVersion { version: text.to_owned() };
    let number = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let version: u64 = digits.get(..end).and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
    match i64::try_from(version) {
        Err(_) => Err(bad()),
        Ok(1..) if number.starts_with('-') => Err(NotServed::NegativeVersion { version: text.to_owned() }),
        Ok(_) => Ok(Some(version)),
    }
}
