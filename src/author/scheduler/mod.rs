//! A scheduler tried out on this machine, without a server.
//!
//! - [`trial`]: the component, held against the contract, configured, and asked about made-up candidates.

pub mod trial;
