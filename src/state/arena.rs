//! Keeps states of a fixed size, in chunks of slots.
//!
//! A chunk has memory while one of its slots is in use. Freed memory goes to the [`ChunkCache`].

use std::ops::Range;
use std::sync::Arc;

use crate::device::{Buffer, BufferSlice, Device, DeviceError, DeviceId};

use super::chunk_cache::{ChunkCache, ChunkMemory};
use super::spec::Layout;

/// A chunk aims at this many bytes, so that a few sequences do not take the memory of many. An accelerator hands memory out in pieces of
/// megabytes, and stands still when some is given back.
fn chunk_size(place: DeviceId) -> usize {
    match place {
        DeviceId::Host => 1 << 20,
        DeviceId::Cuda(_) => 16 << 20,
    }
}

/// The memory of every fixed-size state of an instance's slots.
#[derive(Debug)]
pub(super) struct Arena {
    device: Arc<dyn Device>,
    cache: ChunkCache,
    chunk_size: usize,
    layouts: Vec<Layout>,
    sides: usize,
    pub(super) per_chunk: u32,
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Buffers by state and side; none while no slot is in use.
    memory: ChunkMemory,
    in_use: u32,
}

impl Arena {
    /// `whole` keeps all slots in one chunk, so that any run of them can be bound.
    pub(super) fn new(
        device: Arc<dyn Device>,
        cache: ChunkCache,
        layouts: Vec<Layout>,
        slots: u32,
        sides: u8,
        whole: bool,
    ) -> Arena {
        let row: usize = layouts.iter().map(|l| l.kept_row()).sum::<usize>().saturating_mul(usize::from(sides));
        let chunk_size = chunk_size(device.place());
        let fit = u32::try_from(chunk_size / row.max(1)).unwrap_or(u32::MAX);
        let per_chunk = if whole { slots.max(1) } else { fit.clamp(1, slots.max(1)) };
        let count = slots.div_ceil(per_chunk) as usize;
        let chunks = std::iter::repeat_with(Chunk::default).take(count).collect();
        Arena { device, cache, chunk_size, layouts, sides: usize::from(sides), per_chunk, chunks }
    }

    fn chunk(&self, slot: u32) -> Option<&Chunk> {
        self.chunks.get((slot / self.per_chunk) as usize)
    }

    /// Bytes of a slot, over all states and sides.
    fn slot_bytes(&self) -> u64 {
        self.layouts.iter().map(|l| l.kept_row() as u64).sum::<u64>().saturating_mul(self.sides as u64)
    }

    /// Provides memory for this slot, and counts it as used. If the slot's chunk had none, returns which slots it is for and whether an earlier
    /// owner wrote to it.
    pub(super) fn occupy(&mut self, slot: u32) -> Result<Option<(Range<u32>, bool)>, DeviceError> {
        let slot_bytes = self.slot_bytes();
        let (device, layouts, sides, per_chunk) = (&self.device, &self.layouts, self.sides, self.per_chunk);
        let Some(chunk) = self.chunks.get_mut((slot / per_chunk) as usize) else { return Ok(None) };
        let mut provided = None;
        if chunk.memory.buffers.is_empty() && !layouts.is_empty() {
            let bytes = |l: &Layout| l.kept_row().saturating_mul(per_chunk as usize);
            let sizes: Vec<usize> = layouts.iter().flat_map(|l| std::iter::repeat_n(bytes(l), sides)).collect();
            chunk.memory = self.cache.allocate(device, &sizes)?;
            let first = slot / per_chunk * per_chunk;
            provided = Some((first..first.saturating_add(per_chunk), chunk.memory.is_reused));
        }
        chunk.in_use += 1;
        let upto = u64::from(slot % per_chunk) + 1;
        chunk.memory.touched = chunk.memory.touched.max(upto.saturating_mul(slot_bytes));
        Ok(provided)
    }

    /// Counts the slot as free. A large chunk without slots in use goes to the cache; a small one stays for the next START.
    pub(super) fn vacate(&mut self, slot: u32) {
        let chunk_size = self.chunk_size;
        let Some(chunk) = self.chunks.get_mut((slot / self.per_chunk) as usize) else { return };
        chunk.in_use = chunk.in_use.saturating_sub(1);
        let bytes: usize = chunk.memory.buffers.iter().map(Buffer::len).sum();
        if chunk.in_use == 0 && (bytes > chunk_size || slot >= self.per_chunk) {
            self.cache.keep(&self.device, std::mem::take(&mut chunk.memory));
        }
    }

    /// Whether a run can write where it does not read.
    pub(super) fn has_two_sides(&self) -> bool {
        self.sides > 1
    }

    /// The memory of a state on a side, and where the slot's row starts in it.
    pub(super) fn row(&self, state: usize, slot: u32, side: u8) -> Option<(&Buffer, usize)> {
        let layout = self.layouts.get(state)?;
        let buffer = self.chunk(slot)?.memory.buffers.get(state * self.sides + usize::from(side))?;
        Some((buffer, (slot % self.per_chunk) as usize * layout.kept_row()))
    }

    /// The slot's row as one end of a move.
    pub(super) fn slice(&self, state: usize, slot: u32, side: u8) -> Option<BufferSlice<'_>> {
        self.row(state, slot, side).map(|(buffer, at)| BufferSlice::of(buffer, at))
    }

    /// Bytes allocated.
    pub(super) fn allocated(&self) -> usize {
        self.chunks.iter().flat_map(|c| &c.memory.buffers).map(Buffer::len).sum()
    }
}
