//! Memory that tensors and states live in, host or accelerator, behind one trait. The one home of arithmetic on raw addresses,
//! and of whatever a device's own library needs. Nothing here knows of sequences, states or models.
//!
//! # Layout
//!
//! - [`span`]: borrowed and shared memory, as backends take and give it.
//! - [`buffer`]: memory of ours, and what moves between buffers.
//! - [`host`]: the host's own memory.
//! - [`pool`]: host memory for answers, used again and again.
//! - [`trim`]: gives back what was needed once.

mod buffer;
mod host;
mod pool;
mod span;
mod trim;

use std::fmt;

pub use buffer::{Buffer, Convert, Move, Strip, run};
pub use host::Host;
pub use pool::{Pool, Pooled};
pub use span::{Owned, Span, SpanMut};
pub use trim::trim;

/// Where memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Place {
    #[default]
    Host,
    /// A CUDA device, by ordinal.
    Cuda(u16),
}

/// Why memory could not be had or moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("{place:?} has no room for {bytes} more bytes")]
    OutOfMemory { place: Place, bytes: usize },
    /// A move would leave its buffer. Always a fault of the caller's.
    #[error("a move of {len} bytes at {at} leaves its buffer of {size} bytes")]
    OutOfBounds { at: usize, len: usize, size: usize },
    #[error("a span on {got:?} was handed to {want:?}")]
    WrongPlace { got: Place, want: Place },
}

/// A place where memory can be had.
pub trait Device: Send + Sync + fmt::Debug {
    fn place(&self) -> Place;

    /// Zeroed memory of at least one byte, aligned to 64 bytes; its address.
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;

    /// # Safety
    /// The memory must be what [`Device::allocate`] gave for `bytes`, and nobody may use it any more.
    unsafe fn release(&self, address: u64, bytes: usize);

    /// Does all these moves, in any order.
    ///
    /// # Safety
    /// Every address must lie in memory of this device that is alive and that nobody else touches meanwhile; no two moves may overlap
    /// in what they write, nor one write what another reads.
    unsafe fn run(&self, moves: &[RawMove]);
}

/// `outer` pieces of `inner` bytes each, from one strided place to another. All bounds were checked.
#[derive(Clone, Copy, Debug)]
pub struct RawMove {
    /// `None` writes zeros.
    pub from: Option<u64>,
    pub from_stride: usize,
    pub to: u64,
    pub to_stride: usize,
    pub outer: usize,
    /// Bytes of a piece where it is read.
    pub inner: usize,
    pub convert: Convert,
}
