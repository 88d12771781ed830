//! The tensors that one guest holds by handle, and the functions of the `tensors` interface. Everything has a limit, and a broken rule is a
//! trap.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::Shape;
use sequor_wasm::host::HostState;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Error, Result};

use super::buffer::TensorBuffer;
use super::contract::sequor::plugin::{calls, tensors};
use super::dtypes::{code_of, dtype_of};
use super::outgoing::OutgoingCalls;
use super::ports::check_size;
use crate::tensor::Tensor;

/// Maximum number of handles that one call passes to a guest.
const HANDED: usize = 16 * 1024;
/// Maximum number of handles of one guest: those of a call, and the same number of its own.
const HANDLES: usize = 2 * HANDED;
/// Maximum bytes of a guest's unfinished buffers, and of the tensors that it makes during one call.
const MADE: u64 = 64 << 20;
/// Maximum number of dimensions of a tensor that a guest makes.
const RANK: usize = 64;
/// A guest that still holds more than this after a call is replaced.
const HELD: u64 = 64 << 20;
/// Maximum bytes that a guest may hold during a call beyond those that were passed to it.
const HELD_IN_CALL: u64 = 256 << 20;
/// Maximum number of calls to other models during one call.
const MODEL_CALLS: u32 = 65_536;
/// Bytes counted for each entry in addition to its content.
const ENTRY: u64 = 64;

/// The objects that one guest holds by handle.
#[derive(Debug)]
pub struct HeldTensors {
    table: ResourceTable,
    /// Number of entries of the table.
    entries: usize,
    /// The size of the memory behind each tensor. A part of a tensor shares the entry of the whole, because it keeps the whole in memory.
    memory: BTreeMap<u32, Arc<u64>>,
    /// Bytes of everything that the guest holds. Bytes that several tensors share count once.
    held: u64,
    /// Bytes held when the current call began, plus the bytes passed since.
    passed: u64,
    /// Bytes of the tensors and buffers that the guest made during this call.
    made: u64,
    /// Number of calls to other models during this call.
    model_calls: u32,
    is_configured: bool,
    /// The calls to other models that the guest may make during this call.
    pub(super) calls: Option<OutgoingCalls>,
    /// An output of such a call that is larger than this many bytes is passed by handle.
    pub(super) by_value: u64,
}

impl HeldTensors {
    pub(crate) fn data() -> Box<dyn Any + Send> {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Box::new(HeldTensors {
            table,
            entries: 0,
            memory: BTreeMap::new(),
            held: 0,
            passed: 0,
            made: 0,
            model_calls: 0,
            is_configured: false,
            calls: None,
            by_value: 0,
        })
    }

    /// Begins a call other than `configure`.
    pub(super) fn begin_call(&mut self) {
        (self.passed, self.made, self.model_calls, self.is_configured) = (self.held, 0, 0, true);
    }

    /// Whether a call after `configure` has begun.
    pub(super) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Counts a call to another model, and returns the number of calls so far. An error ends a guest's call that makes too many.
    pub(super) fn count_model_call(&mut self) -> Result<u32> {
        self.model_calls += 1;
        if self.model_calls > MODEL_CALLS {
            return Err(Error::msg(format!("more than {MODEL_CALLS} calls to models in one call")));
        }
        Ok(self.model_calls)
    }

    /// Whether the guest holds so many bytes or objects that it should be replaced. `files` is the number of bytes that it may keep for its
    /// files.
    pub(crate) fn is_too_much(&self, files: u64) -> bool {
        // A call passes up to `HANDED` more.
        self.held > HELD.saturating_add(files) || self.entries > HANDLES - HANDED
    }

    fn push<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>> {
        let given = self.table.push(entry)?;
        self.entries += 1;
        Ok(given)
    }

