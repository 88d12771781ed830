//! Tries out a processor on this machine, without a model: a stand-in answers the runs.
//!
//! - [`case`]: the inputs of sequences, the model's tensors, and the expected results · [`data`]: tensors from files and lists · `npy`: one
//!   of the file formats.
//! - [`trial`]: the component, checked against the contract and configured · [`outcome`]: the results of a case in packets of every size.

pub mod case;
pub mod data;
mod npy;
pub mod outcome;
pub mod trial;
