//! The store, compared with a plain table of values: any order of starts, runs, failures, frees and snapshots, with every way to bind a
//! batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use sequor_core::{DataType, Dims, Shape, Time};

use crate::device::stand_in::{self, StandIns};
use crate::device::{
    Accelerators, Buffer, Device, DeviceError, DeviceId, Fence, Host, MemorySpan, Owned, RawRow, RawSet,
};
use crate::tensor::rows;

use super::budget::Budget;
use super::{ChunkCache, Fresh, InitialValue, StateCopy, StateOut, StateSpec, Store};

fn spec(name: &str, dtype: DataType, dims: &[i64], axis: usize) -> StateSpec {
    let dims = Dims::from_wire(dims);
    let shape = Shape(dims.0.iter().map(|d| d.fixed().unwrap_or(1)).collect());
    StateSpec {
        input: name.to_owned(),
        output: format!("{name}_OUT"),
        dtype,
        dims,
        batch_axis: Some(axis),
        storage: dtype,
        initial: InitialValue { shape, data: None },
        same_buffer: false,
        padding: None,
    }
}

/// A cache whose clock does not advance.
fn cache() -> ChunkCache {
    ChunkCache::new(Budget::new(u64::MAX), || Time(0))
}

/// The states of a sequence: for each state, its shape and bytes.
type Values = Vec<(Shape, Vec<u8>)>;

fn initial(specs: &[StateSpec]) -> Values {
    let of = |s: &StateSpec| {
        let elements = s.initial.shape.elements().unwrap() as usize;
        let data = s.initial.data.as_ref().map_or(vec![0; elements * s.dtype.zero_size()], |d| d.to_vec());
        (s.initial.shape.clone(), data)
    };
    specs.iter().map(of).collect()
}

/// The model of the tests: every byte of a fixed state grows by the row's salt, a growing state gets one more element, and texts get one
/// more letter.
fn step(spec: &StateSpec, (shape, bytes): &(Shape, Vec<u8>), salt: u8) -> (Shape, Vec<u8>) {
    if spec.dtype == DataType::Bytes {
        let mut out = Vec::new();
        for text in rows::BytesElements(bytes) {
            rows::push_text(&mut out, &[text, &[salt, 0]].concat());
        }
        return (shape.clone(), out);
    }
    match spec.dims.fixed() {
        // FP32 values are numbers that FP16 can represent, so that both storages agree.
        Some(_) if spec.dtype == DataType::Fp32 => {
            let add = |b: &[u8]| (f32::from_le_bytes(b.try_into().unwrap()) + f32::from(salt % 4)).to_le_bytes();
            (shape.clone(), bytes.chunks(4).flat_map(add).collect())
        }
        Some(_) => (shape.clone(), bytes.iter().map(|b| b.wrapping_add(salt)).collect()),
        None => {
            let longer = Shape(vec![shape.0[0] + 1]);
            (longer, [bytes.as_slice(), &vec![salt; spec.dtype.zero_size()]].concat())
        }
    }
}

fn device(away: bool) -> Arc<dyn Device> {
    if away { StandIns::new(1, 1 << 30).open(0).unwrap() } else { Arc::new(Host) }
}

/// The bytes that a backend on that device would see.
fn bytes_of<'a>(span: &MemorySpan<'a>) -> &'a [u8] {
    match span.place() {
        DeviceId::Host => span.as_host().unwrap(),
        // SAFETY: there are no other accelerators here.
        DeviceId::Cuda(_) => unsafe { stand_in::read(span) }.as_host().unwrap(),
    }
}

/// The output that a backend on that device would make.
fn owned(device: &Arc<dyn Device>, spec: &StateSpec, bytes: Vec<u8>) -> Owned {
    match device.place() {
        DeviceId::Cuda(_) if spec.dtype != DataType::Bytes => Owned::new(Buffer::holding(device, &bytes).unwrap()),
        _ => Owned::from_vec(bytes),
    }
}

