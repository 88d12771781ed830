//! A stand-in for a backend, for tests of what lies above: a few graphs written in Rust, run on the caller's thread, with no library and
//! no model format. It is not for serving.
//!
//! A "model file" is a line of text that names a graph; see [`Program`]. Memory is host memory: spans of a device are refused.

mod program;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sequor_core::{DataType, Dim, Dims, Shape};

pub use self::program::{Program, What};
use self::rows::{Inputs, accumulate, check_poison};
use super::{Backend, BackendError, Context, Feed, Fetch, Graph, LoadOptions, Port, Produced, Signature, select};
use crate::device::Owned;

/// What a test may do, or wait for, on the running thread before a batch is computed. It is told the shape of INPUT.
pub type Hook = Arc<dyn Fn(&Shape) + Send + Sync>;

/// Loads [`Program`]s.
#[derive(Clone, Default)]
pub struct MockBackend {
    hook: Option<Hook>,
}

impl MockBackend {
    pub fn new() -> MockBackend {
        MockBackend::default()
    }

    /// Calls `hook` at the start of every run of every graph this loads.
    pub fn with_hook(hook: Hook) -> MockBackend {
        MockBackend { hook: Some(hook) }
    }

    /// A graph without a file.
    pub fn graph(&self, program: Program) -> Arc<dyn Graph> {
        let signature = signature(&program);
        Arc::new(MockGraph { program: Arc::new(program), signature, hook: self.hook.clone() })
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
        let text = fs_err::read_to_string(file).map_err(|error| BackendError(error.to_string()))?;
        let program = text.parse().map_err(|why| BackendError(format!("{}: {why}", file.display())))?;
        Ok(self.graph(program))
    }
}

fn signature(program: &Program) -> Signature {
    let row = program.dims.with(0, Dim::Any);
    let port = |name: &str, dims: &Dims| Port { name: name.to_owned(), dtype: program.dtype, dims: dims.clone() };
    let mut signature = Signature { inputs: vec![port("INPUT", &row)], outputs: vec![port("OUTPUT", &row)] };
    if program.what == What::Accumulate {
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
    hook: Option<Hook>,
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
        Ok(Box::new(MockContext { program: Arc::clone(&self.program), inputs, outputs, hook: self.hook.clone() }))
    }
}

struct MockContext {
    program: Arc<Program>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    hook: Option<Hook>,
}

impl fmt::Debug for MockContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockContext").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Context for MockContext {
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        let inputs = Inputs::check(&self.inputs, inputs)?;
        if outputs.len() != self.outputs.len() {
            return Err(BackendError(format!(
                "{} outputs were asked of a context of {}",
                outputs.len(),
                self.outputs.len()
            )));
        }
        let (shape, input) = inputs.get("INPUT")?;
        if let Some(hook) = &self.hook {
            hook(shape);
        }
        std::thread::sleep(self.program.cost);
        check_poison(&self.program, input)?;
        // Both outputs of the accumulator are the new sum.
        let result = match self.program.what {
            What::Identity => input.to_vec(),
            What::Accumulate => accumulate(&self.program, &inputs)?,
        };
        self.outputs
            .iter()
            .zip(outputs)
            .try_for_each(|(port, fetch)| put(port, shape, &result, self.program.dtype, fetch))
    }
}

fn put(port: &Port, shape: &Shape, result: &[u8], dtype: DataType, fetch: &mut Fetch<'_>) -> Result<(), BackendError> {
    match fetch {
        Fetch::New(answer) => {
            *answer = Some(Produced { dtype, shape: shape.clone(), data: Owned::from_vec(result.to_vec()) });
            Ok(())
        }
        Fetch::Into { .. } if dtype == DataType::Bytes => {
            Err(BackendError(format!("output '{}' is BYTES and cannot be written in place", port.name)))
        }
        Fetch::Into { shape: room, data } => {
            let error = format!("output '{}' is {shape}, but the room for it is {room} at {data:?}", port.name);
            let slice = data.as_host_mut().filter(|slice| *room == shape && slice.len() == result.len());
            slice.ok_or(BackendError(error))?.copy_from_slice(result);
            Ok(())
        }
    }
}
