//! The error kinds of the host: what can go wrong with a request or a model, typed. No protocol lives here and no text of a surface;
//! each surface turns these into its own codes and sentences.

use std::path::PathBuf;
use std::time::Duration;

use sequor_core::{DataType, Dims, Id, Refusal, Shape};
pub use sequor_files::At;

/// Why a request was not answered with outputs.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error("no such model: {0:?}")]
    NotServed(NotServed),
    /// `id` is the request's own, which may be empty.
    #[error("invalid request for model '{model}': {what:?}")]
    Invalid { model: String, id: String, what: Box<Invalid> },
    #[error("refused: {0:?}")]
    Refused(Box<Refused>),
    /// A new sequence's state does not fit into the server's limit; those that live are not affected.
    #[error("{wanted} bytes of state wanted, {used} of {limit} in use")]
    StateMemory { model: String, id: Id, wanted: u64, used: u64, limit: u64 },
    /// A new sequence's state does not fit into the memory of the device it would run on; those that live are not affected.
    #[error("{wanted} bytes of state wanted, and {place} has no room for them")]
    DeviceMemory { model: String, id: Id, place: String, wanted: u64 },
    /// A step left a state with a NaN or an infinity, and its sequence ended.
    #[error("state {state:?} of sequence {id} is not finite after step {step}")]
    StateNotFinite { model: String, id: Id, state: String, is_nan: bool, step: u64 },
    /// A START is to begin with a copy of the state of sequence `from`, and cannot.
    #[error("sequence {id} cannot begin with a copy of sequence {from}: {why:?}")]
    NotCopied { model: String, id: Id, from: Id, why: NotCopied },
    /// The sequence is kept, and its state cannot be gone on from.
    #[error("the stored state of sequence {id} cannot be resumed: {why}")]
    NotResumed { model: String, id: Id, why: String },
    /// The store of sequences failed. The sequence is as before.
    #[error("the store of sequences failed: {why}")]
    Store { model: String, id: Id, why: String },
    /// The client has as many live sequences as one client may have.
    #[error("{limit} live sequences of one client")]
    PeerSequences { model: String, id: Id, limit: u64 },
    #[error("a limit of the server is exceeded: {0:?}")]
    Limit(#[from] ExceededLimit),
    /// The client's own deadline has passed.
    #[error("no answer within {allowed:?}")]
    Deadline { allowed: Duration },
    /// A processor plug-in refused the request or failed.
    #[error("{}: {}", .0.plugin, .0.text)]
    Processor(Box<ProcessorFailure>),
    /// A member of an ensemble refused its step, or failed.
    #[error("in ensemble '{ensemble}', {why}")]
    Member {
        ensemble: String,
        member: String,
        id: Id,
        /// Whether the sequence has ended with the request.
        ended: bool,
        /// Whether the client may send the request again.
        may_retry: bool,
        why: Box<Failure>,
    },
    #[error("not done: {0:?}")]
    Control(ControlFailure),
    /// The model's own run failed; its text.
    #[error("{0}")]
    Run(String),
    /// The server's fault.
    #[error("{0}")]
    Internal(String),
}

/// Why a sequence cannot begin with a copy of another one's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCopied {
    /// It does not live here.
    Unknown,
    /// It waits in the server's store for its next step.
    Stored,
    /// It lives on an earlier load of the model, or on another version.
    OtherLoad,
    /// None of its steps has been committed yet.
    NotYet,
    /// It ended while its state was asked for, or one of its requests has run in part.
    Gone,
}

/// A limit of the server that a request does not keep to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{self:?}")]
pub enum ExceededLimit {
    /// Requests in flight, all models together.
    InFlight { limit: usize },
    /// Bytes of requests that wait, all models together. The request needs `needed` beside the `used` ones.
    QueuedBytes { needed: u64, used: u64, limit: u64 },
    /// Requests in flight of one client.
    PeerInFlight { limit: u64 },
    /// Bytes of one client's requests that wait.
    PeerQueuedBytes { needed: u64, used: u64, limit: u64 },
    /// Bytes of one request.
    RequestBytes { limit: usize },
    /// A gRPC message that says that it has so many bytes.
    MessageBytes { bytes: u64, limit: usize },
    /// Parts of one request: inputs, outputs, parameters. `setting` names the limit.
    Parts { what: &'static str, limit: usize, setting: &'static str },
}

/// A model or version that cannot be addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotServed {
    UnknownModel {
        model: String,
    },
    UnknownVersion {
        model: String,
        version: u64,
    },
    /// Known, but none of its versions is ready.
    NoVersion {
        model: String,
        why: NoVersionReason,
    },
    /// Known and being loaded, but this version is not ready yet.
    NotReady {
        model: String,
        version: u64,
    },
    /// The version is not a number.
    BadVersion {
        version: String,
    },
    /// The version is a number below zero.
    NegativeVersion {
        version: String,
    },
}

/// Why no version of a known model is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVersionReason {
    Loading,
    /// Its last load failed.
    Failed,
    Unloaded,
}

/// Why a model was not loaded or unloaded as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlFailure {
    /// Models are not loaded and unloaded by request here.
    NotExplicit,
    /// The models are not loaded again by request here.
    NotReloaded,
    /// What the repository is made of could not be looked at.
    Source(SourceFault),
    /// No repository has a model of this name.
    Absent { model: String },
    /// It was tried; every reason why it did not come about.
    Failed { model: String, why: Vec<String> },
}

/// Why the repository does not hold what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceFault {
    /// The file that names the models cannot be read.
    Unreadable(String),
    /// The file that names the models is wrong.
    Invalid(String),
    /// These models stay as they were, or are not served.
    Models(Vec<RefusedModel>),
}

