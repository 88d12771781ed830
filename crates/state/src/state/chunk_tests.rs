//! Chunks by plan, compared with the rules of Triton's stateful backend chunk by chunk: any order of STARTs and ENDs, up to the capacity
//! and down again.

use std::sync::Arc;

use proptest::prelude::*;
use sequor_core::{DataType, Dims, Shape, Time};

use crate::device::stand_in::StandIns;
use crate::device::{Accelerators as _, Device, Host};

use super::budget::Budget;
use super::{ChunkCache, ChunkPlan, ChunkSizes, InitialValue, StateSpec, Store};

const ROW: u64 = 16;

fn store(plan: ChunkPlan, slots: u32) -> Store {
    store_as(plan, slots, DataType::Fp32)
}

/// States of FP32, kept as this type.
fn spec(storage: DataType) -> StateSpec {
    StateSpec {
        input: "s".to_owned(),
        output: "s_OUT".to_owned(),
        dtype: DataType::Fp32,
        dims: Dims::from_wire(&[4]),
        batch_axis: Some(0),
        storage,
        initial: InitialValue { shape: Shape::new(&[4]), data: None },
        same_buffer: false,
        padding: None,
    }
}

fn cache() -> ChunkCache {
    ChunkCache::new(Budget::new(u64::MAX), || Time(0))
}

fn store_as(plan: ChunkPlan, slots: u32, storage: DataType) -> Store {
    let device: Arc<dyn Device> = Arc::new(Host);
    let mut store = Store::new(&device, vec![spec(storage)], slots, false, cache()).unwrap();
    store.plan_chunks(plan).unwrap();
    store
}

/// The backend's own bookkeeping.
struct Reference {
    plan: ChunkPlan,
    /// For each chunk that has memory, which of its slots are in use.
    chunks: Vec<Vec<bool>>,
}

impl Reference {
    fn new(plan: ChunkPlan) -> Reference {
        Reference { plan, chunks: vec![vec![false; plan.sizes.first as usize]] }
    }

    /// The lowest free slot of the first chunk that has one.
    fn start(&mut self) -> Option<u32> {
        let mut before = 0;
        for chunk in &mut self.chunks {
            if let Some(at) = chunk.iter().position(|used| !used) {
                chunk[at] = true;
                return Some(before + at as u32);
            }
            before += chunk.len() as u32;
        }
        None
    }

    fn end(&mut self, mut slot: u32) {
        for chunk in &mut self.chunks {
            if (slot as usize) < chunk.len() {
                assert!(std::mem::replace(&mut chunk[slot as usize], false));
                return;
            }
            slot -= chunk.len() as u32;
        }
        panic!("the slot has no chunk");
    }

    /// The backend's adjustment after every batch.
    fn after_batch(&mut self) {
        let free = self.chunks.iter().flatten().filter(|used| !**used).count() as u32;
        if free < self.plan.grow_below && self.chunks.len() < self.plan.count as usize {
            self.chunks.push(vec![false; self.plan.sizes.next as usize]);
        } else if self.chunks.len() > 1 && free > self.plan.shrink_above {
            let is_free = self.chunks.last().is_some_and(|chunk| chunk.iter().all(|used| !used));
            if is_free {
                self.chunks.pop();
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64 * ROW).sum()
    }
}

/// The example's plan: 512 slots, then 100 at a time, up to 1112.
fn example() -> ChunkPlan {
    ChunkPlan { sizes: ChunkSizes { first: 512, next: 100 }, count: 7, grow_below: 32, shrink_above: 200 }
}

#[test]
fn memory_grows_to_the_capacity_and_shrinks_again_chunk_by_chunk() {
    let (plan, batch) = (example(), 16);
    let (mut store, mut reference) = (store(plan, 1112), Reference::new(plan));
    let mut live = Vec::new();
    let mut seen = vec![1];
    let mut check = |store: &mut Store, reference: &mut Reference| {
        store.adjust_chunks().unwrap();
        reference.after_batch();
        assert_eq!((store.planned_chunks(), store.allocated()), (Some(reference.chunks.len()), reference.bytes()));
        if seen.last() != Some(&reference.chunks.len()) {
            seen.push(reference.chunks.len());
        }
    };
    assert_eq!((store.planned_chunks(), store.allocated()), (Some(1), 512 * ROW), "the first chunk is there at load");
    while let Some(slot) = reference.start() {
        store.init(slot).unwrap();
        live.push(slot);
        if live.len() % batch == 0 {
            check(&mut store, &mut reference);
        }
    }
    assert_eq!((live.len(), store.allocated()), (1112, 1112 * ROW));
    while let Some(slot) = live.pop() {
        store.free(slot).unwrap();
        reference.end(slot);
        if live.len() % batch == 0 {
            check(&mut store, &mut reference);
        }
    }
    for _ in 0..8 {
        check(&mut store, &mut reference);
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 6, 5, 4, 3, 2, 1], "one chunk at a time");
    assert_eq!(store.allocated(), 512 * ROW, "the first chunk stays");
}

