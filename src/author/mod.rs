//! From a plug-in's sources to a component, with the tools that this machine has. It runs compilers and writes files;
//! what a component then does is the room of plug-ins' business.
//!
//! # Layout
//!
//! - [`project`]: a plug-in's folder: which language, what it is called.
//! - [`language`]: what a language must offer · [`languages`]: the table of all · `files`: how files are read and written.
//! - [`machine`]: where this machine keeps things, and how other programs are run.
//! - [`rust`]: a component from Rust; [`debian`]: the compiler where rustup has no target for WebAssembly, by way of `apt`.
//! - [`python`], [`javascript`], [`c`]: components from those.
//! - [`sdk`]: the kits that plug-ins are written against, carried in this program; [`stamp`]: what was made already.
//! - [`template`]: a new plug-in's folder.
//! - [`world`]: what folders and builds must know of a world · [`worlds`]: the table of all.
//! - [`component`]: a component from a module, with its plugin.toml inside · `encoder`: the tools for it.
//! - [`trial`]: how a component is tried out · [`scheduler`], [`processor`] and [`initializer`]: plug-ins of those worlds tried out, and their cases.
//! - [`doctor`]: what this machine has.
//! - [`mod@build`]: all of it in order.

mod apt;
pub mod build;
pub mod c;
pub mod component;
pub mod debian;
pub mod doctor;
mod encoder;
pub mod error;
mod files;
pub mod initializer;
pub mod javascript;
pub mod language;
pub mod languages;
pub mod machine;
pub mod processor;
pub mod project;
pub mod python;
pub mod rust;
pub mod scheduler;
pub mod sdk;
pub mod stamp;
pub mod template;
pub mod trial;
pub mod world;
pub mod worlds;

pub use build::{Built, build};
pub use error::AuthorError;
pub use language::Language;
pub use machine::Machine;
pub use project::Project;
