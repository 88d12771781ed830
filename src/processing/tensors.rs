//! The tensors that one guest holds by handle, and the functions of the contract's `tensors` over them. Everything is bounded, and what breaks a rule traps.

use std::any::Any;

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

/// Maximum number of handles of one guest.
const HANDLES: usize = 16 * 1024;
/// Maximum bytes of a guest's unfinished buffers, and of the tensors that it makes during one call.
const MADE: u64 = 64 << 20;
/// Maximum number of dimensions of a tensor that a guest makes.
const RANK: usize = 64;
/// A guest that still holds more than this after a call is replaced.
const HELD: u64 = 64 << 20;

/// What one guest holds by handle.
#[derive(Debug)]
pub struct HeldTensors {
    table: ResourceTable,
    /// Bytes of all that it holds. Bytes that several tensors share count for each.
    held: u64,
    /// Bytes of buffers made during this call.
    made: u64,
    /// The calls to other models that it may make during this call.
    pub(super) calls: Option<OutgoingCalls>,
    /// A larger output of such a call is passed by handle.
    pub(super) by_value: u64,
}

impl HeldTensors {
    pub(crate) fn data() -> Box<dyn Any + Send> {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Box::new(HeldTensors { table, held: 0, made: 0, calls: None, by_value: 0 })
    }

    /// A call begins.
    pub(super) fn begin_call(&mut self) {
        self.made = 0;
    }

    /// Whether the guest keeps so much that it should be replaced. `files` are bytes that it may keep.
    pub(crate) fn is_too_much(&self, files: u64) -> bool {
        self.held > HELD.saturating_add(files)
    }

    /// Hands a tensor to the guest.
    pub(crate) fn give(&mut self, tensor: Tensor) -> Result<Resource<Tensor>> {
        self.held = self.held.saturating_add(tensor.data.len() as u64);
        Ok(self.table.push(tensor)?)
    }

    /// Takes a tensor back from the guest.
    pub(super) fn take(&mut self, tensor: Resource<Tensor>) -> Result<Tensor> {
        let tensor = self.table.delete(tensor)?;
        self.held = self.held.saturating_sub(tensor.data.len() as u64);
        Ok(tensor)
    }

    pub(super) fn get<T: Send + 'static>(&self, resource: &Resource<T>) -> Result<&T> {
        Ok(self.table.get(resource)?)
    }

    /// Hands something small to the guest that is no tensor.
    pub(super) fn insert<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>> {
        Ok(self.table.push(entry)?)
    }

    pub(super) fn remove<T: Send + 'static>(&mut self, resource: Resource<T>) -> Result<T> {
        Ok(self.table.delete(resource)?)
    }

    fn make(&mut self, dtype: u32, shape: Vec<u64>, size: u64) -> Result<Resource<TensorBuffer>> {
        let dtype = dtype_of(dtype).ok_or_else(|| Error::msg(format!("{dtype} is no type of tensors")))?;
        self.made = self.made.saturating_add(size);
        if self.made > MADE {
            return Err(Error::msg(format!("more than {} MiB of buffers in one call", MADE >> 20)));
        }
        let shape = checked_rank(shape)?;
        if let Some(element) = dtype.size()
            && shape.elements().and_then(|n| n.checked_mul(element as u64)) != Some(size)
        {
            return Err(Error::msg(format!("a buffer {dtype} {shape} does not have {size} bytes")));
        }
        self.held = self.held.saturating_add(size);
        let bytes = vec![0; usize::try_from(size)?];
        Ok(self.table.push(TensorBuffer { dtype, shape, bytes })?)
    }
}

/// A tensor of what a guest gave by value.
pub(super) fn from_flat(dtype: u32, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Tensor> {
    from_parts(dtype, shape, Bytes::from(bytes))
}

fn from_parts(dtype: u32, shape: Vec<u64>, data: Bytes) -> Result<Tensor> {
    let dtype = dtype_of(dtype).ok_or_else(|| Error::msg(format!("{dtype} is no type of tensors")))?;
    Ok(Tensor { dtype, shape: checked_rank(shape)?, data })
}

/// A list of dimensions is memory of the server, which no other limit counts.
fn checked_rank(mut shape: Vec<u64>) -> Result<Shape> {
    let rank = shape.len();
    if rank > RANK {
        return Err(Error::msg(format!("a tensor of {rank} dimensions; the maximum is {RANK}")));
    }
    // The unused part of a larger allocation is not kept.
    shape.shrink_to_fit();
    Ok(Shape(shape))
}

/// The range of `len` bytes from `at` on within `size` bytes.
fn range(at: u64, len: u64, size: usize) -> Result<std::ops::Range<usize>> {
    let beyond = || Error::msg(format!("{len} bytes from byte {at} on are not within {size} bytes"));
    let end = at.checked_add(len).filter(|end| *end <= size as u64).ok_or_else(beyond)?;
    Ok(usize::try_from(at)?..usize::try_from(end)?)
}

/// The tensors of a guest, and the end of a call that takes too long.
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
        held.give(part)
    }

    fn cast(&mut self, this: Resource<Tensor>, dtype: u32, shape: Vec<u64>) -> Result<Resource<Tensor>> {
        let held = held(self)?;
        let cast = from_parts(dtype, shape, held.table.get(&this)?.data.clone())?;
        check_size(&cast).map_err(|what| Error::msg(format!("a cast to {} {} {what}", cast.dtype, cast.shape)))?;
        held.give(cast)
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
        let TensorBuffer { dtype, shape, bytes } = held.table.delete(this)?;
        held.held = held.held.saturating_sub(bytes.len() as u64);
        held.give(Tensor { dtype, shape, data: Bytes::from(bytes) })
    }

    fn drop(&mut self, this: Resource<TensorBuffer>) -> Result<()> {
        let held = self.world_data::<HeldTensors>()?;
        let buffer = held.table.delete(this)?;
        held.held = held.held.saturating_sub(buffer.bytes.len() as u64);
        Ok(())
    }
}

impl tensors::Host for HostState {}
impl calls::Host for HostState {}
