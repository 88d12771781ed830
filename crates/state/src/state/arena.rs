//! Keeps states of a fixed size, in chunks of slots.
//!
//! A chunk has memory while one of its slots is in use. With a [`ChunkPlan`], the plan decides how long. Freed memory goes to the
//! [`ChunkCache`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::device::{Buffer, BufferSlice, Device, DeviceError, DeviceId};

use super::chunk_cache::{ChunkCache, ChunkMemory, IdleBytes};
use super::chunk_plan::{ChunkPlan, ChunkSizes};
use super::spec::Layout;

/// Target size of a chunk in bytes, so that a few sequences do not take the memory of many. An accelerator allocates in pieces of
/// megabytes, and stalls when memory is released.
fn chunk_size(place: DeviceId) -> usize {
    match place {
        DeviceId::Host => 1 << 20,
        DeviceId::Cuda(_) => 16 << 20,
    }
}

/// The memory of all fixed-size states of an instance's slots.
#[derive(Debug)]
pub(super) struct Arena {
    device: Arc<dyn Device>,
    cache: ChunkCache,
    chunk_size: usize,
    layouts: Vec<Layout>,
    sides: usize,
    pub(super) sizes: ChunkSizes,
    chunks: Vec<Chunk>,
    /// The plan of the chunks, and the number of chunks that have memory.
    planned: Option<(ChunkPlan, usize)>,
}

#[derive(Debug)]
struct Chunk {
    /// Buffers by state and side. Empty while no slot is in use.
    memory: ChunkMemory,
    in_use: u32,
    /// Free slots whose pages went back to the system.
    released: BTreeSet<u32>,
    /// Written bytes of the other free slots.
    idle: IdleBytes,
}

/// Chunks without memory.
fn chunks(count: usize, cache: &ChunkCache) -> Vec<Chunk> {
    let empty =
        || Chunk { memory: ChunkMemory::default(), in_use: 0, released: BTreeSet::new(), idle: IdleBytes::new(cache) };
    std::iter::repeat_with(empty).take(count).collect()
}

impl Arena {
    /// `whole` keeps all slots in one chunk, so that any range of them can be bound.
    pub(super) fn new(
        device: Arc<dyn Device>,
        cache: ChunkCache,
        layouts: Vec<Layout>,
        slots: u32,
        sides: u8,
        whole: bool,
    ) -> Arena {
        let row = layouts.iter().map(|l| l.kept_row()).fold(0, usize::saturating_add);
        let row = row.saturating_mul(usize::from(sides));
        let chunk_size = chunk_size(device.place());
        let fit = u32::try_from(chunk_size / row.max(1)).unwrap_or(u32::MAX);
        let per_chunk = if whole { slots.max(1) } else { fit.clamp(1, slots.max(1)) };
        let count = slots.div_ceil(per_chunk) as usize;
        let chunks = chunks(count, &cache);
        let (sides, sizes) = (usize::from(sides), ChunkSizes::even(per_chunk));
        Arena { device, cache, chunk_size, layouts, sides, sizes, chunks, planned: None }
    }

    /// Divides the slots into chunks by this plan. No slot may be in use.
    pub(super) fn plan(&mut self, plan: ChunkPlan) {
        self.sizes = plan.sizes;
        self.chunks = chunks(plan.count.max(1) as usize, &self.cache);
        self.planned = Some((plan, 0));
    }

    pub(super) fn planned_chunks(&self) -> Option<usize> {
        self.planned.map(|(_, count)| count)
    }

    /// Provides memory for one more chunk. Returns its slots, and whether an earlier owner wrote to the memory.
    pub(super) fn grow_by_one(&mut self) -> Result<Option<(Range<u32>, bool)>, DeviceError> {
        let Some((_, count)) = self.planned else { return Ok(None) };
        let provided = self.provide(count)?;
        self.count_idle(count);
        if let Some((_, count)) = &mut self.planned {
            *count += 1;
        }
        Ok(provided)
    }

    /// Adds a chunk if too few slots are free. Otherwise drops the last chunk if it is free and enough other slots are.
    pub(super) fn adjust(&mut self) -> Result<Option<(Range<u32>, bool)>, DeviceError> {
        let Some((plan, count)) = self.planned else { return Ok(None) };
        let free = |(n, chunk): (usize, &Chunk)| self.sizes.slots(n).saturating_sub(chunk.in_use);
        let free: u32 = self.chunks.iter().enumerate().take(count).map(free).sum();
        if count < plan.count as usize && free < plan.grow_below {
            return self.grow_by_one();
        }
        if count > 1
            && free > plan.shrink_above
            && let Some(last) = self.chunks.get_mut(count - 1).filter(|chunk| chunk.in_use == 0)
        {
            let memory = std::mem::take(&mut last.memory);
            self.planned = Some((plan, count - 1));
            self.count_idle(count - 1);
            self.cache.keep(&self.device, memory);
        }
        Ok(None)
    }

    /// Provides memory for a chunk that has none.
    fn provide(&mut self, n: usize) -> Result<Option<(Range<u32>, bool)>, DeviceError> {
        let (device, layouts, sides, slots) = (&self.device, &self.layouts, self.sides, self.sizes.slots(n));
        let Some(chunk) = self.chunks.get_mut(n).filter(|chunk| chunk.memory.buffers.is_empty()) else {
            return Ok(None);
        };
        if layouts.is_empty() {
            return Ok(None);
        }
        let bytes = |l: &Layout| l.kept_row().saturating_mul(slots as usize);
        let sizes: Vec<usize> = layouts.iter().flat_map(|l| std::iter::repeat_n(bytes(l), sides)).collect();
        chunk.memory = self.cache.allocate(device, &sizes)?;
        let first = self.sizes.start(n);
        Ok(Some((first..first.saturating_add(slots), chunk.memory.is_reused)))
    }

