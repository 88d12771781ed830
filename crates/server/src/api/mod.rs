//! The surfaces: they convert wire requests to the host's requests, and answers back, in each protocol's own words. They decide nothing
//! about scheduling or state, and open no socket.
//!
//! # Layout
//!
//! - [`intake`]: the protocol-neutral entry for decoded requests, with limits and phases; [`live_limits`]: the limits; `queued` counts the waiting bytes ·
//!   `request_count`: counts each request · `its_load`: decodes a request for the load of its sequence.
//! - [`context`]: the facts about a request before a surface reads it · [`caller`]: the caller's identity · `peers`: the holdings of one
//!   client.
//! - [`mod@endpoint`]: protocol and group of endpoints of a path · [`access`]: the refusals of callers without the right to one.
//! - [`body_error`]: why a body was given up while it arrived · `message_meter`: counts the messages of upgraded connections.
//! - [`order`]: the order of the requests of a connection · [`upgrades`]: upgraded connections.
//! - [`code`], [`status`]: the outcome of a request without an answer · `refusal`: the common part of all surfaces' refusals · `triton`:
//!   the table from failures to Triton's sentences · `control`: index, load and unload of models.
//! - `remedies`: what prevents each end and refusal, for operators.
//! - [`health`]: the health service of gRPC · `audit`: the record of changes and who made them.
//! - [`admin`]: the calls of operators: plug-ins, models, status.
//! - [`kserve`]: KServe v2 with Triton's extensions, over gRPC and HTTP.
//! - [`tfs`]: TensorFlow Serving's protocol with OVMS's sequences, over gRPC and HTTP.
//! - `wire`: the fields of protobuf messages before they are decoded · `frames`: gRPC messages as bytes, unpacked before they are decoded ·
//!   `compress`: packs and unpacks · `body`: HTTP bodies · `json_elements`: writes tensors as JSON · `path`: the parameters of a
//!   path · `echo`: returns a request's marks.

pub mod access;
pub mod admin;
pub mod audit;
pub(crate) mod body;
pub mod body_error;
pub mod caller;
pub mod code;
pub(crate) mod compress;
pub mod context;
pub(crate) mod control;
pub(crate) mod echo;
pub mod endpoint;
pub(crate) mod frames;
pub mod health;
pub mod intake;
pub(crate) mod its_load;
pub(crate) mod json_elements;
pub mod kserve;
pub mod live_limits;
pub(crate) mod message_meter;
pub mod order;
pub(crate) mod path;
pub(crate) mod peers;
pub(crate) mod queued;
pub(crate) mod refusal;
pub(crate) mod remedies;
pub(crate) mod request_count;
pub mod status;
pub mod tfs;
pub mod triton;
pub mod upgrades;
pub(crate) mod wire;

pub use crate::config::server::file::ServerLimits;
pub use body_error::BodyError;
pub use caller::Caller;
pub use code::Code;
pub use context::{Check, Deadline, RequestContext, RequestHead};
pub use endpoint::{Endpoint, endpoint};
pub use intake::{Api, ServerPhase};
pub use live_limits::LiveLimits;
pub use order::ConnectionOrder;
pub use status::{Retry, Status};
pub use upgrades::Upgrades;