/// A model that cannot be made of what its source says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model {model}: {what}")]
pub struct RefusedModel {
    pub model: String,
    pub what: String,
}

/// A request that a processor plug-in refused, or could not handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorFailure {
    /// What kind of plug-in it is.
    pub world: &'static str,
    pub model: String,
    pub id: Id,
    pub plugin: String,
    /// The plug-in's own code. `None`: it failed.
    pub code: Option<u32>,
    /// The plug-in's own sentence, or how it failed.
    pub text: String,
    pub retry: Option<std::time::Duration>,
    /// Whether the sequence has ended with the request.
    pub ended: bool,
    /// Whether the client may send the request again.
    pub may_retry: bool,
    /// Whether nothing is wrong with the request: the processor is parked, or there is no memory now.
    pub unavailable: bool,
}

/// A refusal of the core, with what its sentence needs.
#[derive(Debug, Clone)]
pub struct Refused {
    pub refusal: Refusal,
    pub model: String,
    pub id: Id,
    /// How long ago the tombstone's sequence ended, if the refusal has one.
    pub ended_ago: Option<Duration>,
    /// How long that sequence was allowed to be idle, for the sentence about expiry.
    pub idle: Option<Duration>,
    /// Whether the client may send the request again: a START always, a later step while its sequence lives.
    pub may_retry: bool,
    /// What the plug-in says of the code with which it rejected the request.
    pub rejection: Option<RejectionReason>,
    /// The member of the ensemble that the sequence ended with.
    pub member: Option<String>,
}

/// What `plugin.toml` says of a code with which a scheduler rejects requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectionReason {
    /// A sentence for clients.
    pub text: String,
    pub status: RejectionStatus,
    /// When a client may send the request again.
    pub retry_after: Option<Duration>,
}

/// The status of a rejected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectionStatus {
    InvalidArgument,
    Unavailable,
    PermissionDenied,
    NotFound,
    ResourceExhausted,
    FailedPrecondition,
    DeadlineExceeded,
}

/// A fault of a request, against the model's configuration (or in itself). Nothing of it was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// `known` are the names that the model has, if they are known here.
    UnknownInput {
        input: String,
        known: Vec<String>,
    },
    UnknownOutput {
        output: String,
        known: Vec<String>,
    },
    /// `required..=all` inputs were expected.
    InputCount {
        required: usize,
        all: usize,
        got: Vec<String>,
        missing: Vec<String>,
    },
    DuplicateInput {
        input: String,
    },
    DataType {
        input: String,
        got: DataType,
        want: DataType,
    },
    UnknownDataType {
        input: String,
        got: String,
        want: DataType,
    },
    Shape {
        input: String,
        want: Dims,
        got: Shape,
        batching: bool,
    },
    NegativeDim {
        input: String,
        got: Vec<i64>,
    },
    NoBatchDim {
        input: String,
    },
    BatchSizes {
        input: String,
    },
    BatchTooLarge {
        max: u32,
    },
    /// More than one row in a request of a sequence.
    SequenceBatch,
    ByteSize {
        input: String,
        want: u64,
        got: u64,
    },
    /// BYTES elements do not parse: the data ends inside a length.
    StringLength {
        input: String,
    },
    /// BYTES elements do not parse: an element is longer than what is left.
    StringData {
        input: String,
        want: u64,
        left: u64,
    },
    /// BYTES elements parse, but there are more or fewer than the shape says.
    StringCount {
        input: String,
        want: u64,
        got: u64,
    },
    /// A correlation id of another kind than the model's CORRID control takes.
    IdType {
        control: String,
        got: DataType,
        want: DataType,
    },
    IdTooLong {
        limit: usize,
    },
    /// A state as an input of a request that is no START.
    StateInput {
        input: String,
    },
    /// A request names a sequence that it is to begin with a copy of.
    CopySource(WrongSource),
    NoData {
        input: String,
    },
    /// Anything a surface found while it decoded; its own sentence.
    Malformed(String),
}

/// Why a request may not name a sequence to begin with a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongSource {
    /// The model's settings do not allow it.
    NotAllowed,
    Ensemble,
    /// The request is no START.
    NotAtStart,
    /// It names its own sequence, or none.
    Itself,
}

/// Why a model does not load. Each is one sentence with the file it is about.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// A file says something wrong or something that is not served.
    #[error("{at} {what}")]
    Config { at: At, code: &'static str, what: String },
    #[error("{0}")]
    Runtime(String),
    #[error("{path}: {what}")]
    File { path: PathBuf, what: String },
    /// More than one repository has a model of this name.
    #[error("failed to poll model '{model}': not unique across all model repositories [{}]", in_repositories(.folders))]
    NotUnique { model: String, folders: Vec<PathBuf> },
}

impl LoadError {
    /// The reason in the index of the repository: Triton has a sentence of its own there for a name that is not unique.
    pub fn index_reason(&self) -> String {
        match self {
            LoadError::NotUnique { folders, .. } => {
                format!("model appears in two or more repositories [{}]", in_repositories(folders))
            }
            other => other.to_string(),
        }
    }

    /// The reason in the answer to a load request: Triton answers a name that is not unique like one that it does not find.
    pub fn load_reason(&self) -> String {
        match self {
            LoadError::NotUnique { folders, .. } => format!(
                "failed to poll from model repository [not unique across all model repositories: {}]",
                in_repositories(folders)
            ),
            other => other.to_string(),
        }
    }
}

fn in_repositories(folders: &[PathBuf]) -> String {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    format!("found as {}; remove or rename all but one", folders.join(" and "))
}

/// A part of a model's files that is not used as its author meant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadWarning {
    pub at: At,
    /// The kind, as `sequor check` prints it.
    pub code: &'static str,
    /// The fault, and what Sequor does instead.
    pub what: String,
}
