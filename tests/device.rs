//! What every device promises, asked of each there is: the host, the stand-in of the tests, and with SEQUOR_TEST_GPU=1 (as `cargo xtask
//! gpu-test` sets it) every GPU of this machine. All moved bytes are compared with the host's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sequor::device::cuda::CudaDriver;
use sequor::device::stand_in::StandIns;
use sequor::device::{
    Accelerators, Buffer, BufferSlice, Convert, Device, DeviceError, DeviceId, Host, Moves, Pool, Scratch,
    StridedLayout, copy,
};

/// All devices that there are, opened anew, with how much is asked of each.
fn devices() -> Vec<(Arc<dyn Device>, u32)> {
    let mut all: Vec<(Arc<dyn Device>, u32)> =
        vec![(Arc::new(Host), 60), (StandIns::new(1, 1 << 30).open(0).unwrap(), 60)];
    if std::env::var("SEQUOR_TEST_GPU").is_ok_and(|v| v == "1") {
        let gpus = CudaDriver.usable().expect("SEQUOR_TEST_GPU=1 asks for a GPU");
        for gpu in gpus {
            eprintln!("GPU {}: {}, {} MiB", gpu.ordinal, gpu.name, gpu.total_bytes >> 20);
            all.push((CudaDriver.open(gpu.ordinal).unwrap(), cases_of_a_gpu()));
        }
    }
    all
}

