//! Runs ONNX models with ONNX Runtime. Only this module uses `ort`. It calls ONNX Runtime's C API directly if `ort` itself would copy
//! tensors or hold a lock.
//!
//! # Layout
//!
//! - [`library`], [`probe`], [`install`]: find the library, check a file, and install one · `surroundings`: the process and the machine as
//!   the search sees them.
//! - `environment`: the one library and environment of a process.
//! - `memory`: the allocator of tensors · `bad_alloc`: how it fails · `weights`: what it allocates while a model loads.
//! - `session`, `signature`: a loaded graph, and its inputs and outputs · `tuning`: options of a session · `cuda`: the provider for GPUs.
//! - `context`: a run · `binding`: a run that leaves its outputs on an accelerator · `cache`, `strings`, `output`: their inputs and outputs
//!   · `value`, `element`, `names`, `status`: types of the C API.

mod allocator;
mod bad_alloc;
mod binding;
mod cache;
mod context;
mod cuda;
mod element;
mod environment;
pub mod install;
pub mod library;
mod memory;
mod names;
mod output;
pub mod probe;
mod session;
mod signature;
mod status;
mod strings;
mod surroundings;
mod tuning;
mod value;
mod weights;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::builder::SessionBuilder;
use sequor_core::Time;

use self::context::OnnxContext;
use self::session::Session;
use self::status::describe;
use super::{Backend, BackendError, Context, Graph, LoadOptions, Signature, select};
use crate::config::server::file::RuntimeLogLevel;
use crate::device::Device;

/// The loaded ONNX Runtime.
#[derive(Debug)]
pub struct OnnxBackend {
    environment: Environment,
    library: PathBuf,
}

impl OnnxBackend {
    /// Loads the library. A process can load only one path; calls with the same path succeed. [`library::find`] chooses the path.
    pub fn new(library: &Path) -> Result<OnnxBackend, BackendError> {
        Ok(OnnxBackend { environment: environment::environment(library)?, library: library.to_owned() })
    }

    /// Sets the minimum level of ONNX Runtime's messages in the log, for the whole process.
    pub fn set_log_level(&self, level: RuntimeLogLevel) {
        self.environment.set_log_level(match level {
            RuntimeLogLevel::Verbose => LogLevel::Verbose,
            RuntimeLogLevel::Info => LogLevel::Info,
            RuntimeLogLevel::Warning => LogLevel::Warning,
            RuntimeLogLevel::Error => LogLevel::Error,
            RuntimeLogLevel::Fatal => LogLevel::Fatal,
        });
    }

    /// Sets the maximum bytes of the tensors that ONNX Runtime allocates on the host, for the whole process. A run that needs more fails.
    pub fn limit_tensors(&self, bytes: u64) {
        memory::set_limit(bytes);
    }

    fn open(&self, file: &Path, options: &LoadOptions) -> Result<OnnxGraph, BackendError> {
        graph(Session::open(&self.environment, file, options)?)
    }
}

fn graph(session: Session) -> Result<OnnxGraph, BackendError> {
    let signature = signature::read(&session)?;
    Ok(OnnxGraph { session: Arc::new(session), signature })
}

impl Backend for OnnxBackend {
    fn name(&self) -> &'static str {
        "onnxruntime"
    }

    fn load(&self, file: &Path, options: &LoadOptions) -> Result<Arc<dyn Graph>, BackendError> {
        Ok(Arc::new(self.open(file, options)?))
    }

    fn release_memory(&self, now: Time) -> bool {
        memory::release(now)
    }

    fn is_for_accelerators(&self) -> Result<(), BackendError> {
        cuda::is_beside(&self.library)
    }

    fn has_openvino(&self) -> Result<(), BackendError> {
        tuning::has_openvino(&self.library)
    }

    fn try_accelerator(&self, ordinal: u16) -> Result<(), BackendError> {
        let builder = SessionBuilder::new(&self.environment).map_err(|error| describe(&error))?;
        cuda::try_load(builder, ordinal)
    }

    fn load_on(
        &self,
        file: &Path,
        options: &LoadOptions,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<dyn Graph>, BackendError> {
        Ok(Arc::new(graph(Session::open_on(&self.environment, file, options, device)?)?))
    }
}

/// A loaded model. All its contexts run one session.
#[derive(Debug)]
struct OnnxGraph {
    session: Arc<Session>,
    signature: Signature,
}

impl OnnxGraph {
    fn open_context(&self, inputs: &[String], outputs: &[String]) -> Result<OnnxContext, BackendError> {
        let known = [self.signature.inputs.as_slice(), &self.signature.optional].concat();
        let inputs = select(&known, inputs, "input")?;
        OnnxContext::new(Arc::clone(&self.session), inputs, select(&self.signature.outputs, outputs, "output")?)
    }
}

impl Graph for OnnxGraph {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn context(&self, inputs: &[String], outputs: &[String]) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(self.open_context(inputs, outputs)?))
    }
}
