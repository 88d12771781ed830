//! Configuration.
pub mod model;
pub mod proto;
