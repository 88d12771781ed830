//! The mock's context: one thread's means of running a graph.

use std::fmt;
use std::sync::Arc;

use sequor_core::{DataType, Shape};

use super::program::Program;
use super::rows::{self, Inputs, check_poison};
use crate::backend::{BackendError, Feed, Fetch, Port, Produced};
use crate::device::{Device, MemorySpanMut, Owned};

/// A hook that a test may run, or block in, on the running thread before a batch is computed. It gets the shape of INPUT.
pub type RunHook = Arc<dyn Fn(&Shape) + Send + Sync>;

pub(super) struct MockContext {
    pub(super) program: Arc<Program>,
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
    pub(super) hook: Option<RunHook>,
    pub(super) device: Option<Arc<dyn Device>>,
}

impl fmt::Debug for MockContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockContext").field("program", &self.program).finish_non_exhaustive()
    }
}

impl MockContext {
    pub(super) fn run_here(&self, feeds: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        let inputs = Inputs::check(&self.inputs, feeds)?;
        self.begin(&inputs)?;
        std::thread::sleep(self.program.cost);
        check_poison(&self.program, inputs.get("INPUT")?.1)?;
        let (shape, result) = (rows::shape(&self.program, &inputs)?, rows::compute(&self.program, &inputs)?);
        let more = rows::plus(&result, self.program.plus);
        self.outputs.iter().zip(outputs).try_for_each(|(port, fetch)| {
            let result = if port.name == "OUTPUT" { &more } else { &result };
            put(port, &shape, result, self.program.dtype, fetch)
        })
    }

    pub(super) fn begin(&self, inputs: &Inputs<'_>) -> Result<(), BackendError> {
        let (shape, _) = inputs.get("INPUT")?;
        if let Some(hook) = &self.hook {
            hook(shape);
        }
        Ok(())
    }
}

fn put(port: &Port, shape: &Shape, result: &[u8], dtype: DataType, fetch: &mut Fetch<'_>) -> Result<(), BackendError> {
    match fetch {
        Fetch::New(answer) => {
            *answer = Some(Produced { dtype, shape: shape.clone(), data: Owned::from_vec(result.to_vec()) });
            Ok(())
        }
        Fetch::Into { .. } if dtype == DataType::Bytes => Err(in_place(port)),
        Fetch::Into { shape: room, data } => {
            let error = misfit(port, shape, room, data);
            let slice = data.as_host_mut().filter(|slice| *room == shape && slice.len() == result.len());
            slice.ok_or(error)?.copy_from_slice(result);
            Ok(())
        }
    }
}

pub(super) fn in_place(port: &Port) -> BackendError {
    BackendError(format!("output '{}' is BYTES and cannot be written in place", port.name))
}

pub(super) fn misfit(port: &Port, shape: &Shape, room: &Shape, data: &MemorySpanMut<'_>) -> BackendError {
    BackendError(format!("output '{}' is {shape}, but the room for it is {room} at {data:?}", port.name))
}
