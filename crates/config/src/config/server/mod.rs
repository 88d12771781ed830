//! The server's settings. Flags override the environment, the environment overrides the file, and the file overrides the defaults. This
//! module does not read the environment or a clock: the caller passes them.
//!
//! # Layout
//!
//! - [`key`]: declares each setting once, with its flag, environment variable and help.
//! - [`mod@file`]: the schema of the server's `sequor.toml`: all settings.
//! - [`flags`]: the keys as flags of `sequor serve`.
//! - [`triton`]: the flags of `tritonserver`, and how Sequor handles each.
//! - [`layers`]: merges the layers, and records which layer set each value.
//! - [`access`]: groups of endpoints, and the headers that give access to them.
//! - `listen_address`: the address of a listener.
//! - [`rates`]: the capacities of the resources that runs need.
//! - [`store_url`]: the URL of a store that several servers share.
//! - [`otlp`]: the export of traces, also as OpenTelemetry's own variables set it (`otlp_variables`: those for our keys) · `triton_trace`: Triton's flag for it.
//! - [`reload()`]: merges the layers anew for a running server.
//! - `by_memory`: limits that follow from the memory of this process.
//! - `validation`: checks the meaning of the merged values · [`settings`]: the checked result · [`shown`]: the same for operators to read.

pub mod access;
mod by_memory;
pub mod file;
pub mod flags;
pub mod key;
pub mod layers;
mod listen_address;
pub mod otlp;
mod otlp_variables;
pub mod rates;
mod reload;
#[cfg(test)]
mod reload_tests;
pub mod settings;
#[cfg(test)]
mod settings_tests;
pub mod shown;
pub mod store_url;
pub mod triton;
mod triton_trace;
mod validation;

pub use by_memory::HostMemory;
pub use file::{Connections, Drain, Grpc, ServerLimits};
pub use flags::{GivenFlags, args};
pub use layers::Origin;
pub use listen_address::ListenAddress;
pub use otlp::{ExportPace, OtlpSettings};
pub use reload::{Reloaded, reload};
pub use settings::{HostInfo, Settings, config_path, load, load_all};
pub use shown::Shown;
