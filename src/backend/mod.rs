//! What runs a model's graph. Three lifetimes, each a trait: a [`Backend`] loads a file, a [`Graph`] is what it loaded, a [`Context`]
//! is one thread's means of running it. Nothing here knows of sequences, requests or slots.

pub mod mock;
pub mod no_graph;
pub mod onnx;

use std::path::Path;
use std::sync::Arc;

use sequor_core::{DataType, Shape, Time};

use crate::config::model::settings::SessionTuning;
pub use crate::config::model::{Port, Signature};
use crate::device::{Device, MemorySpan, Owned};

/// Why a graph does not load or a run fails. The text is the runtime's own, with what it was about in front.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub String);

/// How a graph is to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// Threads one run may use; 1 runs it on the caller's thread alone.
    pub threads: u16,
    /// Whether those threads wait busily between operators.
    pub spinning: bool,
    /// What the model's configuration says beyond that.
    pub tuning: SessionTuning,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { threads: 1, spinning: false, tuning: SessionTuning::default() }
    }
}

/// The ports of these names, in their order.
fn select(ports: &[Port], names: &[String], what: &str) -> Result<Vec<Port>, BackendError> {
    let find = |name: &String| {
        let port = ports.iter().find(|port| port.name == *name);
        port.cloned().ok_or_else(|| BackendError(format!("the graph has no {what} '{name}'")))
    };
    names.iter().map(find).collect()
}

pub trait Backend: Send + Sync + std::fmt::Debug {
    fn name(&self) -> &'static str;
    /// Loads the graph in this file.
    fn load(&self, file: &Path, options: &LoadOptions) -> Result<Arc<dyn Graph>, BackendError>;

    /// Releases memory that no run has used for ten seconds. Returns whether there was any.
    fn release_memory(&self, _now: Time) -> bool {
        false
    }

    /// Whether it has the OpenVINO provider for CPUs.
    fn has_openvino(&self) -> Result<(), BackendError> {
        Err(BackendError(format!("the backend {} has no OpenVINO provider", self.name())))
    }

    /// Whether what it needs for accelerators was installed with it. Nothing is loaded to find out.
    fn is_for_accelerators(&self) -> Result<(), BackendError> {
        Err(BackendError(format!("the backend {} runs on the CPU alone", self.name())))
    }

    /// Whether what it needs for this accelerator can be loaded, and loads it.
    fn try_accelerator(&self, _ordinal: u16) -> Result<(), BackendError> {
        self.is_for_accelerators()
    }

    /// Loads the graph for an accelerator, to run in the order of work of `device` and by one thread at a time. It never runs elsewhere.
    fn load_on(
        &self,
        _file: &Path,
        _options: &LoadOptions,
        _device: &Arc<dyn Device>,
    ) -> Result<Arc<dyn Graph>, BackendError> {
        Err(BackendError(format!("the backend {} runs on the CPU alone", self.name())))
    }
}

pub trait Graph: Send + Sync + std::fmt::Debug {
    fn signature(&self) -> &Signature;
    /// A context that takes these inputs and gives these outputs, in this order, by name. Names the graph lacks are an error.
    fn context(&self, inputs: &[String], outputs: &[String]) -> Result<Box<dyn Context>, BackendError>;
}

/// One input of one run, in the order the context was made with. BYTES inputs are in their wire form (4-byte length and bytes).
#[derive(Debug, Clone)]
pub struct Feed<'a> {
    pub dtype: DataType,
    pub shape: &'a Shape,
    pub data: MemorySpan<'a>,
}

/// One output of one run.
#[derive(Debug)]
pub enum Fetch<'a> {
    /// Write here. The shape must be what the graph computes, else the run fails. Not for BYTES.
    Into { shape: &'a Shape, data: crate::device::MemorySpanMut<'a> },
    /// The runtime allocates; the answer is put here.
    New(Option<Produced>),
}

/// An output in the runtime's own memory, kept for as long as `data` lives. BYTES are turned to their wire form.
#[derive(Debug)]
pub struct Produced {
    pub dtype: DataType,
    pub shape: Shape,
    pub data: Owned,
}

pub trait Context: Send + std::fmt::Debug {
    /// Runs the graph once, on the caller's thread; on an accelerator, all of it is asked for when this returns, and done in the device's
    /// order of work. After an error the contents of every [`Fetch::Into`] are undefined.
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError>;
}