/// Fewer under compute-sanitizer, which is slow.
fn cases_of_a_gpu() -> u32 {
    std::env::var("SEQUOR_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(600)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn a_device_buffer_is_zeroed_and_keeps_the_bytes_written_to_it() {
    for (device, _) in devices() {
        for len in [0, 1, 63, 4096, (1 << 20) + 3] {
            let mut buffer = Buffer::new(&device, len).unwrap();
            assert_eq!(buffer.get(0..len).unwrap(), vec![0; len], "{device:?} {len}");
            let bytes = noise(len, len as u64);
            buffer.write_bytes(&bytes).unwrap();
            assert_eq!(buffer.get(0..len).unwrap(), bytes, "{device:?} {len}");
            assert_eq!(buffer.get(len / 3..len / 2).unwrap(), bytes[len / 3..len / 2]);
            assert!(matches!(buffer.get(0..len + 1), Err(DeviceError::OutOfBounds { .. })));
        }
    }
}

#[test]
fn an_oversized_allocation_or_write_fails_and_the_buffer_stays_usable() {
    for (device, _) in devices() {
        let mut buffer = Buffer::holding(&device, b"here").unwrap();
        let error = Buffer::new(&device, 1 << 50).unwrap_err();
        assert_eq!(error, DeviceError::OutOfMemory { place: device.place(), bytes: 1 << 50 });
        buffer.write_bytes(b"still").unwrap_err();
        buffer.write_bytes(b"gone").unwrap();
        assert_eq!(buffer.get(0..4).unwrap(), b"gone");
    }
}

#[test]
fn copies_between_two_devices_are_refused() {
    for (device, _) in devices() {
        let other: Arc<dyn Device> = match device.place() {
            DeviceId::Host => StandIns::new(1, 1 << 20).open(0).unwrap(),
            DeviceId::Cuda(_) => Arc::new(Host),
        };
        let (here, there) = (Buffer::new(&device, 8).unwrap(), Buffer::new(&other, 8).unwrap());
        let mut scratch = Scratch::default();
        let mut moves = Moves::new(&*device, &mut scratch);
        moves.set(StridedLayout::whole(8)).unwrap();
        let wrong = DeviceError::WrongPlace { got: other.place(), want: device.place() };
        assert_eq!(moves.row(Some(BufferSlice::new(&there, 0)), BufferSlice::new(&here, 0)), Err(wrong.clone()));
        assert_eq!(moves.row(Some(BufferSlice::new(&here, 0)), BufferSlice::new(&there, 0)), Err(wrong));
    }
}

/// Inputs go in from memory of the device's own choice and answers come out into a pool of it, with one wait.
#[test]
fn staged_bytes_arrive_in_the_order_of_work() {
    for (device, _) in devices() {
        let staging = device.staging().unwrap_or_else(|| Arc::clone(&device));
        assert_eq!(staging.place(), DeviceId::Host);
        let pool = Pool::over(Arc::clone(&staging), 1 << 20);
        let mut given = Buffer::new(&staging, 5000).unwrap();
        let (mut here, there) = (Buffer::new(&device, 5000).unwrap(), Buffer::new(&device, 5000).unwrap());
        let mut scratch = Scratch::default();
        for round in 0..20u64 {
            let bytes = noise(5000, round);
            given.host().unwrap().copy_from_slice(&bytes);
            // SAFETY: nothing is touched before the wait.
            unsafe { here.upload(&given, 5000) }.unwrap();
            let mut moves = Moves::new(&*device, &mut scratch);
            moves.set(StridedLayout::whole(5000)).unwrap();
            moves.row(Some(BufferSlice::new(&here, 0)), BufferSlice::new(&there, 0)).unwrap();
            moves.run().unwrap();
            let mut answer = pool.take(5000).unwrap();
            // SAFETY: as above.
            unsafe { there.download(&answer.write().unwrap()) }.unwrap();
            device.wait(device.fence().unwrap()).unwrap();
            assert_eq!(answer.as_ref(), bytes, "{device:?} round {round}");
        }
    }
}

#[test]
fn bytes_are_copied_within_a_device() {
    for (device, _) in devices() {
        for (at, len) in [(0, 4096), (16, 48), (4, 1000), (3, 77), (0, 0)] {
            let bytes = noise(4096, len as u64);
            let (from, to) = (Buffer::holding(&device, &bytes).unwrap(), Buffer::new(&device, 4096).unwrap());
            // SAFETY: both stay until they are looked at, which waits.
            unsafe { copy(&*device, &from.read(at..at + len).unwrap(), &to.write(at..at + len).unwrap()) }.unwrap();
            let mut want = vec![0; 4096];
            want[at..at + len].copy_from_slice(&bytes[at..at + len]);
            assert_eq!(to.get(0..4096).unwrap(), want, "{device:?} {at} {len}");
            // SAFETY: as above.
            let other = unsafe { copy(&*device, &from.read(0..9).unwrap(), &to.write(0..8).unwrap()) };
            assert!(matches!(other, Err(DeviceError::OutOfBounds { .. })));
        }
    }
}

#[test]
fn fences_may_be_waited_for_out_of_order_and_by_other_threads() {
    for (device, _) in devices() {
        let marks = [device.fence().unwrap(), device.fence().unwrap(), device.fence().unwrap()];
        let [first, second, third] = marks;
        device.wait(third).unwrap();
        device.wait(first).unwrap();
        let other = Arc::clone(&device);
        std::thread::spawn(move || other.wait(second)).join().unwrap().unwrap();
    }
}

// === rows ===

/// A state on its way: a batch of `rows` rows with the batch dimension behind `outer` pieces, and slots of an arena in this order.
#[derive(Debug, Clone)]
struct Case {
    outer: usize,
    elements: usize,
    size: usize,
    storage: Option<(Convert, Convert)>,
    /// Where each row of the batch is kept; `None` is padding.
    slots: Vec<Option<usize>>,
}

fn case() -> impl Strategy<Value = Case> {
    let storage = prop_oneof![
        3 => Just(None),
        1 => Just(Some((Convert::Fp16ToFp32, Convert::Fp32ToFp16))),
        1 => Just(Some((Convert::Bf16ToFp32, Convert::Fp32ToBf16))),
    ];
    let slots = proptest::collection::vec(proptest::option::weighted(0.8, Just(())), 1..9).prop_flat_map(|rows| {
        let places: Vec<usize> = (0..12).collect();
        Just(places)
            .prop_shuffle()
            .prop_map(move |places| rows.iter().zip(places).map(|(row, place)| row.map(|()| place)).collect::<Vec<_>>())
    });
    let elements = prop_oneof![1usize..70, Just(256), Just(640), 1usize..5000];
    (1usize..4, elements, prop_oneof![Just(1usize), Just(2), Just(4), Just(8)], storage, slots).prop_map(
        |(outer, elements, size, storage, slots)| {
            let size = if storage.is_some() { 4 } else { size };
            Case { outer, elements, size, storage, slots }
        },
    )
}

/// Gathers, then scatters what came in into another arena; what both are then.
fn there_and_back(device: &Arc<dyn Device>, cases: &[Case], seed: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    struct State {
        kept: usize,
        inner: usize,
        arena: Buffer,
        batch: Buffer,
        back: Buffer,
    }
    let state = |(n, case): (usize, &Case)| {
        let kept = case.elements * if case.storage.is_some() { 2 } else { case.size };
        let (inner, arena) = (case.elements * case.size, noise(12 * case.outer * kept, seed ^ n as u64));
        State {
            kept,
            inner,
            batch: Buffer::holding(device, &noise(case.slots.len() * case.outer * inner, !seed)).unwrap(),
            back: Buffer::holding(device, &noise(arena.len(), seed.rotate_left(7))).unwrap(),
            arena: Buffer::holding(device, &arena).unwrap(),
        }
    };
    let states: Vec<State> = cases.iter().enumerate().map(state).collect();
    let mut scratch = Scratch::default();
    let mut moves = Moves::new(&**device, &mut scratch);
    for (case, s) in cases.iter().zip(&states) {
        let convert = case.storage.map_or(Convert::No, |(widen, _)| widen);
        let to_stride = s.inner * case.slots.len();
        moves.set(StridedLayout { from_stride: s.kept, to_stride, outer: case.outer, inner: s.kept, convert }).unwrap();
        for (n, slot) in case.slots.iter().enumerate() {
            let from = slot.map(|slot| BufferSlice::new(&s.arena, slot * case.outer * s.kept));
            moves.row(from, BufferSlice::new(&s.batch, n * s.inner)).unwrap();
        }
    }
    moves.run().unwrap();
    let mut moves = Moves::new(&**device, &mut scratch);
    for (case, s) in cases.iter().zip(&states) {
        let convert = case.storage.map_or(Convert::No, |(_, narrow)| narrow);
        let from_stride = s.inner * case.slots.len();
        moves
            .set(StridedLayout { from_stride, to_stride: s.kept, outer: case.outer, inner: s.inner, convert })
            .unwrap();
        for (n, slot) in case.slots.iter().enumerate() {
            // Padding goes nowhere.
            if let Some(slot) = slot {
                moves
                    .row(
                        Some(BufferSlice::new(&s.batch, n * s.inner)),
                        BufferSlice::new(&s.back, slot * case.outer * s.kept),
                    )
                    .unwrap();
            }
        }
    }
    moves.run().unwrap();
    let all = |buffer: &Buffer| buffer.get(0..buffer.len()).unwrap();
    states.iter().map(|s| (all(&s.batch), all(&s.back))).collect()
}

#[test]
fn rows_of_any_shape_axis_and_storage_arrive_as_on_the_host() {
    let host: Arc<dyn Device> = Arc::new(Host);
    for (device, cases) in devices() {
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let tried = runner.run(&(proptest::collection::vec(case(), 1..5), any::<u64>()), |(cases, seed)| {
            prop_assert_eq!(there_and_back(&device, &cases, seed), there_and_back(&host, &cases, seed));
            Ok(())
        });
        tried.unwrap_or_else(|e| panic!("{device:?}: {e}"));
    }
}

/// The host itself, against copies by hand.
#[test]
fn each_batch_row_is_copied_from_and_to_its_slot() {
    let host: Arc<dyn Device> = Arc::new(Host);
    let case = Case { outer: 2, elements: 3, size: 1, storage: None, slots: vec![Some(4), None, Some(0)] };
    let arena = noise(12 * 6, 9);
    let [(batch, back)] = there_and_back(&host, &[case], 9).try_into().unwrap();
    let piece = |slot: usize, outer: usize| arena[slot * 6 + outer * 3..][..3].to_vec();
    let want = [piece(4, 0), vec![0; 3], piece(0, 0), piece(4, 1), vec![0; 3], piece(0, 1)].concat();
    assert_eq!(batch, want);
    assert_eq!((&back[24..30], &back[0..6]), (&arena[24..30], &arena[0..6]));
}
