//! Tries out a state initializer on this machine, without a model.
//!
//! - [`case`]: the STARTs, the tensors of the model, and the expected results.
//! - [`trial`]: the component, checked against the contract and configured · [`outcome`]: the results of a case.

pub mod case;
pub mod outcome;
pub mod trial;
