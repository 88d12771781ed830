//! One thread's context for running a session: its ports with their cached descriptions, and the pointers of a run.

use std::ptr;
use std::sync::Arc;

use ort::sys::OrtValue;
use sequor_core::DataType;

use super::binding::Binding;
use super::cache::ValueCache;
use super::names::Names;
use super::output;
use super::session::Session;
use super::strings;
use super::value::OnnxValue;
use crate::backend::{BackendError, Context, Feed, Fetch, Port};
use crate::device::DeviceId;

/// One side of the graph, in the order of the context.
#[derive(Debug)]
struct Ports {
    names: Names,
    ports: Vec<(Port, ValueCache)>,
}

impl Ports {
    fn new(ports: Vec<Port>) -> Result<Ports, BackendError> {
        let names = Names::new(ports.iter().map(|port| port.name.as_str()))?;
        Ok(Ports { names, ports: ports.into_iter().map(|port| (port, ValueCache::default())).collect() })
    }

    fn expect(&self, given: usize, what: &str) -> Result<(), BackendError> {
        if self.ports.len() == given {
            return Ok(());
        }
        Err(BackendError(format!("{given} {what}s were given to a context of {}", self.ports.len())))
    }
}

#[derive(Debug)]
pub(super) struct OnnxContext {
    session: Arc<Session>,
    inputs: Ports,
    outputs: Ports,
    /// For each output, whether it is of type BYTES.
    texts: Vec<bool>,
    /// The accelerator on which ONNX Runtime leaves the outputs that it allocates; `None` for the host.
    pub(super) leaves: Option<DeviceId>,
    /// For runs that leave outputs on the accelerator; created at the first of them.
    binding: Option<Binding>,
    /// For each output that shares an input's name, and so is that input: the input's index.
    through: Vec<Option<usize>>,
    /// Pointers of the current run. They are invalid between runs.
    bound_inputs: Vec<*const OrtValue>,
    bound_outputs: Vec<*mut OrtValue>,
}

// SAFETY: every run writes the pointers before it uses them, and everything else is `Send`.
unsafe impl Send for OnnxContext {}

impl OnnxContext {
    pub(super) fn new(
        session: Arc<Session>,
        inputs: Vec<Port>,
        outputs: Vec<Port>,
    ) -> Result<OnnxContext, BackendError> {
        let through = |output: &Port| inputs.iter().position(|input| input.name == output.name);
        let through = outputs.iter().map(through).collect();
        let texts = outputs.iter().map(|port| port.dtype == DataType::Bytes).collect();
        let (inputs, outputs) = (Ports::new(inputs)?, Ports::new(outputs)?);
        let (bound_inputs, bound_outputs) = (Vec::new(), Vec::new());
        let leaves = session.device().map(|device| device.place());
        let binding = None;
        Ok(OnnxContext { session, inputs, outputs, texts, leaves, binding, through, bound_inputs, bound_outputs })
    }

