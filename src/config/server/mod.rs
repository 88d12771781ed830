//! The server's settings: defaults under the file, the file under the environment, the environment under the flags. Nothing here reads the
//! environment or a clock: both are handed in.
//!
//! # Layout
//!
//! - [`key`]: how a setting is declared, once; its flag, its variable and its help come from that.
//! - [`mod@file`]: the schema of the server's `sequor.toml`: all settings.
//! - [`flags`]: the keys as flags of `sequor serve`.
//! - [`triton`]: the flags of `tritonserver`, and what becomes of them.
//! - [`layers`]: the layers put over each other, and which of them set what.
//! - [`rates`]: how many of each resource there are for runs.
//! - `by_memory`: limits that follow from the memory of this process.
//! - [`settings`]: what they say together · [`shown`]: the same for operators to read.

mod by_memory;
pub mod file;
pub mod flags;
pub mod key;
pub mod layers;
pub mod rates;
pub mod settings;
pub mod shown;
pub mod triton;

pub use by_memory::HostMemory;
pub use file::{Connections, Drain, Grpc, ServerLimits};
pub use flags::{GivenFlags, args};
pub use layers::Origin;
pub use settings::{HostInfo, Settings, config_path, load};
pub use shown::Shown;
