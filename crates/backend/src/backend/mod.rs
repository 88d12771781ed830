//! Runs a model's graph. Three traits for three lifetimes: a [`Backend`] loads files, a [`Graph`] is a loaded file, a [`Context`] is one
//! thread's means of running a graph. This module does not know sequences, requests or slots.

pub mod mock;
pub mod no_graph;
pub mod onnx;

use std::path::Path;
use std::sync::Arc;

use sequor_core::{DataType, Shape, Time};

use crate::config::model::settings::SessionTuning;
pub use crate::config::model::{Port, Signature};
use crate::device::{Device, MemorySpan, Owned};

/// Why a graph does not load or a run fails. The text is the runtime's own, after the name of its subject.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub String);

/// Options for loading a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// Threads that one run may use; 1 uses only the caller's thread.
    pub threads: u16,
    /// Whether those threads spin between operators.
    pub spinning: bool,
    /// Further options from the model's configuration.
    pub tuning: SessionTuning,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { threads: 1, spinning: false, tuning: SessionTuning::default() }
    }
}

/// The ports with these names, in this order.
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

    /// Whether the backend has the OpenVINO provider for CPUs.
    fn has_openvino(&self) -> Result<(), BackendError> {
        Err(BackendError(format!("the backend {} has no OpenVINO provider", self.name())))
    }

    /// Whether the backend's installation includes support for accelerators. Loads nothing.
    fn is_for_accelerators(&self) -> Result<(), BackendError> {
        Err(BackendError(format!("the backend {} runs on the CPU alone", self.name())))
    }

    /// Loads the backend's support for this accelerator, or returns why that fails.
    fn try_accelerator(&self, _ordinal: u16) -> Result<(), BackendError> {
        self.is_for_accelerators()
    }

    /// Loads the graph for an accelerator. It runs in the order of work of `device`, on one thread at a time, and never on another device.
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
    /// A context with these inputs and outputs, by name, in this order. Names that the graph lacks are an error.
    fn context(&self, inputs: &[String], outputs: &[String]) -> Result<Box<dyn Context>, BackendError>;
}

/// One input of one run. Inputs are in the context's order. BYTES inputs are in wire format (4-byte length and bytes).
#[derive(Debug, Clone)]
pub struct Feed<'a> {
    pub dtype: DataType,
    pub shape: &'a Shape,
    pub data: MemorySpan<'a>,
}

/// One output of one run.
#[derive(Debug)]
pub enum Fetch<'a> {
    /// Write into this memory. If the graph computes another shape, the run fails. Not for BYTES.
    Into { shape: &'a Shape, data: crate::device::MemorySpanMut<'a> },
    /// The runtime allocates the output, and the run puts it here.
    New(Option<Produced>),
}

/// An output in the runtime's own memory, which lives as long as `data`. BYTES are converted to wire format.
#[derive(Debug)]
pub struct Produced {
    pub dtype: DataType,
    pub shape: Shape,
    pub data: Owned,
}

pub trait Context: Send + std::fmt::Debug {
    /// Runs the graph once, on the caller's thread. On an accelerator, the call returns when all work is submitted; the device does it in
    /// its order of work. After an error, the contents of every [`Fetch::Into`] are undefined.
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError>;
}
