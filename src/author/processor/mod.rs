//! A processor tried out on this machine, without a model: a stand-in answers the runs.
//!
//! - [`case`]: what sequences send, what the model takes and gives, and what is expected · [`data`]: tensors from files and lists (`npy`: one format of them).
//! - [`trial`]: the component, held against the contract and configured · [`outcome`]: a case run in packets of every size.

pub mod case;
pub mod data;
mod npy;
pub mod outcome;
pub mod trial;
