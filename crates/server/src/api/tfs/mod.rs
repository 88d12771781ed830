//! TensorFlow Serving's protocol as in OpenVINO Model Server (OVMS), with its stateful sequences.
//!
//! # Layout
//!
//! - [`surface`]: the surface as a whole. It passes every request to intake.
//! - [`predict`]: the gRPC call `Predict`. `scan` bounds a message before it is decoded; `tensors` converts its tensors, both ways.
//! - [`grpc`]: the other calls of `PredictionService` and `ModelService`.
//! - [`http`]: the same over HTTP. `path` parses URLs, `json` decodes bodies, `json_items` iterates over their values, `ndarray` parses
//!   their tensors, `json_answer` writes answers.
//! - `special`: the inputs `sequence_id` and `sequence_control_input`, and the id in each answer.
//! - `group`: the group of endpoints of each path.
//! - `request`: builds a request from a decoded body, for both protocols.
//! - `models`: status and metadata of models.
//! - `refusal`: the table from failures to codes and OVMS's sentences.

pub(crate) mod group;
pub mod grpc;
pub mod http;
pub(crate) mod json;
pub(crate) mod json_answer;
mod json_items;
mod models;
mod ndarray;
mod path;
pub mod predict;
pub(crate) mod refusal;
mod request;
mod scan;
pub(crate) mod special;
pub mod surface;
pub(crate) mod tensors;

pub use surface::Tfs;

/// The gRPC path with the most calls.
pub const PREDICT: &str = "/tensorflow.serving.PredictionService/Predict";

/// The only signature of every model.
pub(crate) const SIGNATURE: &str = "serving_default";