/// Runs a batch as a backend would: reads the bound memory and writes the store's output memory.
fn run(
    store: &mut Store,
    specs: &[StateSpec],
    batch: &[Option<u32>],
    salts: &[u8],
    good: &[bool],
    seen: &mut Vec<Values>,
) {
    run_and_copy(store, specs, batch, salts, (good, &[]), seen);
}

/// The same. Returns copies of the new states of these rows.
fn run_and_copy(
    store: &mut Store,
    specs: &[StateSpec],
    batch: &[Option<u32>],
    salts: &[u8],
    (good, copied): (&[bool], &[bool]),
    seen: &mut Vec<Values>,
) -> Vec<Option<StateCopy>> {
    let bound = store.bind(batch.to_vec()).unwrap();
    store.ready(&bound).unwrap();
    let device = Arc::clone(&store.device);
    // On a device, a graph's run is ordered after this work. This run is on the host, so it waits.
    device.wait(device.fence().unwrap()).unwrap();
    let count = batch.len();
    let mut fresh = Vec::new();
    seen.clear();
    seen.resize(count, Vec::new());
    for (n, spec) in specs.iter().enumerate() {
        // SAFETY: used before the store is changed.
        let (shape, span) = unsafe { store.input(&bound, n) }.unwrap();
        let row = spec.row_of(shape, count as u64).unwrap();
        let axis = spec.batch_axis.unwrap();
        let parts = rows::split(spec.dtype, &row, axis, count, bytes_of(&span)).unwrap();
        let next: Values =
            parts.iter().zip(salts).map(|(p, salt)| step(spec, &(row.clone(), p.clone()), *salt)).collect();
        for (place, part) in seen.iter_mut().zip(&parts) {
            place.push((row.clone(), part.clone()));
        }
        let datas: Vec<&[u8]> = next.iter().map(|(_, d)| d.as_slice()).collect();
        let joined = rows::join(spec.dtype, &next[0].0, axis, &datas);
        // SAFETY: as above; input and output do not overlap.
        fresh.push(match unsafe { store.output(&bound, n) }.unwrap() {
            StateOut::Into { shape, mut data } => {
                assert_eq!(shape, &next[0].0.with(axis, count as u64));
                match data.place() {
                    DeviceId::Host => data.as_host_mut().unwrap().copy_from_slice(&joined),
                    DeviceId::Cuda(_) => {
                        // SAFETY: as above.
                        unsafe { stand_in::write(&mut data) }.as_host_mut().unwrap().copy_from_slice(&joined);
                    }
                }
                None
            }
            StateOut::New => Some(Fresh {
                shape: next[0].0.with(axis, count as u64),
                data: owned(&device, spec, joined),
                lengths: None,
            }),
        });
    }
    store.check(&bound, &fresh).unwrap();
    store.commit_with_copies(&bound, fresh, good, copied).unwrap()
}

#[derive(Debug, Clone)]
enum Act {
    Start(u32),
    Free(u32),
    Run { slots: Vec<u32>, salt: u8, fail: u8, padded: bool },
    Snapshot(u32),
}

fn act(slots: u32) -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..slots).prop_map(Act::Start),
        1 => (0..slots).prop_map(Act::Free),
        6 => (proptest::collection::vec(0..slots, 1..=slots as usize), any::<u8>(), 0u8..5, any::<bool>())
            .prop_map(|(slots, salt, fail, padded)| Act::Run { slots, salt, fail, padded }),
        1 => (0..slots).prop_map(Act::Snapshot),
    ]
}

/// An FP32 state on axis 1 that is stored in 16 bits.
fn kept(storage: DataType, first: Option<[f32; 3]>) -> StateSpec {
    let data = first.map(|values| Arc::from(values.map(f32::to_le_bytes).concat()));
    let initial = InitialValue { shape: Shape::new(&[1, 3]), data };
    StateSpec { storage, initial, ..spec(storage.name(), DataType::Fp32, &[1, 3], 1) }
}

