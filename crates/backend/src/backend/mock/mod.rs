//! A mock backend for tests of the modules above: a few graphs written in Rust. They run on the caller's thread, with no library and no
//! model format. The mock must not serve requests.
//!
//! A "model file" is a line of text that names a graph; see [`Program`]. Memory is host memory, or memory of a stand-in for an accelerator.
//! The mock refuses spans of any other place.

mod away;
mod context;
mod program;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sequor_core::{Dim, Dims};

use self::context::MockContext;
pub use self::context::RunHook;
pub use self::program::{Program, What};
use super::{Backend, BackendError, Context, Feed, Fetch, Graph, LoadOptions, Port, Signature, select};
use crate::device::Device;

/// Loads [`Program`]s.
#[derive(Clone, Default)]
pub struct MockBackend {
    hook: Option<RunHook>,
    stand_ins: bool,
}

impl MockBackend {
    pub fn new() -> MockBackend {
        MockBackend::default()
    }

    /// Calls `hook` at the start of every run of every graph that this backend loads.
    pub fn with_hook(hook: RunHook) -> MockBackend {
        MockBackend { hook: Some(hook), ..MockBackend::default() }
    }

    /// Runs graphs on accelerators as well, all of which must be stand-ins (`stand_in::StandIns`).
    pub fn with_stand_ins(self) -> MockBackend {
        MockBackend { stand_ins: true, ..self }
    }

    /// Builds a graph without a file.
    pub fn graph(&self, program: Program) -> Arc<dyn Graph> {
        self.graph_on(program, None)
    }

    fn graph_on(&self, program: Program, device: Option<Arc<dyn Device>>) -> Arc<dyn Graph> {
        let signature = signature(&program);
        Arc::new(MockGraph { program: Arc::new(program), signature, hook: self.hook.clone(), device })
    }
}

impl fmt::Debug for MockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockBackend").field("hook", &self.hook.is_some()).finish()
    }
}

impl Backend for MockBackend {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn load(&self, file: &Path, _options: &LoadOptions) -> Result<Arc<dyn Graph>, BackendError> {
        Ok(self.graph(read(file)?))
    }

    fn is_for_accelerators(&self) -> Result<(), BackendError> {
        let no = || BackendError("the mock backend runs on stand-ins alone".to_owned());
        self.stand_ins.then_some(()).ok_or_else(no)
    }

    fn load_on(
        &self,
        file: &Path,
        _options: &LoadOptions,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<dyn Graph>, BackendError> {
        self.is_for_accelerators()?;
        Ok(self.graph_on(read(file)?, Some(Arc::clone(device))))
    }
}

fn read(file: &Path) -> Result<Program, BackendError> {
    let text = fs_err::read_to_string(file).map_err(|error| BackendError(error.to_string()))?;
    text.parse().map_err(|why| BackendError(format!("{}: {why}", file.display())))
}

fn signature(program: &Program) -> Signature {
    let row = program.dims.with(0, Dim::Any);
    let port = |name: &str, dims: &Dims| Port { name: name.to_owned(), dtype: program.dtype, dims: dims.clone() };
    let mut signature =
        Signature { inputs: vec![port("INPUT", &row)], outputs: vec![port("OUTPUT", &row)], ..Signature::default() };
    if program.what != What::Identity {
        let control = Dims(vec![Dim::Any, Dim::Fixed(1)]);
        signature.inputs.extend(program.start.then(|| port("START", &control)));
        signature.inputs.extend(program.ready.then(|| port("READY", &control)));
        signature.inputs.push(port("INPUT_STATE", &row));
        signature.outputs.push(port("OUTPUT_STATE", &row));
    }
    signature
}

struct MockGraph {
    program: Arc<Program>,
    signature: Signature,
    hook: Option<RunHook>,
    /// A stand-in for an accelerator; `None` runs on the host.
    device: Option<Arc<dyn Device>>,
}

impl fmt::Debug for MockGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockGraph").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Graph for MockGraph {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn context(&self, inputs: &[String], outputs: &[String]) -> Result<Box<dyn Context>, BackendError> {
        let inputs = select(&self.signature.inputs, inputs, "input")?;
        let outputs = select(&self.signature.outputs, outputs, "output")?;
        let (program, hook, device) = (Arc::clone(&self.program), self.hook.clone(), self.device.clone());
        Ok(Box::new(MockContext { program, inputs, outputs, hook, device }))
    }
}

impl Context for MockContext {
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        if outputs.len() != self.outputs.len() {
            return Err(BackendError(format!(
                "{} outputs were asked of a context of {}",
                outputs.len(),
                self.outputs.len()
            )));
        }
        match &self.device {
            None => self.run_here(inputs, outputs),
            Some(device) => away::run(self, device, inputs, outputs),
        }
    }
}
