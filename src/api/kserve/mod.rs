//! KServe v2 with Triton's extensions.
//!
//! # Layout
//!
//! - [`grpc`]: the service; [`decode`] and [`contents`] read its messages, [`encode`] writes its answers.
//! - [`http`]: the same over HTTP; [`json`] reads bodies, [`data`] their tensors, [`answer`] writes answers.
//! - [`refusal`]: the one table from what went wrong to codes, Triton's sentences and reasons.

pub mod answer;
pub mod contents;
pub(crate) mod control;
pub mod data;
pub mod decode;
pub mod encode;
pub(crate) mod form;
#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
pub mod generated;
pub mod grpc;
pub mod http;
pub mod json;
pub mod line;
mod manage;
pub mod refusal;
pub(crate) mod settings;
pub(crate) mod statistics;
pub(crate) mod stream;

/// Extensions of the protocol that are served.
pub(crate) const EXTENSIONS: [&str; 5] =
    ["sequence", "sequence(string_id)", "model_configuration", "binary_tensor_data", "parameters"];

/// The most bytes a text correlation id may have.
pub(crate) const LONGEST_ID: usize = 128;

/// What proxies hash, and what stands in for the parameter of that meaning.
pub(crate) const SEQUENCE_HEADER: &str = "x-sequence-id";

/// The gRPC path whose calls live as long as their connection.
pub const STREAM_INFER: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
