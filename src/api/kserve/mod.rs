//! KServe v2 with Triton's extensions.
//!
//! # Layout
//!
//! - `surface`: the surface as a whole; every request goes through it to the neutral door, and every failure comes back as a refusal.
//! - [`grpc`]: the service; [`infer`] answers its two inference calls, and `stream` is one `ModelStreamInfer`, with its answers in a
//!   [`reply_queue`]. `scan` counts a message's parts, `message` decodes it with [`decode`] and [`contents`]; [`encode`] writes answers.
//! - [`http`]: the same over HTTP; [`json`] decodes bodies, which `json_body` parses, [`data`] their tensors, [`answer`] writes answers;
//!   `generate` is the flat form of both, in `generate_json`;
//!   `socket` is a stream as a WebSocket; `manage` has the paths for operators; `path` reads what they name, `body` what comes with it.
//! - `group`: the group of endpoints of each path.
//! - `fault`: why a request could not be decoded · `model_inputs`: what decoding asks the model · `response_format`: how a client wants its
//!   answer; `classes` and `shared_memory` are two of the ways.
//! - `statistics`, `settings`: what operators ask for, over either · `refused_region`: the refusals of shared memory.

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
mod manage;
pub(crate) mod message;
mod model_inputs;
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

/// Extensions of the protocol that are served. Traces are not, and shared memory of CUDA is not: their calls answer, and do nothing.
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

/// The most bytes a text correlation id may have.
pub(crate) const LONGEST_ID: usize = 128;

/// The gRPC path that is called most.
pub const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// The gRPC path whose calls live as long as their connection.
pub const STREAM_INFER: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