fn kinds() -> Vec<Vec<StateSpec>> {
    let halves = StateSpec { storage: DataType::Fp16, ..spec("h", DataType::Fp32, &[3], 0) };
    let filled = InitialValue { shape: Shape::new(&[2, 3]), data: Some(Arc::from([7u8; 12].as_slice())) };
    vec![
        vec![spec("a", DataType::Int32, &[2], 0)],
        vec![spec("a", DataType::Fp32, &[2, 3], 1), spec("b", DataType::Int64, &[1], 0)],
        vec![StateSpec { initial: filled, ..spec("f", DataType::Int16, &[2, 3], 2) }],
        vec![halves, spec("c", DataType::Uint8, &[5], 1)],
        vec![kept(DataType::Bf16, None), kept(DataType::Fp16, Some([1.0, 0.5, -2.0]))],
        vec![spec("t", DataType::Bytes, &[2], 0), spec("d", DataType::Uint8, &[2], 0)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_way_to_bind_gives_each_sequence_its_own_last_committed_state(
        kind in 0usize..6, sided in any::<bool>(), same in any::<bool>(), away in any::<bool>(),
        acts in proptest::collection::vec(act(6), 1..60),
    ) {
        let mut specs = kinds().swap_remove(kind);
        specs[0].same_buffer = same;
        let device = device(away);
        let mut store = Store::new(&device, specs.clone(), 6, sided, cache()).unwrap();
        let mut table: BTreeMap<u32, Values> = BTreeMap::new();
        let (mut seen, mut copies) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Start(slot) => {
                    store.init(slot).unwrap();
                    table.insert(slot, initial(&specs));
                }
                Act::Free(slot) => {
                    let held = table.remove(&slot).is_some();
                    prop_assert_eq!(store.free(slot).is_ok(), held, "only what is held is freed");
                    prop_assert!(store.read_values(slot).is_err() && store.snapshot(slot, &BTreeMap::new()).is_err());
                }
                Act::Snapshot(slot) if table.contains_key(&slot) => {
                    let file = store.snapshot(slot, &BTreeMap::from([("model".to_owned(), "m".to_owned())])).unwrap();
                    store.free(slot).unwrap();
                    store.restore(slot, &file).unwrap();
                }
                Act::Snapshot(_) => {}
                Act::Run { slots, salt, fail, padded } => {
                    let mut live: Vec<u32> = slots.into_iter().filter(|s| table.contains_key(s)).collect();
                    let mut once = std::collections::BTreeSet::new();
                    live.retain(|s| once.insert(*s));
                    let batch: Vec<Option<u32>> = if padded && sided {
                        let Some(last) = live.iter().max() else { continue };
                        (0..=*last).map(|s| live.contains(&s).then_some(s)).collect()
                    } else {
                        live.iter().copied().map(Some).collect()
                    };
                    if batch.is_empty() { continue }
                    let salts: Vec<u8> = (0..batch.len()).map(|n| salt.wrapping_add(n as u8)).collect();
                    let good: Vec<bool> = (0..batch.len()).map(|n| fail != n as u8).collect();
                    let mut copied = run_and_copy(&mut store, &specs, &batch, &salts, (&good, &good), &mut seen);
                    for (n, slot) in batch.iter().enumerate() {
                        let copy = copied.get_mut(n).and_then(Option::take);
                        prop_assert_eq!(copy.is_some(), slot.is_some() && good[n], "row {} of {:?}", n, good);
                        let Some(slot) = slot else { continue };
                        if let Some(copy) = copy.filter(|_| salt % 3 == 0) {
                            copies.push((copy, store.snapshot(*slot, &BTreeMap::new()).unwrap()));
                        }
                        prop_assert_eq!(&seen[n], &table[slot], "slot {} reads another state", slot);
                        if good[n] {
                            let next = specs.iter().zip(&table[slot]).map(|(s, v)| step(s, v, salts[n])).collect();
                            table.insert(*slot, next);
                        }
                    }
                }
            }
        }
        for slot in table.keys() {
            store.free(*slot).unwrap();
        }
        for (copy, then) in copies {
            prop_assert_eq!(copy.file(&specs, &BTreeMap::new()).unwrap(), then, "a copy keeps the states of its commit");
        }
        let held: u64 = if sided { 0 } else { store.allocated() };
        let most = if away { 16 << 20 } else { 1 << 20 };
        prop_assert!(held <= most);
    }

    #[test]
    fn growing_states_are_run_alone_or_with_equals(
        away in any::<bool>(), filled in any::<bool>(), acts in proptest::collection::vec((0u32..3, any::<u8>()), 1..40),
    ) {
        let first = InitialValue { shape: Shape::new(&[3]), data: Some(Arc::from([1u8, 2, 3, 4, 5, 6].as_slice())) };
        let growing = spec("g", DataType::Int16, &[-1], 0);
        let growing = if filled { StateSpec { initial: first, ..growing } } else { growing };
        let specs = vec![growing, spec("f", DataType::Int16, &[2], 0)];
        let device = device(away);
        let mut store = Store::new(&device, specs.clone(), 3, false, cache()).unwrap();
        let mut table: BTreeMap<u32, Values> = BTreeMap::new();
        for slot in 0..3 {
            store.init(slot).unwrap();
            table.insert(slot, initial(&specs));
        }
        let (mut seen, mut copies) = (Vec::new(), Vec::new());
        for (slot, salt) in acts {
            let alike: Vec<u32> = (0..3).filter(|s| store.shape_class(*s) == store.shape_class(slot)).collect();
            let batch: Vec<Option<u32>> = alike.iter().copied().map(Some).take(1 + usize::from(salt % 3)).collect();
            let (salts, good) = (vec![salt; batch.len()], vec![true; batch.len()]);
            let copied = run_and_copy(&mut store, &specs, &batch, &salts, (&good, &good), &mut seen);
            for (slot, copy) in batch.iter().flatten().zip(copied.into_iter().flatten()) {
                copies.push((copy, store.snapshot(*slot, &BTreeMap::new()).unwrap()));
            }
            for (n, slot) in batch.iter().flatten().enumerate() {
                prop_assert_eq!(&seen[n], &table[slot]);
                let next = specs.iter().zip(&table[slot]).map(|(s, v)| step(s, v, salt)).collect();
                table.insert(*slot, next);
            }
            let file = store.snapshot(slot, &BTreeMap::new()).unwrap();
            if salt % 5 == 0 {
                store.free(slot).unwrap();
                store.restore(slot, &file).unwrap();
            }
        }
        for (copy, then) in copies {
            prop_assert_eq!(copy.file(&specs, &BTreeMap::new()).unwrap(), then);
        }
    }
}

