//! Builds a plug-in's sources to a component, with the tools of this machine. It runs compilers and writes files. Other modules run the
//! component.
//!
//! # Layout
//!
//! - [`project`]: a plug-in's folder: its language and its name.
//! - [`language`]: the trait of a language · [`languages`]: the table of all · `files`: reads and writes files.
//! - [`machine`]: folders of this machine, and calls of other programs.
//! - [`rust`]: builds a component from Rust · [`debian`]: gets a compiler through `apt` if rustup has no target for WebAssembly.
//! - [`python`], [`javascript`], [`c`]: build components from these languages.
//! - [`sdk`]: the kits, embedded in this program · `sources`: the files that a build reads · [`stamp`]: the cache of built
//!   components.
//! - [`template`]: creates a new plug-in's folder.
//! - [`world`]: the trait of a world, as folders and builds need it · [`worlds`]: the table of all.
//! - [`component`]: a component from a module, with its plugin.toml embedded · `encoder`: the tools for it.
//! - [`trial`]: tries out a component · [`scheduler`], [`processor`] and [`initializer`]: trials of these worlds, and their cases.
//! - [`doctor`]: reports what this machine has.
//! - [`mod@build`]: runs a whole build.

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
mod sources;
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
pub use sources::{SourceMarks, source_marks};
