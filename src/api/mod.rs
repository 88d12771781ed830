//! The surfaces: wire requests to the host's requests and back, in each protocol's own words. Nothing is decided here about scheduling or
//! state, and no socket is opened.
//!
//! # Layout
//!
//! - [`intake`]: what every surface shares: the way of a decoded request, limits, phases, counting; `queued` counts the bytes that wait.
//! - [`beside`]: tasks within a connection · [`upgrades`]: connections that became something else.
//! - [`code`], [`status`]: the outcome of a request that has no answer.
//! - [`health`]: the health service of gRPC.
//! - [`admin`]: what operators ask for: plug-ins, models, status.
//! - [`kserve`]: KServe v2 with Triton's extensions, over gRPC and HTTP.

pub mod admin;
pub mod beside;
pub mod code;
pub mod health;
pub mod intake;
pub mod kserve;
mod queued;
pub mod status;
pub mod upgrades;

pub use beside::Beside;
pub use code::Code;
pub use intake::{Api, Limits, Phase};
pub use status::Status;
pub use upgrades::Upgrades;