#[test]
fn direct_copies_about_one_row_for_each_ready_row_and_none_when_all_are_ready() {
    let specs = vec![spec("a", DataType::Int32, &[256], 0)];
    let device: Arc<dyn Device> = Arc::new(Host);
    let mut store = Store::new(&device, specs.clone(), 4, true, cache()).unwrap();
    for slot in 0..4 {
        store.init(slot).unwrap();
    }
    let all: Vec<Option<u32>> = (0..4).map(Some).collect();
    for _ in 0..5 {
        run(&mut store, &specs, &all, &[1; 4], &[true; 4], &mut Vec::new());
    }
    assert_eq!(store.rows_copied(), 0);
    run(&mut store, &specs, &[None, Some(1)], &[1; 2], &[true; 2], &mut Vec::new());
    run(&mut store, &specs, &all, &[1; 4], &[true; 4], &mut Vec::new());
    assert_eq!(store.rows_copied(), 1);
}

/// The host, with a count of its allocations.
#[derive(Debug, Default)]
struct Counted(AtomicU64);

impl Device for Counted {
    fn place(&self) -> DeviceId {
        DeviceId::Host
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        // An empty buffer is one byte.
        self.0.fetch_add(u64::from(bytes > 1), Ordering::Relaxed);
        Host.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { Host.release(address, bytes) };
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { Host.run(sets, rows) }
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { Host.upload(from, to, len) }
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { Host.download(from, to, len) }
    }

    fn fence(&self) -> Result<Fence, DeviceError> {
        Host.fence()
    }

    fn wait(&self, fence: Fence) -> Result<(), DeviceError> {
        Host.wait(fence)
    }
}

