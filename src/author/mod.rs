//! What the author of a plug-in needs: from sources to a component, with whatever tools this machine has. It runs compilers and writes files;
//! what a component then does is the room of plug-ins' business.
//!
//! # Layout
//!
//! - [`project`]: a plug-in's folder: which language, what it is called.
//! - [`machine`]: where this machine keeps things, and how other programs are run.
//! - [`rust`]: a module from Rust; [`debian`]: the compiler where rustup has no target for WebAssembly.
//! - [`component`]: a component from a module, with its plugin.toml inside.
//! - [`build`]: all of it in order.

pub mod build;
pub mod component;
pub mod debian;
pub mod error;
pub mod machine;
pub mod project;
pub mod rust;

pub use build::{Built, build};
pub use error::Problem;
pub use machine::Machine;
pub use project::{Language, Project};