#[test]
fn states_kept_as_halves_take_half_the_memory_in_every_chunk() {
    let grown = |storage| {
        let mut store = store_as(example(), 1112, storage);
        let bytes = |slot| {
            store.init(slot).unwrap();
            store.adjust_chunks().unwrap();
            store.allocated()
        };
        (0..1112).map(bytes).collect::<Vec<_>>()
    };
    let (whole, halves) = (grown(DataType::Fp32), grown(DataType::Fp16));
    assert_eq!((whole[0], whole[1111]), (512 * ROW, 1112 * ROW));
    assert!(whole.iter().zip(&halves).all(|(whole, half)| *whole == 2 * half), "{halves:?}");
}

/// An accelerator is tried with a chunk, which the plan replaces.
#[test]
fn a_dropped_store_leaves_no_idle_bytes() {
    for device in [Arc::new(Host) as Arc<dyn Device>, StandIns::new(1, 1 << 30).open(0).unwrap()] {
        let cache = cache();
        let mut store = Store::new(&device, vec![spec(DataType::Fp32)], 1112, false, cache.clone()).unwrap();
        store.plan_chunks(example()).unwrap();
        store.init(7).unwrap();
        store.init(3).unwrap();
        store.free(3).unwrap();
        assert_eq!(cache.idle(), 7 * ROW, "{:?}", device.place());
        drop(store);
        assert_eq!(cache.idle(), 0, "{:?}", device.place());
    }
}

#[test]
fn a_slot_beyond_the_chunks_that_are_there_brings_its_chunk() {
    let mut store = store(example(), 1112);
    store.init(700).unwrap();
    assert_eq!((store.planned_chunks(), store.allocated()), (Some(3), (512 + 100) * ROW));
    store.free(700).unwrap();
    store.adjust_chunks().unwrap();
    assert_eq!(store.planned_chunks(), Some(2));
}

proptest! {
    #[test]
    fn any_order_of_starts_and_ends_gives_the_backends_chunks(
        (first, next, more) in (4u32..12, 4u32..9, 0u32..4),
        (grow, above) in (4u32..8, 0u32..12),
        acts in proptest::collection::vec((any::<bool>(), any::<u16>()), 1..200),
    ) {
        let plan = ChunkPlan {
            sizes: ChunkSizes { first, next },
            count: 1 + more,
            grow_below: grow.min(first),
            shrink_above: grow.min(first) + above,
        };
        let slots = first + more * next;
        let (mut store, mut reference) = (store(plan, slots), Reference::new(plan));
        let mut live: Vec<u32> = Vec::new();
        for (n, (starts, which)) in acts.into_iter().enumerate() {
            if starts {
                if let Some(slot) = reference.start() {
                    store.init(slot).unwrap();
                    live.push(slot);
                }
            } else if !live.is_empty() {
                let slot = live.swap_remove(usize::from(which) % live.len());
                store.free(slot).unwrap();
                reference.end(slot);
            }
            if n % 4 == 3 {
                store.adjust_chunks().unwrap();
                reference.after_batch();
            }
            prop_assert_eq!(store.planned_chunks(), Some(reference.chunks.len()));
            prop_assert_eq!(store.allocated(), reference.bytes());
        }
    }
}