#[test]
fn sequences_after_the_first_take_no_new_memory() {
    const LARGE: i64 = 1 << 19;
    for (fixed_rows, axis) in [(true, 0), (false, 0), (false, 1)] {
        let specs = vec![spec("a", DataType::Int32, &[LARGE], 0), spec("b", DataType::Uint8, &[LARGE, 3], axis)];
        let counted = Arc::new(Counted::default());
        let device: Arc<dyn Device> = Arc::<Counted>::clone(&counted);
        let mut store = Store::new(&device, specs.clone(), 4, fixed_rows, cache()).unwrap();
        let mut life = |slots: &[u32]| {
            let batch: Vec<Option<u32>> = slots.iter().copied().map(Some).collect();
            for slot in slots {
                store.init(*slot).unwrap();
            }
            for _ in 0..2 {
                let rows = batch.len();
                run(&mut store, &specs, &batch, &vec![1; rows], &vec![true; rows], &mut Vec::new());
            }
            for slot in slots {
                store.free(*slot).unwrap();
            }
            counted.0.load(Ordering::Relaxed)
        };
        life(&[0, 1]);
        let warm = life(&[0, 1]);
        for _ in 0..5 {
            assert_eq!(life(&[0, 1]), warm, "fixed rows: {fixed_rows}, axis {axis}");
        }
    }
}

#[test]
fn a_padding_row_never_reads_what_an_ended_sequence_left() {
    // First, chunks that go to the cache when they are free. Then one that stays.
    for elements in [1 << 19, 4] {
        let specs = vec![spec("a", DataType::Int32, &[elements], 0)];
        let device: Arc<dyn Device> = Arc::new(Host);
        let mut store = Store::new(&device, specs.clone(), 2, true, cache()).unwrap();
        let mut seen = Vec::new();
        let zeros = |seen: &[Values]| seen[0][0].1.iter().all(|byte| *byte == 0);
        for keeps_chunk in [true, false, true] {
            store.init(0).unwrap();
            store.init(1).unwrap();
            for _ in 0..2 {
                run(&mut store, &specs, &[Some(0), Some(1)], &[7, 7], &[true; 2], &mut seen);
            }
            store.free(0).unwrap();
            if !keeps_chunk {
                store.free(1).unwrap();
                store.init(1).unwrap();
            }
            for _ in 0..3 {
                run(&mut store, &specs, &[None, Some(1)], &[0, 7], &[true; 2], &mut seen);
                assert!(zeros(&seen), "{elements} elements");
            }
            store.free(1).unwrap();
        }
    }
}

#[test]
fn a_state_in_one_buffer_takes_half_the_memory() {
    let device: Arc<dyn Device> = Arc::new(Host);
    let allocated = |fixed_rows: bool, same_buffer: bool| {
        let other = spec("OTHER", DataType::Int64, &[3], 0);
        let specs = vec![StateSpec { same_buffer, ..spec("STATE", DataType::Fp32, &[100], 0) }, other];
        let mut store = Store::new(&device, specs, 8, fixed_rows, cache()).unwrap();
        store.init(7).unwrap();
        store.allocated()
    };
    let one = 8 * (400 + 24);
    assert_eq!(
        [(true, false), (true, true), (false, false), (false, true)].map(|(f, s)| allocated(f, s)),
        [2 * one, one, one, one]
    );
}

#[test]
fn a_state_output_of_another_shape_is_refused_by_name() {
    let specs = [spec("a", DataType::Int32, &[-1], 0)];
    let device: Arc<dyn Device> = Arc::new(Host);
    let specs = vec![StateSpec { dims: Dims::from_wire(&[-1, 2]), ..specs[0].clone() }];
    let mut store = Store::new(&device, specs, 1, false, cache()).unwrap();
    store.init(0).unwrap();
    let bound = store.bind(vec![Some(0)]).unwrap();
    let wrong = Fresh { shape: Shape::new(&[1, 5, 3]), data: Owned::from_vec(vec![0; 60]), lengths: None };
    let error = store.check(&bound, &[Some(wrong)]).unwrap_err();
    assert_eq!(error.to_string(), "state output 'a_OUT' has shape [1,5,3], but [1,-1,2] is expected for a batch of 1");
}

