//! A tier makes states durable, so that sequences outlive the process. With one, an answer leaves only after its state is durable.

use std::fmt;

use sequor_core::{Id, Refusal};

use crate::state::{StateCopy, StateSpec};

/// A sequence's state as of one step.
#[derive(Debug)]
pub struct StateToSeal {
    pub id: Id,
    /// Steps of the sequence that the state contains.
    pub step: u64,
    /// The last step of the sequence.
    pub end: bool,
    /// The state. `None`: the step ran nothing, and the state is that of the step before.
    pub copy: Option<StateCopy>,
}

/// The states of one batch, to be made durable together.
#[derive(Debug)]
pub struct BatchToSeal {
    pub model: String,
    pub version: u64,
    pub specs: Vec<StateSpec>,
    pub states: Vec<StateToSeal>,
}

/// Reports that a batch is durable, or why it is not. If it is not, its sequences end.
pub type Sealed = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

pub trait StateTier: Send + Sync + fmt::Debug {
    /// Makes these states durable, and calls `sealed` once. Called by threads that run models, without a lock: it returns soon.
    fn seal(&self, batch: BatchToSeal, sealed: Sealed);
}
