//! Measures the cost of keeping states in the server: gather and scatter, next to the same copies by hand. Also counts the copied rows if
//! rows are fixed to slots. `cargo bench --bench state [-- --quick]`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor::device::{Device, Host};
use sequor::state::budget::Budget;
use sequor::state::{ChunkCache, InitialValue, StateSpec, Store};
use sequor_core::{DataType, Dims, Shape, Time};

const SLOTS: u32 = 1024;
const BATCH: usize = 64;
/// Number of random batches of slots.
const DRAWS: usize = 64;

fn main() {
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let quick = std::env::args().any(|a| a == "--quick");
    if cfg!(debug_assertions) {
        println!("DEBUG BUILD: figures mean nothing");
    }
    moved(quick);
    fixed(if quick { 500 } else { 5_000 });
}

/// A splitmix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    /// Distinct slots in random order.
    fn slots(&mut self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..SLOTS).collect();
        for n in 0..BATCH {
            let other = n + self.below(SLOTS as u64 - n as u64) as usize;
            all.swap(n, other);
        }
        all.truncate(BATCH);
        all
    }
}

/// A state of FP32 elements; with the batch on axis 1, a row is in two pieces.
fn spec(row: usize, axis: usize) -> StateSpec {
    let elements = (row / 4) as u64;
    let shape = if axis == 0 { Shape::new(&[elements]) } else { Shape::new(&[2, elements / 2]) };
    StateSpec {
        input: "state".to_owned(),
        output: "state_out".to_owned(),
        dtype: DataType::Fp32,
        dims: Dims::from_wire(&shape.0.iter().map(|d| *d as i64).collect::<Vec<_>>()),
        batch_axis: Some(axis),
        storage: DataType::Fp32,
        initial: InitialValue { shape, data: None },
        same_buffer: false,
        padding: None,
    }
}

fn store(spec: StateSpec, slots: u32, sided: bool) -> Store {
    let device: Arc<dyn Device> = Arc::new(Host);
    let cache = ChunkCache::new(Budget::new(u64::MAX), || Time(0));
    let mut store = Store::new(&device, vec![spec], slots, sided, cache).expect("memory");
    for slot in 0..slots {
        store.init(slot).expect("a slot");
    }
    // Slots that never ran have no state to copy.
    let all: Vec<Option<u32>> = (0..slots).map(Some).collect();
    for batch in all.chunks(BATCH) {
        turn(&mut store, batch);
    }
    store
}

/// Moves a batch through the store, without its run.
fn turn(store: &mut Store, rows: &[Option<u32>]) {
    let bound = store.bind(rows.to_vec()).expect("states");
    store.ready(&bound).expect("memory");
    let good: Vec<bool> = rows.iter().map(Option::is_some).collect();
    store.commit(&bound, vec![None], &good).expect("a commit");
}

fn moved(quick: bool) {
    println!("gather and scatter of {BATCH} random slots of {SLOTS}, both ways together");
    println!("row           axis    by hand      store        ratio   aim");
    for row in [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        for axis in [0, 1] {
            let (hand, store) = race(row, axis, if quick { 40 } else { 200 });
            let a_row = |span: Duration| span.as_secs_f64() * 1e9 / BATCH as f64;
            let ratio = hand.as_secs_f64() / store.as_secs_f64();
            let (aim, verdict) = match row >= 1 << 10 {
                true => ("0.8", if ratio >= 0.8 { "ok" } else { "not the aim" }),
                false => ("-", ""),
            };
            let size = if row < 1 << 10 { format!("{row} B") } else { format!("{} KiB", row >> 10) };
            println!(
                "{size:<10}{axis:>8}{:>8.0} ns/row{:>8.0} ns/row{ratio:>7.2}   {aim} {verdict}",
                a_row(hand),
                a_row(store)
            );
        }
    }
}

/// The fastest turn of each, measured in turn.
fn race(row: usize, axis: usize, turns: usize) -> (Duration, Duration) {
    let mut random = Random(1);
    let draws: Vec<Vec<u32>> = (0..DRAWS).map(|_| random.slots()).collect();
    let mut store = store(spec(row, axis), SLOTS, false);
    let mut slab = vec![1u8; row * SLOTS as usize];
    let (mut given, taken) = (vec![0u8; row * BATCH], vec![2u8; row * BATCH]);
    let (mut by_hand, mut by_store) = (Duration::MAX, Duration::MAX);
    for n in 0..turns {
        let draw = &draws[n % DRAWS];
        let rows: Vec<Option<u32>> = draw.iter().copied().map(Some).collect();
        let began = Instant::now();
        hand(&mut slab, &mut given, &taken, draw, row, axis + 1);
        by_hand = by_hand.min(began.elapsed());
        let began = Instant::now();
        turn(&mut store, &rows);
        by_store = by_store.min(began.elapsed());
    }
    (by_hand, by_store)
}

/// Only the necessary copies.
fn hand(slab: &mut [u8], given: &mut [u8], taken: &[u8], draw: &[u32], row: usize, pieces: usize) {
    let piece = row / pieces;
    for (n, slot) in draw.iter().enumerate() {
        for p in 0..pieces {
            let (from, to) = (*slot as usize * row + p * piece, (p * BATCH + n) * piece);
            given[to..to + piece].copy_from_slice(&slab[from..from + piece]);
        }
    }
    black_box(&mut *given);
    for (n, slot) in draw.iter().enumerate() {
        for p in 0..pieces {
            let (to, from) = (*slot as usize * row + p * piece, (p * BATCH + n) * piece);
            slab[to..to + piece].copy_from_slice(&taken[from..from + piece]);
        }
    }
    black_box(slab);
}

/// Copied rows for each ready row, if each sequence has a fixed row and a random part of them is ready.
fn fixed(rounds: usize) {
    const SLOTS: u32 = 32;
    println!("\nrows copied for each ready row, direct, {SLOTS} live slots, {rounds} batches");
    println!("ready     copies    at most");
    for (percent, aim) in [(3, 1.0), (10, 1.0), (40, 0.95), (100, 0.0)] {
        let mut random = Random(percent);
        let mut store = store(spec(1 << 10, 0), SLOTS, true);
        let (before, mut ready) = (store.rows_copied(), 0u64);
        for _ in 0..rounds {
            let mut rows: Vec<Option<u32>> =
                (0..SLOTS).map(|slot| (random.below(100) < percent).then_some(slot)).collect();
            while rows.last().is_some_and(Option::is_none) {
                rows.pop();
            }
            if !rows.is_empty() {
                ready += rows.iter().flatten().count() as u64;
                turn(&mut store, &rows);
            }
        }
        let copies = (store.rows_copied() - before) as f64 / ready.max(1) as f64;
        println!("{percent:>4} %{copies:>10.3}{aim:>11.2}   {}", if copies <= aim { "ok" } else { "MISSED" });
    }
}