    fn delete<T: Send + 'static>(&mut self, resource: Resource<T>) -> Result<T> {
        let entry = self.table.delete(resource)?;
        self.entries = self.entries.saturating_sub(1);
        Ok(entry)
    }

    /// Passes a tensor to the guest with a call.
    pub(crate) fn give(&mut self, tensor: Tensor) -> Result<Resource<Tensor>> {
        let before = self.held;
        let given = self.hold_new(tensor)?;
        self.passed = self.passed.saturating_add(self.held - before);
        Ok(given)
    }

    /// Gives the guest an output of a model that it called. An error ends a guest's call that holds too much.
    pub(super) fn give_answer(&mut self, tensor: Tensor) -> Result<Resource<Tensor>> {
        let given = self.hold_new(tensor)?;
        self.check_held()?;
        Ok(given)
    }

    /// Gives the guest a tensor made of its own bytes.
    pub(super) fn give_made(&mut self, Tensor { dtype, shape, data }: Tensor) -> Result<Resource<Tensor>> {
        self.count_made(data.len() as u64)?;
        self.hold_new(Tensor { dtype, shape: checked_rank(shape.0)?, data })
    }

    fn hold_new(&mut self, tensor: Tensor) -> Result<Resource<Tensor>> {
        let bytes = tensor.data.len() as u64;
        let given = self.hold(tensor, Arc::new(bytes))?;
        self.held = self.held.saturating_add(bytes);
        Ok(given)
    }

    /// Gives the guest a tensor over the bytes of another tensor.
    fn hold_part(&mut self, part: Tensor, whole: &Resource<Tensor>) -> Result<Resource<Tensor>> {
        match self.memory.get(&whole.rep()).cloned() {
            Some(memory) => self.hold(part, memory),
            None => self.hold_new(part),
        }
    }

    fn hold(&mut self, tensor: Tensor, memory: Arc<u64>) -> Result<Resource<Tensor>> {
        let own = own_bytes(&tensor);
        let given = self.push(tensor)?;
        self.memory.insert(given.rep(), memory);
        self.held = self.held.saturating_add(own);
        Ok(given)
    }

    /// Takes a tensor back from the guest.
    pub(super) fn take(&mut self, tensor: Resource<Tensor>) -> Result<Tensor> {
        let rep = tensor.rep();
        let tensor = self.delete(tensor)?;
        let freed = self.memory.remove(&rep).and_then(Arc::into_inner).unwrap_or(0);
        self.held = self.held.saturating_sub(freed.saturating_add(own_bytes(&tensor)));
        Ok(tensor)
    }

    fn check_held(&self) -> Result<()> {
        if self.held > self.passed.saturating_add(HELD_IN_CALL) {
            return Err(Error::msg(format!("it holds more than {} MiB of outputs in one call", HELD_IN_CALL >> 20)));
        }
        Ok(())
    }

    fn count_made(&mut self, bytes: u64) -> Result<()> {
        self.made = self.made.saturating_add(bytes);
        if self.made > MADE {
            return Err(Error::msg(format!("more than {} MiB of buffers in one call", MADE >> 20)));
        }
        Ok(())
    }

    pub(super) fn get<T: Send + 'static>(&self, resource: &Resource<T>) -> Result<&T> {
        Ok(self.table.get(resource)?)
    }

    /// Gives the guest a small object that is not a tensor.
    pub(super) fn insert<T: HeldEntry>(&mut self, entry: T) -> Result<Resource<T>> {
        let bytes = ENTRY + entry.bytes();
        let given = self.push(entry)?;
        self.held = self.held.saturating_add(bytes);
        self.check_held()?;
        Ok(given)
    }

    pub(super) fn remove<T: HeldEntry>(&mut self, resource: Resource<T>) -> Result<T> {
        let entry = self.delete(resource)?;
        self.held = self.held.saturating_sub(ENTRY + entry.bytes());
        Ok(entry)
    }

    fn make(&mut self, dtype: u32, shape: Vec<u64>, size: u64) -> Result<Resource<TensorBuffer>> {
        let dtype = dtype_of(dtype).ok_or_else(|| Error::msg(format!("{dtype} is no type of tensors")))?;
        self.count_made(size)?;
        let shape = checked_rank(shape)?;
        if let Some(element) = dtype.size()
            && shape.elements().and_then(|n| n.checked_mul(element as u64)) != Some(size)
        {
            return Err(Error::msg(format!("a buffer {dtype} {shape} does not have {size} bytes")));
        }
        self.held = self.held.saturating_add(size);
        let bytes = vec![0; usize::try_from(size)?];
        self.push(TensorBuffer { dtype, shape, bytes })
    }
}

/// A held object that is not a tensor.
pub(super) trait HeldEntry: Send + 'static {
    /// Bytes of its texts.
    fn bytes(&self) -> u64;
}

/// Bytes of a tensor's handle. No two tensors share them.
fn own_bytes(tensor: &Tensor) -> u64 {
    ENTRY + 8 * tensor.shape.0.len() as u64
}

/// Checks that a call does not pass too many tensors by handle. The request decides how many there are.
pub(super) fn check_handles<'t>(
    tensors: impl Iterator<Item = &'t Tensor>,
    by_value: u64,
) -> std::result::Result<(), String> {
    match tensors.filter(|tensor| tensor.data.len() as u64 > by_value).count() {
        0..=HANDED => Ok(()),
        count => Err(format!("{count} large outputs of its runs at once; the maximum is {HANDED}")),
    }
}

