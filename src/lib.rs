//! Sequor (Latin: I follow), an inference server for models that remember.

pub mod api;
pub mod backend;
pub mod batch;
pub mod config;
pub mod device;
pub mod error;
pub mod model;
pub mod server;
pub mod simulate;
pub mod state;
pub mod telemetry;
pub mod tensor;