    fn chunk(&self, slot: u32) -> Option<&Chunk> {
        self.chunks.get(self.sizes.place(slot).0)
    }

    /// Bytes of a slot, over all states and sides.
    fn slot_bytes(&self) -> u64 {
        let row = self.layouts.iter().map(|l| l.kept_row() as u64).fold(0, u64::saturating_add);
        row.saturating_mul(self.sides as u64)
    }

    /// Provides memory for this slot, and counts it as used. If the slot's chunk had none, returns the chunk's slots, and whether an
    /// earlier owner wrote to the memory.
    pub(super) fn occupy(&mut self, slot: u32) -> Result<Option<(Range<u32>, bool)>, DeviceError> {
        let slot_bytes = self.slot_bytes();
        let (n, place) = self.sizes.place(slot);
        let provided = self.provide(n)?;
        if let Some((_, count)) = &mut self.planned {
            *count = (*count).max(n + 1);
        }
        let Some(chunk) = self.chunks.get_mut(n) else { return Ok(None) };
        chunk.in_use += 1;
        chunk.released.remove(&place);
        let upto = u64::from(place) + 1;
        chunk.memory.touched = chunk.memory.touched.max(upto.saturating_mul(slot_bytes));
        self.count_idle(n);
        Ok(provided)
    }

    /// Counts the slot as free. Without a plan, a large chunk without used slots goes to the cache. A small one stays for the next START.
    pub(super) fn vacate(&mut self, slot: u32) {
        let chunk_size = self.chunk_size;
        let (n, place) = self.sizes.place(slot);
        let Some(chunk) = self.chunks.get_mut(n) else { return };
        chunk.in_use = chunk.in_use.saturating_sub(1);
        let bytes: usize = chunk.memory.buffers.iter().map(Buffer::len).sum();
        let goes = self.planned.is_none() && chunk.in_use == 0 && (bytes > chunk_size || n > 0);
        let memory = if goes { std::mem::take(&mut chunk.memory) } else { ChunkMemory::default() };
        self.count_idle(n);
        if goes {
            self.cache.keep(&self.device, memory);
        } else if self.cache.is_over() {
            self.release_pages(n, place);
        }
    }

    /// Counts the written bytes of a chunk's free slots.
    fn count_idle(&mut self, n: usize) {
        let slot_bytes = self.slot_bytes();
        let Some(chunk) = self.chunks.get_mut(n) else { return };
        if chunk.memory.buffers.is_empty() {
            chunk.released.clear();
        }
        let others = u64::from(chunk.in_use) + chunk.released.len() as u64;
        let idle = match chunk.memory.buffers.is_empty() {
            true => 0,
            false => chunk.memory.touched.saturating_sub(others.saturating_mul(slot_bytes)),
        };
        chunk.idle.set(idle);
    }

    /// Gives the pages of free slots back to the system, as long as the limit is exceeded. `is_free` says which slots are free.
    pub(super) fn release_idle(&mut self, is_free: impl Fn(u32) -> bool) {
        let slot_bytes = self.slot_bytes();
        for n in 0..self.chunks.len() {
            let touched = self.chunks.get(n).map_or(0, |chunk| chunk.memory.touched / slot_bytes.max(1));
            let (first, touched) = (self.sizes.start(n), u32::try_from(touched).unwrap_or(u32::MAX));
            for place in 0..touched.min(self.sizes.slots(n)) {
                if !self.cache.is_over() {
                    return;
                }
                // If a slot is too small for whole pages, so are the others.
                if is_free(first.saturating_add(place)) && !self.release_pages(n, place) {
                    break;
                }
            }
        }
    }

    /// Gives the pages of a free slot back to the system. Returns whether that is most of the slot.
    fn release_pages(&mut self, n: usize, place: u32) -> bool {
        let (slot_bytes, sides) = (self.slot_bytes(), self.sides);
        let Some(chunk) = self.chunks.get_mut(n) else { return false };
        if chunk.released.contains(&place) {
            return true;
        }
        let rows = self.layouts.iter().flat_map(|l| std::iter::repeat_n(l.kept_row(), sides));
        let mut released = 0u64;
        for (buffer, row) in chunk.memory.buffers.iter_mut().zip(rows) {
            let at = (place as usize).saturating_mul(row);
            released += buffer.release_pages(at..at.saturating_add(row)) as u64;
        }
        let is_released = released.saturating_mul(2) > slot_bytes;
        if is_released {
            chunk.released.insert(place);
            self.count_idle(n);
        }
        is_released
    }

    /// Whether a run can write to another side than it reads.
    pub(super) fn has_two_sides(&self) -> bool {
        self.sides > 1
    }

    /// The memory of a state on a side, and the offset of the slot's row in it.
    pub(super) fn row(&self, state: usize, slot: u32, side: u8) -> Option<(&Buffer, usize)> {
        let layout = self.layouts.get(state)?;
        let buffer = self.chunk(slot)?.memory.buffers.get(state * self.sides + usize::from(side))?;
        Some((buffer, self.sizes.place(slot).1 as usize * layout.kept_row()))
    }

    /// The slot's row as a source or target of a move.
    pub(super) fn slice(&self, state: usize, slot: u32, side: u8) -> Option<BufferSlice<'_>> {
        self.row(state, slot, side).map(|(buffer, at)| BufferSlice::new(buffer, at))
    }

    /// Bytes allocated.
    pub(super) fn allocated(&self) -> usize {
        self.chunks.iter().flat_map(|c| &c.memory.buffers).map(Buffer::len).sum()
    }
}
