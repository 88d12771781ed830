//! The typed errors of requests and models. They contain no codes or texts of a protocol: each surface maps them to its own.

use std::path::PathBuf;
use std::time::Duration;

use sequor_core::{DataType, Dims, Id, Refusal, Shape};
pub use sequor_files::At;

/// Why a request was not answered with outputs.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error("no such model: {0:?}")]
    NotServed(NotServed),
    /// `id` is the id of the request, which may be empty.
    #[error("invalid request for model '{model}': {what:?}")]
    Invalid { model: String, id: String, what: Box<Invalid> },
    #[error("refused: {0:?}")]
    Refused(Box<Refused>),
    /// A new sequence's state does not fit into the server's limit. Live sequences are not affected.
    #[error("{wanted} bytes of state wanted, {used} of {limit} in use")]
    StateMemory { model: String, id: Id, wanted: u64, used: u64, limit: u64 },
    /// A new sequence's state does not fit into the memory of its device. Live sequences are not affected.
    #[error("{wanted} bytes of state wanted, and {place} has no room for them")]
    DeviceMemory { model: String, id: Id, place: String, wanted: u64 },
    /// A step left a state with a NaN or an infinity, and its sequence ended.
    #[error("state {state:?} of sequence {id} is not finite after step {step}")]
    StateNotFinite { model: String, id: Id, state: String, is_nan: bool, step: u64 },
    /// A START cannot begin with a copy of the state of sequence `from`.
    #[error("sequence {id} cannot begin with a copy of sequence {from}: {why:?}")]
    NotCopied { model: String, id: Id, from: Id, why: NotCopied },
    /// The sequence is in the store, but its state cannot be resumed.
    #[error("the stored state of sequence {id} cannot be resumed: {why}")]
    NotResumed { model: String, id: Id, why: String },
    /// The store failed. The sequence is unchanged.
    #[error("the store of sequences failed: {why}")]
    Store { model: String, id: Id, why: String },
    /// The state after this request could not be stored. The sequence goes on from its last stored state (`goes_on`), or has ended. A START did
    /// not take effect.
    #[error("the state of sequence {id} could not be stored: {why}")]
    NotStored { model: String, id: Id, start: bool, goes_on: bool, fault: StoreFault, why: String },
    /// The client has reached its maximum number of live sequences.
    #[error("{limit} live sequences of one client")]
    PeerSequences { model: String, id: Id, limit: u64 },
    #[error("a limit of the server is exceeded: {0:?}")]
    Limit(#[from] ExceededLimit),
    /// The deadline has passed.
    #[error("no answer within {allowed:?}")]
    Deadline { allowed: Duration },
    /// A processor plug-in refused the request or failed.
    #[error("{}: {}", .0.plugin, .0.text)]
    Processor(Box<ProcessorFailure>),
    /// A member of an ensemble refused its step or failed.
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
    /// The model's run failed, with this text.
    #[error("{0}")]
    Run(String),
    /// An internal error of the server.
    #[error("{0}")]
    Internal(String),
}

/// What kept a state from being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// The store has as many bytes as it may have.
    Limit,
    /// The disk of the store failed, or is full.
    Disk,
    /// The Redis of the store failed.
    Redis,
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

/// A limit of the server that a request exceeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{self:?}")]
pub enum ExceededLimit {
    /// Requests in flight, across all models.
    InFlight { limit: usize },
    /// Bytes of queued requests, across all models. The request needs `needed` bytes; `used` are in use.
    QueuedBytes { needed: u64, used: u64, limit: u64 },
    /// Bytes of answers that clients have not taken, and of queued requests, before a run. `used` are in use.
    AnswerBytes { used: u64, limit: u64 },
    /// Requests in flight of one client.
    PeerInFlight { limit: u64 },
    /// Bytes of one client's queued requests.
    PeerQueuedBytes { needed: u64, used: u64, limit: u64 },
    /// Bytes of one request.
    RequestBytes { limit: usize },
    /// Size of a gRPC message, as its header declares it. `limited_by` names the setting, or the kind of message.
    MessageBytes { bytes: u64, limit: usize, limited_by: &'static str },
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
    /// The model is known, but none of its versions is ready.
    NoVersion {
        model: String,
        why: NoVersionReason,
    },
    /// The model is known and loading, but this version is not ready yet.
    NotReady {
        model: String,
        version: u64,
    },
    /// The version is not a number.
    BadVersion {
        version: String,
    },
    /// The version is a negative number.
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
    /// It is an ensemble, and one of its members was unloaded.
    MemberUnloaded,
    Unloaded,
}

/// Why a request to load or unload a model failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlFailure {
    /// The control mode does not allow loading and unloading by request.
    NotExplicit,
    /// This server does not reload its models by request.
    NotReloaded,
    /// The source of the repository could not be applied.
    Source(SourceFault),
    /// None of these repositories has a model of this name.
    Absent { model: String, directories: Vec<std::path::PathBuf> },
    /// The load was tried and failed; `why` has every reason.
    Failed { model: String, why: Vec<String> },
}

