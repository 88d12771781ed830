//! Model configuration.

pub mod json;
pub mod locate;
mod scan;
pub mod settings;
pub mod text;