/// Makes a tensor from values that a guest passed by value.
pub(super) fn from_flat(dtype: u32, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Tensor> {
    from_parts(dtype, shape, Bytes::from(bytes))
}

fn from_parts(dtype: u32, shape: Vec<u64>, data: Bytes) -> Result<Tensor> {
    let dtype = dtype_of(dtype).ok_or_else(|| Error::msg(format!("{dtype} is no type of tensors")))?;
    Ok(Tensor { dtype, shape: checked_rank(shape)?, data })
}

/// Limits the number of dimensions. They use memory of the server that no other limit counts.
fn checked_rank(mut shape: Vec<u64>) -> Result<Shape> {
    let rank = shape.len();
    if rank > RANK {
        return Err(Error::msg(format!("a tensor of {rank} dimensions; the maximum is {RANK}")));
    }
    // Frees the unused part of a larger allocation.
    shape.shrink_to_fit();
    Ok(Shape(shape))
}

/// The range of `len` bytes from `at`, checked against `size` bytes.
fn range(at: u64, len: u64, size: usize) -> Result<std::ops::Range<usize>> {
    let beyond = || Error::msg(format!("{len} bytes from byte {at} on are not within {size} bytes"));
    let end = at.checked_add(len).filter(|end| *end <= size as u64).ok_or_else(beyond)?;
    Ok(usize::try_from(at)?..usize::try_from(end)?)
}

/// The tensors of a guest. The error ends a call that takes too long.
fn held(state: &mut HostState) -> Result<&mut HeldTensors> {
    state.check_time()?;
    state.world_data()
}

impl tensors::HostTensor for HostState {
    fn dtype(&mut self, this: Resource<Tensor>) -> Result<u32> {
        Ok(code_of(held(self)?.table.get(&this)?.dtype))
    }

    fn shape(&mut self, this: Resource<Tensor>) -> Result<Vec<u64>> {
        Ok(held(self)?.table.get(&this)?.shape.0.clone())
    }

    fn size(&mut self, this: Resource<Tensor>) -> Result<u64> {
        Ok(held(self)?.table.get(&this)?.data.len() as u64)
    }

    fn read(&mut self, this: Resource<Tensor>, at: u64, len: u64) -> Result<Vec<u8>> {
        let data = &held(self)?.table.get(&this)?.data;
        let range = range(at, len, data.len())?;
        Ok(data.get(range).unwrap_or_default().to_vec())
    }

    fn part(&mut self, this: Resource<Tensor>, at: u64, len: u64, shape: Vec<u64>) -> Result<Resource<Tensor>> {
        let held = held(self)?;
        let whole = held.table.get(&this)?;
        let range = range(at, len, whole.data.len())?;
        let part = Tensor { dtype: whole.dtype, shape: checked_rank(shape)?, data: whole.data.slice(range) };
        check_size(&part).map_err(|what| Error::msg(format!("a part {} {} {what}", part.dtype, part.shape)))?;
        held.hold_part(part, &this)
    }

    fn cast(&mut self, this: Resource<Tensor>, dtype: u32, shape: Vec<u64>) -> Result<Resource<Tensor>> {
        let held = held(self)?;
        let cast = from_parts(dtype, shape, held.table.get(&this)?.data.clone())?;
        check_size(&cast).map_err(|what| Error::msg(format!("a cast to {} {} {what}", cast.dtype, cast.shape)))?;
        held.hold_part(cast, &this)
    }

    fn drop(&mut self, this: Resource<Tensor>) -> Result<()> {
        self.world_data::<HeldTensors>()?.take(this).map(drop)
    }
}

impl tensors::HostBuffer for HostState {
    fn new(&mut self, dtype: u32, shape: Vec<u64>, size: u64) -> Result<Resource<TensorBuffer>> {
        held(self)?.make(dtype, shape, size)
    }

    fn write(&mut self, this: Resource<TensorBuffer>, at: u64, bytes: Vec<u8>) -> Result<()> {
        let buffer = held(self)?.table.get_mut(&this)?;
        let range = range(at, bytes.len() as u64, buffer.bytes.len())?;
        if let Some(to) = buffer.bytes.get_mut(range) {
            to.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn copy(
        &mut self,
        this: Resource<TensorBuffer>,
        at: u64,
        source: Resource<Tensor>,
        start: u64,
        len: u64,
    ) -> Result<()> {
        let table = &mut held(self)?.table;
        let data = table.get(&source)?.data.clone();
        let from = range(start, len, data.len())?;
        let buffer = table.get_mut(&this)?;
        let to = range(at, len, buffer.bytes.len())?;
        if let (Some(to), Some(from)) = (buffer.bytes.get_mut(to), data.get(from)) {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    fn finish(&mut self, this: Resource<TensorBuffer>) -> Result<Resource<Tensor>> {
        let held = held(self)?;
        let TensorBuffer { dtype, shape, bytes } = held.delete(this)?;
        held.held = held.held.saturating_sub(bytes.len() as u64);
        held.hold_new(Tensor { dtype, shape, data: Bytes::from(bytes) })
    }

    fn drop(&mut self, this: Resource<TensorBuffer>) -> Result<()> {
        let held = self.world_data::<HeldTensors>()?;
        let buffer = held.delete(this)?;
        held.held = held.held.saturating_sub(buffer.bytes.len() as u64);
        Ok(())
    }
}

impl tensors::Host for HostState {}
impl calls::Host for HostState {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processing::wat_fixture::tensor;

    #[test]
    fn a_guest_that_keeps_too_many_handles_is_replaced_before_it_has_none_left() {
        let mut data = HeldTensors::data();
        let held = data.downcast_mut::<HeldTensors>().unwrap();
        let mut given: Vec<_> = (0..HANDLES - HANDED).map(|_| held.give(tensor(b"a")).unwrap()).collect();
        assert!(!held.is_too_much(0));
        given.push(held.give(tensor(b"a")).unwrap());
        assert!(held.is_too_much(0));
        held.take(given.pop().unwrap()).unwrap();
        assert!(!held.is_too_much(0));
    }
}