/// Why the source of the repository could not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceFault {
    /// The file that names the models cannot be read.
    Unreadable(String),
    /// The file that names the models is wrong.
    Invalid(String),
    /// These models stay as they were, or are not served.
    Models(Vec<RefusedModel>),
}

/// A model that cannot be served as its source describes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model {model}: {what}")]
pub struct RefusedModel {
    pub model: String,
    pub what: String,
}

/// A request that a processor plug-in refused, or could not handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorFailure {
    /// The plug-in's kind.
    pub world: &'static str,
    pub model: String,
    pub id: Id,
    pub plugin: String,
    /// The plug-in's own code; `None` if the plug-in failed.
    pub code: Option<u32>,
    /// The plug-in's own sentence, or the description of its failure.
    pub text: String,
    pub retry: Option<std::time::Duration>,
    /// Whether the sequence has ended with the request.
    pub ended: bool,
    /// Whether the client may send the request again.
    pub may_retry: bool,
    /// Whether the request itself is fine: the processor is parked, or there is no memory now.
    pub unavailable: bool,
}

/// A refusal of the core, with the values for its message.
#[derive(Debug, Clone)]
pub struct Refused {
    pub refusal: Refusal,
    pub model: String,
    pub id: Id,
    /// How long ago the tombstone's sequence ended, if the refusal has one.
    pub ended_ago: Option<Duration>,
    /// The idle time of that sequence, for the message about expiry.
    pub idle: Option<Duration>,
    /// Whether the client may send the request again: a START always, a later step while its sequence lives.
    pub may_retry: bool,
    /// The reason that `plugin.toml` gives for the code of the rejection.
    pub rejection: Option<RejectionReason>,
    /// The member of the ensemble with which the sequence ended.
    pub member: Option<String>,
    /// The plug-in that ended the sequence.
    pub ended_by: Option<EndedBy>,
}

/// A plug-in that ended a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedBy {
    pub plugin: String,
    /// The plug-in's world: `scheduler`, `processor` or `initializer`.
    pub world: &'static str,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        Failure::Refused(Box::new(refused))
    }
}

/// The entry of `plugin.toml` for a code with which a scheduler rejects requests.
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

/// An error in a request, found before it runs: it does not fit the model's configuration, or is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// `known` has the model's names, if they are known at this point.
    UnknownInput {
        input: String,
        known: Vec<String>,
    },
    UnknownOutput {
        output: String,
        known: Vec<String>,
    },
    /// Between `required` and `all` inputs were expected.
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
    /// A request of a sequence has more than one row.
    SequenceBatch,
    ByteSize {
        input: String,
        want: u64,
        got: u64,
    },
    /// BYTES data is malformed: it ends inside a length.
    StringLength {
        input: String,
    },
    /// BYTES data is malformed: an element is longer than the rest of the data.
    StringData {
        input: String,
        want: u64,
        left: u64,
    },
    /// BYTES data has more or fewer elements than the shape.
    StringCount {
        input: String,
        want: u64,
        got: u64,
    },
    /// The type of the correlation id does not match the model's CORRID control.
    IdType {
        control: String,
        got: DataType,
        want: DataType,
    },
    IdTooLong {
        limit: usize,
    },
    /// A request that is not a START has a state as an input.
    StateInput {
        input: String,
    },
    /// The request may not have the parameter `sequence_from`.
    CopySource(WrongSource),
    NoData {
        input: String,
    },
    /// A decoding error of a surface, with the surface's own sentence.
    Malformed(String),
}

/// Why a request may not have the parameter `sequence_from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongSource {
    /// The model's settings do not allow it.
    NotAllowed,
    Ensemble,
    /// The request is not a START.
    NotAtStart,
    /// It names its own sequence, or none.
    Itself,
}

/// Why a model does not load. Each names the file in one sentence.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// A file is wrong, or asks for something that Sequor does not serve.
    #[error("{at} {what}")]
    Config { at: At, code: &'static str, what: String },
    #[error("{0}")]
    Runtime(String),
    #[error("{path}: {what}")]
    File { path: PathBuf, what: String },
    /// An ensemble has lost a member.
    #[error("unloaded with its member '{member}'; it is loaded once '{member}' is")]
    MemberUnloaded { member: String },
    /// More than one repository has a model of this name.
    #[error("failed to poll model '{model}': not unique across all model repositories [{}]", in_repositories(.folders))]
    NotUnique { model: String, folders: Vec<PathBuf> },
}

impl LoadError {
    /// The reason in the repository index. For a name that is not unique, Triton has a sentence of its own there.
    pub fn index_reason(&self) -> String {
        match self {
            LoadError::NotUnique { folders, .. } => {
                format!("model appears in two or more repositories [{}]", in_repositories(folders))
            }
            other => other.to_string(),
        }
    }

    /// The reason in the answer to a load request. For a name that is not unique, Triton answers as for an unknown name.
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

/// A part of a model's files that Sequor does not use as its author intended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadWarning {
    pub at: At,
    /// The kind, as `sequor check` prints it.
    pub code: &'static str,
    /// The fault, and what Sequor does instead.
    pub what: String,
}
