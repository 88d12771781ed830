//! Model configuration.
pub mod settings;
