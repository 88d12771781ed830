//! Memory for tensors and states, on the host or an accelerator, behind one trait.
//!
//! Only this module does arithmetic on raw addresses and calls libraries of devices. It does not know sequences, states or models.
//!
//! # Layout
//!
//! - `span`: borrowed memory that backends read and write · `owned`: shared read-only memory that a runtime or a pool allocated.
//! - `buffer`: memory that the server allocates · `copy`: copies within one device · `moves`: checked moves of rows between buffers ·
//!   [`formula`]: the arithmetic of a move.
//! - `host`: host memory · [`cuda`]: memory of NVIDIA GPUs · [`stand_in`]: an accelerator for tests, in host memory.
//! - `pool`: reusable host memory for answers · `unfinished`: host memory of a device that failed.
//! - [`trim`]: returns memory to the system that is no longer needed · `allocator`: the allocator of the program.

mod allocator;
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

pub use allocator::ProgramAllocator;
pub use buffer::Buffer;
pub use copy::copy;
pub use host::Host;
pub use moves::{BufferSlice, Moves, Scratch, StridedLayout};
pub use owned::Owned;
pub use pool::{Pool, Pooled};
pub use span::{MemorySpan, MemorySpanMut};
pub use trim::{trim, trim_heaps, trim_thread};
pub use unfinished::Unfinished;

/// The place of memory: the host or a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceId {
    #[default]
    Host,
    /// A CUDA device, by ordinal.
    Cuda(u16),
}

/// The name in messages for operators.
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceId::Host => f.write_str("the host"),
            DeviceId::Cuda(ordinal) => write!(f, "GPU {ordinal}"),
        }
    }
}

/// Why memory could not be allocated or moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("{place} has no room for {bytes} more bytes")]
    OutOfMemory { place: DeviceId, bytes: usize },
    /// A move would leave its buffer. Always a bug in the calling code.
    #[error("a move of {len} bytes at {at} leaves its buffer of {size} bytes")]
    OutOfBounds { at: usize, len: usize, size: usize },
    #[error("memory of {got} was handed to {want}")]
    WrongPlace { got: DeviceId, want: DeviceId },
    /// The device reported a failure. The work that it was given may not have been done.
    #[error("{place} failed to {what}: {why}")]
    Failed { place: DeviceId, what: &'static str, why: String },
}

/// A point in a device's order of work, behind all work submitted before it.
#[derive(Debug)]
#[must_use = "work before a fence is done only when the fence was waited for"]
pub struct Fence(u64);

/// A source of memory with one queue of work: the device does work in the order of submission. The host does it at once; an accelerator
/// does it later. Code that lets a device read or write host memory therefore waits for a [`Fence`] before it touches that memory.
pub trait Device: Send + Sync + fmt::Debug {
    fn place(&self) -> DeviceId;

    /// Allocates at least one byte of zeroed memory, aligned to 64 bytes, and returns its address.
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;

    /// # Safety
    /// [`Device::allocate`] must have returned this address for `bytes`, and only work that was submitted before may still use it.
    unsafe fn release(&self, address: u64, bytes: usize);

    /// Submits all these moves. Their order among themselves is open.
    ///
    /// # Safety
    /// Every address must be in live memory of this device that nothing else touches before the moves are done. No two moves may write
    /// overlapping memory, and none may write memory that another one reads. Sets must name existing rows.
    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError>;

    /// Submits a copy from host memory to memory of this device.
    ///
    /// # Safety
    /// `len` bytes must be readable at `from` and writable at `to`. Both must stay alive and unchanged by others until the copy is done.
    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError>;

    /// Submits a copy from memory of this device to host memory.
    ///
    /// # Safety
    /// As for [`Device::upload`], in the other direction.
    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError>;

    /// Makes a fence behind all work submitted so far.
    fn fence(&self) -> Result<Fence, DeviceError>;

    /// Waits until all work before the fence is done.
    fn wait(&self, fence: Fence) -> Result<(), DeviceError>;

    /// An allocator of host memory that this device accesses directly; `None` if this is the host.
    fn staging(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// Reads the gauges; `None` if the device has no memory of its own.
    fn reading(&self) -> Option<Reading> {
        None
    }

    /// The stream on which a runtime must enqueue its own work, so that both keep one order.
    fn stream(&self) -> Option<u64> {
        None
    }
}

/// The accelerators of this machine. Asking may load a driver.
pub trait Accelerators: Send + Sync + fmt::Debug {
    /// The usable accelerators, by ordinal; or why there is none.
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator>;

    /// Opens an accelerator, with its own queue of work.
    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError>;
}

/// A GPU that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    pub ordinal: u16,
    pub name: String,
    /// `GPU-…`, as in the vendor's tools.
    pub uuid: String,
    pub total_bytes: u64,
}

/// The gauges of an accelerator. Gauges that the vendor's tools do not offer are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Utilization over the last sampling period, from 0 to 1.
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    pub watts_at_most: Option<f64>,
    /// Energy since the driver was loaded.
    pub joules: Option<f64>,
}

/// Why no accelerator can be used, and what to do about it, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAccelerator(pub String);

/// The conversion of the element type during a move.
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
    /// Bytes of an element at the source and at the destination; 1 and 1 without a conversion.
    pub const fn element(self) -> (u64, u64) {
        match self {
            Convert::No => (1, 1),
            Convert::Fp32ToFp16 | Convert::Fp32ToBf16 => (4, 2),
            Convert::Fp16ToFp32 | Convert::Bf16ToFp32 => (2, 4),
        }
    }

    /// Bytes written for this many bytes read.
    pub const fn written(self, read: usize) -> usize {
        match self.element() {
            (4, 2) => read / 2,
            (2, 4) => read.saturating_mul(2),
            _ => read,
        }
    }
}

/// The layout that all rows of a set share: `outer` pieces of `inner` bytes each, strided at both ends. All bounds were checked. The
/// kernels read this type as it is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawSet {
    pub from_stride: u64,
    pub to_stride: u64,
    pub outer: u64,
    /// Bytes of a piece at the source.
    pub inner: u64,
    /// The set's rows have the indices `first..first + count`.
    pub first: u32,
    pub count: u32,
    pub convert: Convert,
    /// Bytes (without a conversion) or elements (with one) that are moved at once. All addresses, strides and sizes are multiples of it.
    pub unit: u32,
}

/// One row of a set. The kernels read this type as it is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRow {
    /// The source address; 0 writes zeros.
    pub from: u64,
    pub to: u64,
}