    /// Fills `bound_inputs`. Creates string tensors for this run alone and stores them in `made`.
    fn bind_inputs(&mut self, feeds: &[Feed<'_>], made: &mut Vec<OnnxValue>) -> Result<(), BackendError> {
        self.inputs.expect(feeds.len(), "input")?;
        self.bound_inputs.clear();
        for ((port, cache), feed) in self.inputs.ports.iter_mut().zip(feeds) {
            if feed.dtype != port.dtype {
                return Err(BackendError(format!("input '{}' takes {}, not {}", port.name, port.dtype, feed.dtype)));
            }
            let value = if port.dtype == DataType::Bytes {
                let wire = feed
                    .data
                    .as_host()
                    .ok_or_else(|| BackendError(format!("the strings of '{}' are not on the host", port.name)))?;
                made.push(strings::tensor(port, wire, feed.shape)?);
                made.last().map_or(ptr::null_mut(), OnnxValue::as_ptr)
            } else {
                let data = &feed.data;
                check_place(&self.session, port, data.place())?;
                cache.describe(port, data.place(), data.address(), data.len(), feed.shape)?.as_ptr()
            };
            self.bound_inputs.push(value);
        }
        Ok(())
    }

    /// Fills `bound_outputs`. A pointer is null if ONNX Runtime must allocate the output. It is null too for an input that passes through:
    /// ONNX Runtime would return the input's memory and leave the given memory unwritten.
    fn bind_outputs(&mut self, fetches: &[Fetch<'_>]) -> Result<(), BackendError> {
        self.outputs.expect(fetches.len(), "output")?;
        self.bound_outputs.clear();
        for (((port, cache), through), fetch) in self.outputs.ports.iter_mut().zip(&self.through).zip(fetches) {
            let value = match fetch {
                Fetch::New(_) => ptr::null_mut(),
                Fetch::Into { .. } if port.dtype == DataType::Bytes => {
                    return Err(BackendError(format!(
                        "output '{}' is BYTES and cannot be written in place",
                        port.name
                    )));
                }
                Fetch::Into { .. } if through.is_some() => ptr::null_mut(),
                Fetch::Into { shape, data } => {
                    check_place(&self.session, port, data.place())?;
                    cache.describe(port, data.place(), data.address(), data.len(), shape)?.as_ptr()
                }
            };
            self.bound_outputs.push(value);
        }
        Ok(())
    }

    /// Runs the bound values, and takes ownership of all that the run allocated, even if it failed.
    ///
    /// # Safety
    /// As for [`Session::run`].
    unsafe fn run_bound(&mut self) -> Result<Vec<Option<OnnxValue>>, BackendError> {
        let ours: Vec<bool> = self.bound_outputs.iter().map(|pointer| !pointer.is_null()).collect();
        let ran = match self.leaves.filter(|_| ours.contains(&false)) {
            Some(place) => {
                let binding = match &mut self.binding {
                    Some(binding) => binding,
                    none => none.insert(Binding::new(&self.session, place)?),
                };
                let inputs = (&self.inputs.names, self.bound_inputs.as_slice());
                let outputs = (&self.outputs.names, self.bound_outputs.as_mut_slice());
                // SAFETY: the caller's promise; both bind functions made one value a name.
                unsafe { binding.run(inputs, outputs, &self.texts) }
            }
            // SAFETY: as above.
            None => unsafe {
                self.session.run(&self.inputs.names, &self.bound_inputs, &self.outputs.names, &mut self.bound_outputs)
            },
        };
        let taken = self.bound_outputs.iter().zip(ours).map(|(pointer, ours)| match ours {
            true => None,
            // SAFETY: the pointer was null before the run, so the run made the value and gave it away.
            false => unsafe { OnnxValue::from_raw(*pointer) },
        });
        let taken = taken.collect();
        ran.map(|()| taken)
    }

    /// Number of cache hits, over all ports.
    #[cfg(test)]
    pub(super) fn hits(&self) -> u64 {
        self.inputs.ports.iter().chain(&self.outputs.ports).map(|(_, cache)| cache.hits()).sum()
    }

    /// The largest number of descriptions in the cache of any port.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.inputs.ports.iter().chain(&self.outputs.ports).map(|(_, cache)| cache.len()).max().unwrap_or(0)
    }
}

fn check_place(session: &Session, port: &Port, place: DeviceId) -> Result<(), BackendError> {
    if session.takes(place) {
        return Ok(());
    }
    Err(BackendError(format!("'{}' is memory of {place:?}, where this session does not run", port.name)))
}

impl Context for OnnxContext {
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        let mut made = Vec::new();
        self.bind_inputs(inputs, &mut made)?;
        self.bind_outputs(outputs)?;
        // SAFETY: the spans of `inputs` and `outputs` borrow their memory beyond this call. `made` and the caches keep the values alive.
        // Spans to write are exclusive.
        let taken = unsafe { self.run_bound() }?;
        let ports = self.outputs.ports.iter().zip(&self.through);
        for (((port, _), through), (fetch, value)) in ports.zip(outputs.iter_mut().zip(taken)) {
            match (fetch, through.and_then(|index| inputs.get(index))) {
                (Fetch::New(answer), _) => *answer = Some(output::produced(port, value, &self.session, inputs)?),
                (Fetch::Into { shape, data }, Some(feed)) => {
                    output::pass_through(port, self.session.device(), feed, shape, data)?;
                }
                (Fetch::Into { .. }, None) => {}
            }
        }
        Ok(())
    }
}
