//! Divides the slots of an instance into chunks, and decides when a chunk is added or dropped.

/// The sizes of chunks. The first chunk may differ in size from the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkSizes {
    pub first: u32,
    pub next: u32,
}

impl ChunkSizes {
    pub const fn even(slots: u32) -> ChunkSizes {
        ChunkSizes { first: slots, next: slots }
    }

    /// The slot's chunk, and its place in the chunk.
    pub fn place(self, slot: u32) -> (usize, u32) {
        match slot.checked_sub(self.first) {
            None => (0, slot),
            Some(behind) => {
                let next = self.next.max(1);
                ((behind / next) as usize + 1, behind % next)
            }
        }
    }

    /// Number of slots of a chunk.
    pub fn slots(self, chunk: usize) -> u32 {
        if chunk == 0 { self.first } else { self.next }
    }

    /// The first slot of a chunk.
    pub fn start(self, chunk: usize) -> u32 {
        let before = u32::try_from(chunk.saturating_sub(1)).unwrap_or(u32::MAX);
        if chunk == 0 { 0 } else { self.first.saturating_add(before.saturating_mul(self.next)) }
    }
}

/// A plan that adds and drops chunks by the number of free slots, one at a time. The first chunk always exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPlan {
    pub sizes: ChunkSizes,
    /// Maximum number of chunks.
    pub count: u32,
    /// A chunk is added if fewer slots than this are free.
    pub grow_below: u32,
    /// The last chunk is dropped if it is free and more slots than this are free in all.
    pub shrink_above: u32,
}
