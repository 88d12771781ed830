//! Memory for tensors and states, on the host or an accelerator, behind one trait.
//!
//! Arithmetic on raw addresses and the libraries of devices belong here alone. Nothing here knows of sequences, states or models.
//!
//! # Layout
//!
//! - `span`: borrowed memory, as backends take and give it · `owned`: memory of theirs, kept.
//! - `buffer`: memory of ours · `copy`: a piece of it · `moves`: rows between such buffers, checked · [`formula`]: what a move does to each of its bytes.
//! - `host`: the host's own memory · [`cuda`]: that of NVIDIA GPUs · [`stand_in`]: an accelerator for tests, in host memory.
//! - `pool`: host memory for answers, used again and again · `unfinished`: host memory of a device that failed.
//! - [`trim`]: gives back what was needed once.

mod buffer;
mod copy;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "without_cuda.rs"]
pub mod cuda;
pub mod formula;
mod host;
mod moves;
mod owned;
mod pool;
mod span;
pub mod stand_in;
mod trim;
mod unfinished;

use std::fmt;
use std::sync::Arc;

pub use buffer::Buffer;
pub use copy::copy;
pub use host::Host;
pub use moves::{BufferSlice, Moves, Scratch, StridedLayout};
pub use owned::Owned;
pub use pool::{Pool, Pooled};
pub use span::{MemorySpan, MemorySpanMut};
pub use trim::{trim, trim_heaps, trim_thread};
pub use unfinished::Unfinished;

/// Where memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceId {
    #[default]
    Host,
    /// A CUDA device, by ordinal.
    Cuda(u16),
}

/// As operators read it.
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceId::Host => f.write_str("the host"),
            DeviceId::Cuda(ordinal) => write!(f, "GPU {ordinal}"),
        }
    }
}

/// Why memory could not be had or moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("{place} has no room for {bytes} more bytes")]
    OutOfMemory { place: DeviceId, bytes: usize },
    /// A move would leave its buffer. Always a fault of the caller's.
    #[error("a move of {len} bytes at {at} leaves its buffer of {size} bytes")]
    OutOfBounds { at: usize, len: usize, size: usize },
    #[error("memory of {got} was handed to {want}")]
    WrongPlace { got: DeviceId, want: DeviceId },
    /// The device itself says so; what was asked of it may not have been done.
    #[error("{place} failed to {what}: {why}")]
    Failed { place: DeviceId, what: &'static str, why: String },
}

/// A point in the order of work of a device, behind everything that was asked for before it was made.
#[derive(Debug)]
#[must_use = "work before a fence is done only when the fence was waited for"]
pub struct Fence(u64);

/// A place where memory can be had, and an order of work in it: what is asked for is done in the order of asking. The host does it at once;
/// an accelerator does it later, so that code that lets it read or write host memory waits for a [`Fence`] before touching that memory.
pub trait Device: Send + Sync + fmt::Debug {
    fn place(&self) -> DeviceId;

    /// Zeroed memory of at least one byte, aligned to 64 bytes; its address.
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;

    /// # Safety
    /// The memory must be what [`Device::allocate`] gave for `bytes`, and only work that was submitted before may still use it.
    unsafe fn release(&self, address: u64, bytes: usize);

    /// Does all these moves, in any order among themselves.
    ///
    /// # Safety
    /// Every address must lie in memory of this device that is alive and that nothing else touches before this is done; no two moves may
    /// overlap in what they write, nor one write what another reads. Sets must name rows that are there.
    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError>;

    /// Copies bytes of the host into memory of this device.
    ///
    /// # Safety
    /// `len` bytes must be readable at `from` and writable at `to`, alive and changed by nothing else before this is done.
    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError>;

    /// Copies bytes of this device into memory of the host.
    ///
    /// # Safety
    /// As for [`Device::upload`], the other way round.
    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError>;

    /// Marks what was asked for so far.
    fn fence(&self) -> Result<Fence, DeviceError>;

    /// Waits until everything before the fence is done.
    fn wait(&self, fence: Fence) -> Result<(), DeviceError>;

    /// Host memory that this device reads and writes without a detour; `None` if this is the host.
    fn staging(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// What its gauges say now, where it has a memory of its own.
    fn reading(&self) -> Option<Reading> {
        None
    }

    /// Where a runtime of this device shall enqueue its own work, so that it stands in one order with ours.
    fn stream(&self) -> Option<u64> {
        None
    }
}

/// What can be had besides the host. Asking may load a driver.
pub trait Accelerators: Send + Sync + fmt::Debug {
    /// Those that can be used, by ordinal; or why there is none.
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator>;

    /// A device with an order of work of its own.
    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError>;
}

/// A GPU that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    pub ordinal: u16,
    pub name: String,
    /// `GPU-…`, as the maker's tools have it.
    pub uuid: String,
    pub total_bytes: u64,
}

/// What the gauges of an accelerator say. What its maker's tools do not tell is missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Of the last moments, from 0 to 1.
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    pub watts_at_most: Option<f64>,
    /// Since its driver was loaded.
    pub joules: Option<f64>,
}

/// Why no accelerator can be used: one sentence, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAccelerator(pub String);

/// Whether a move changes the element type on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Convert {
    #[default]
    No = 0,
    /// FP32 is read and FP16 written.
    Fp32ToFp16 = 1,
    /// FP16 is read and FP32 written.
    Fp16ToFp32 = 2,
    /// FP32 is read and BF16 written.
    Fp32ToBf16 = 3,
    /// BF16 is read and FP32 written.
    Bf16ToFp32 = 4,
}

impl Convert {
    /// Bytes of an element where it is read and where it is written; of a byte, without conversion.
    pub const fn element(self) -> (u64, u64) {
        match self {
            Convert::No => (1, 1),
            Convert::Fp32ToFp16 | Convert::Fp32ToBf16 => (4, 2),
            Convert::Fp16ToFp32 | Convert::Bf16ToFp32 => (2, 4),
        }
    }

    /// Bytes written for so many read.
    pub const fn written(self, read: usize) -> usize {
        match self.element() {
            (4, 2) => read / 2,
            (2, 4) => read.saturating_mul(2),
            _ => read,
        }
    }
}

/// What the rows of one kind have in common: `outer` pieces of `inner` bytes each, from one strided place to another. All bounds were checked.
/// As kernels read it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawSet {
    pub from_stride: u64,
    pub to_stride: u64,
    pub outer: u64,
    /// Bytes of a piece where it is read.
    pub inner: u64,
    /// Its rows stand at `first..first + count`.
    pub first: u32,
    pub count: u32,
    pub convert: Convert,
    /// Bytes (without a conversion) or elements (with one) that are moved at once: all addresses, strides and sizes are multiples of it.
    pub unit: u32,
}

/// One row of a set. As kernels read it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRow {
    /// 0 writes zeros.
    pub from: u64,
    pub to: u64,
}