fn large_fixed(cells: i64) -> StateSpec {
    spec("large", DataType::Fp32, &[cells], 0)
}

/// A slot whose memory is gone must not continue with zeros.
#[test]
fn a_state_without_memory_is_an_error_and_no_first_state() {
    let specs = vec![large_fixed(1 << 19)];
    let mut store = Store::new(&device(false), specs.clone(), 2, false, cache()).unwrap();
    store.init(0).unwrap();
    store.init(1).unwrap();
    run(&mut store, &specs, &[Some(0), Some(1)], &[1, 2], &[true, true], &mut Vec::new());
    store.arena.vacate(1);
    let refused = store.bind(vec![Some(0), Some(1)]).unwrap_err();
    assert!(matches!(&refused, super::StateError::Lost { state, slot: 1 } if state == "large"), "{refused:?}");
    assert!(store.read_values(0).is_ok());
}

/// Without its release, the joined rows of the last batch would stay as long as the model is loaded.
#[test]
fn the_joined_rows_of_a_batch_are_released_with_its_commit() {
    let specs = vec![spec("g", DataType::Fp32, &[-1], 0)];
    let mut store = Store::new(&device(false), specs.clone(), 2, false, cache()).unwrap();
    store.init(0).unwrap();
    store.init(1).unwrap();
    let joined = |store: &Store| match &store.states[0].kind {
        super::stored_state::StateStorage::HostVariable(variables) => variables.joined().1.len(),
        _ => panic!("a state that grows on the host"),
    };
    let bound = store.bind(vec![Some(0), Some(1)]).unwrap();
    assert_eq!(joined(&store), 8);
    drop(bound);
    run(&mut store, &specs, &[Some(0), Some(1)], &[1, 2], &[true, true], &mut Vec::new());
    assert_eq!(joined(&store), 0, "after the commit");
    store.bind(vec![Some(0), Some(1)]).unwrap();
    assert_eq!(joined(&store), 16);
    store.free(1).unwrap();
    assert_eq!(joined(&store), 0, "after an END that was not run");
}

/// A free slot beside used ones keeps its pages for the next sequence, as far as the limit of states allows.
#[test]
fn free_slots_of_a_chunk_in_use_count_and_give_their_pages_back_at_the_limit() {
    const ROW: u64 = 2 << 20;
    let specs = vec![large_fixed(1 << 18)];
    let budget = Budget::new(64 << 20);
    let cache = ChunkCache::new(budget.clone(), || Time(0));
    let mut store = Store::new(&device(false), specs.clone(), 4, true, cache.clone()).unwrap();
    (0..4).for_each(|slot| store.init(slot).unwrap());
    let all = [Some(0), Some(1), Some(2), Some(3)];
    run(&mut store, &specs, &all, &[1, 2, 3, 1], &[true; 4], &mut Vec::new());
    assert_eq!(cache.idle(), 0);
    store.free(1).unwrap();
    store.free(2).unwrap();
    assert_eq!(cache.idle(), 2 * ROW);
    store.init(1).unwrap();
    assert_eq!(cache.idle(), ROW);
    let full = budget.take(64 << 20).unwrap();
    store.free(1).unwrap();
    assert_eq!(cache.idle(), ROW, "its pages are gone");
    store.init(1).unwrap();
    let mut seen = Vec::new();
    run(&mut store, &specs, &all[..2], &[1, 3], &[true; 2], &mut seen);
    assert_eq!((seen[1][0].clone(), cache.idle()), (initial(&specs)[0].clone(), ROW));
    assert_eq!(store.read_values(1).unwrap().each()[0].bytes[..4], 3f32.to_le_bytes());
    drop(full);
    [0, 1, 3].into_iter().for_each(|slot| store.free(slot).unwrap());
    assert_eq!(cache.idle(), 0, "the whole chunk is kept instead");
    store.init(2).unwrap();
    store.init(3).unwrap();
    assert!(cache.idle() > 0);
    drop(store);
    assert_eq!(cache.idle(), 0);
}
