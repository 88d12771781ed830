//! Tries out a scheduler on this machine, without a server.
//!
//! - [`trial`]: the component, checked against the contract, configured, and called with synthetic candidates.

pub mod trial;
