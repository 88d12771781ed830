//! A state initializer tried out on this machine, without a model.
//!
//! - [`case`]: the STARTs, the tensors of the model, and what is expected.
//! - [`trial`]: the component, held against the contract and configured · [`outcome`]: a case run.

pub mod case;
pub mod outcome;
pub mod trial;
