//! TensorFlow Serving's protocol as OpenVINO Model Server (OVMS) serves it, with its stateful sequences.
//!
//! # Layout
//!
//! - [`surface`]: the surface as a whole; every request goes through it to the neutral door.
//! - [`predict`]: the gRPC call `Predict`. `scan` bounds a message before it is decoded; `tensors` converts its tensors, both ways.
//! - [`grpc`]: the other calls of `PredictionService` and `ModelService`.
//! - [`http`]: the same over HTTP; `path` says what a URL names, `json` decodes bodies, whose values `json_items` goes through
//!   and whose tensors `ndarray` parses; `json_answer` writes answers.
//! - `special`: the inputs `sequence_id` and `sequence_control_input`, and the id in each answer.
//! - `group`: the group of endpoints of each path.
//! - `request`: what both protocols make of a decoded body.
//! - `models`: status and metadata of models.
//! - `refusal`: the table from what went wrong to codes and OVMS's sentences.

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

/// The gRPC path that is called most.
pub const PREDICT: &str = "/tensorflow.serving.PredictionService/Predict";

/// The only signature that a model has.
pub(crate) const SIGNATURE: &str = "serving_default";
