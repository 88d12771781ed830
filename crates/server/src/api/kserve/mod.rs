//! KServe v2 with Triton's extensions.
//!
//! # Layout
//!
//! - `surface`: the surface as a whole. It passes every request to intake, and converts every failure to a refusal.
//! - [`grpc`]: the service; [`infer`] answers its two inference calls, and `stream` is one `ModelStreamInfer`, with its answers in a
//!   [`reply_queue`]. `scan` counts a message's parts, `message` decodes it with [`decode`] and [`contents`]; [`encode`] writes answers.
//! - [`http`]: the same over HTTP. `json_body` parses a body, [`json`] decodes it and [`data`] its tensors, `non_finite` the words for NaN
//!   and infinity; [`answer`] writes answers.
//! - `generate`: inference with flat JSON, in `generate_json` · `socket`: a stream as a WebSocket · `manage`: the paths for operators ·
//!   `path`: the names in a path · `body`: reads bodies ·
//!   [`load_call`]: the gRPC call that loads a model.
//! - `group`: the group of endpoints of each path.
//! - `fault`: why a request could not be decoded · `model_inputs`: the facts about a model that decoding needs · `response_format`: the
//!   format of an answer, two of whose options are `classes` and `shared_memory`.
//! - `statistics`, `settings`: queries of operators, over gRPC and HTTP · `refused_region`: the refusals of shared memory.

pub mod answer;
pub(crate) mod body;
pub(crate) mod classes;
pub mod contents;
pub mod data;
pub mod decode;
pub mod encode;
mod fault;
pub(crate) mod generate;
mod generate_json;
pub(crate) mod group;
pub mod grpc;
pub mod http;
pub mod infer;
pub mod json;
mod json_body;
pub mod load_call;
mod manage;
pub(crate) mod message;
mod model_inputs;
mod non_finite;
mod path;
pub(crate) mod refused_region;
pub mod reply_queue;
pub(crate) mod response_format;
mod scan;
pub(crate) mod settings;
pub(crate) mod shared_memory;
mod socket;
pub(crate) mod statistics;
pub(crate) mod stream;
pub(crate) mod surface;

pub use surface::Kserve;

/// The protocol extensions that are served. Traces and CUDA shared memory are not, although their calls are answered.
pub(crate) const EXTENSIONS: [&str; 11] = [
    "classification",
    "sequence",
    "sequence(string_id)",
    "model_repository",
    "model_repository(unload_dependents)",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "logging",
];

/// Maximum bytes of a text correlation id.
pub(crate) const LONGEST_ID: usize = 128;

/// The gRPC path with the most calls.
pub const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// The gRPC path whose calls live as long as their connection.
pub const STREAM_INFER: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
