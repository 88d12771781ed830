//! Measures moves of rows against the device's own copy of as many bytes: as a batch submits them, and the kernel alone.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::result::{self, event, module};
use cudarc::driver::sys::{CUevent_flags, CUfunction, CUmodule, CUstream};
use sequor::device::cuda::kernels;
use sequor::device::{
    Buffer, BufferSlice, Convert, Device, MemorySpan, Moves, RawRow, RawSet, Scratch, StridedLayout, formula,
};

use crate::Terms;
use crate::model::Random;

/// The target: the slower of gather and scatter relative to the copy, for rows of at least 1 KiB.
const AIM: f64 = 0.85;
const ROWS: [usize; 7] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

pub(crate) fn all(terms: &Terms) {
    let device = terms.device(&terms.gpus);
    println!(
        "\n{} random rows of one state, as a batch asks for them (host included): GB read and written a second",
        terms.batch
    );
    println!("row           axis     gather   scatter      copy    ratio");
    for row in ROWS {
        for outer in [1usize, 2] {
            let [gather, scatter, copy] = as_a_batch(&device, terms.batch as usize, row, outer);
            let ratio = gather.min(scatter) / copy;
            println!("{row:<12}{:>6}{gather:>11.0}{scatter:>10.0}{copy:>10.0}{ratio:>9.2}", outer - 1);
        }
    }
    if terms.rehearse {
        println!("the kernel alone: needs a GPU");
        return;
    }
    table_costs(&device, terms.batch as usize);
    println!("\nthe kernel alone, random rows of 256 MiB in all, by the GPU's own clock: GB read and written a second");
    println!("row           axis     gather   scatter      copy    ratio   aim");
    for row in ROWS {
        for outer in [1usize, 2] {
            let [gather, scatter, copy] = alone(&device, (256 << 20) / row, row, outer);
            let ratio = gather.min(scatter) / copy;
            let verdict = match row >= 1 << 10 {
                true if ratio >= AIM => format!("{AIM:.2} ok"),
                true => format!("{AIM:.2} not the aim"),
                false => "-".to_owned(),
            };
            println!("{row:<12}{:>6}{gather:>11.0}{scatter:>10.0}{copy:>10.0}{ratio:>9.2}   {verdict}", outer - 1);
        }
    }
}

/// `taken` of `slots` slots, in random order.
fn drawn(slots: usize, taken: usize) -> Vec<usize> {
    let mut random = Random(1);
    let mut order: Vec<usize> = (0..slots).collect();
    for n in 0..taken {
        order.swap(n, n + random.below((slots - n) as u64) as usize);
    }
    order.truncate(taken);
    order
}

// === as a batch submits it ===

/// GB a second of gathering, of scattering, and of the device's own copy of as many bytes.
fn as_a_batch(device: &Arc<dyn Device>, batch: usize, row: usize, outer: usize) -> [f64; 3] {
    let slots = batch * 4;
    let arena = Buffer::new(device, slots * row).unwrap();
    let tensor = Buffer::new(device, batch * row).unwrap();
    let other = Buffer::new(device, batch * row).unwrap();
    let order = drawn(slots, batch);
    let (piece, wide) = (row / outer, row / outer * batch);
    let mut scratch = Scratch::default();
    let mut way = |gather: bool| {
        speed(device, 2 * batch * row, &mut || {
            let mut moves = Moves::new(&**device, &mut scratch);
            let (from_stride, to_stride) = if gather { (piece, wide) } else { (wide, piece) };
            moves.set(StridedLayout { from_stride, to_stride, outer, inner: piece, convert: Convert::No }).unwrap();
            for (n, slot) in order.iter().enumerate() {
                let (kept, there) = (BufferSlice::new(&arena, slot * row), BufferSlice::new(&tensor, n * piece));
                let (from, to) = if gather { (kept, there) } else { (there, kept) };
                moves.row(Some(from), to).unwrap();
            }
            moves.run().unwrap();
        })
    };
    let moved = [way(true), way(false)];
    // SAFETY: both live through this, and nothing else moves in the meantime.
    let (from, to) = unsafe { (tensor.read(0..batch * row).unwrap(), other.read(0..batch * row).unwrap()) };
    let copy = speed(device, 2 * batch * row, &mut || own_copy(&**device, &from, &to));
    [moved[0], moved[1], copy]
}

/// Submits the device's own copy of memory that does not overlap.
fn own_copy(device: &dyn Device, from: &MemorySpan<'_>, to: &MemorySpan<'_>) {
    match device.stream() {
        // SAFETY: memory of the device with this size; the context is current since the buffers were allocated.
        Some(stream) => unsafe {
            result::memcpy_dtod_async(to.address(), from.address(), from.len(), stream as CUstream).unwrap();
        },
        // SAFETY: memory of the host, of this size.
        None => unsafe { device.upload(from.address(), to.address(), from.len()).unwrap() },
    }
}

/// The best of five tries. Each has many turns, and one wait for all of them.
fn speed(device: &Arc<dyn Device>, bytes: usize, turn: &mut dyn FnMut()) -> f64 {
    let many = if device.stream().is_some() { 4usize << 30 } else { 64 << 20 };
    let turns = (many / bytes).clamp(4, 2000);
    let mut one = || {
        let began = Instant::now();
        for _ in 0..turns {
            turn();
        }
        device.wait(device.fence().unwrap()).unwrap();
        (bytes * turns) as f64 / began.elapsed().as_secs_f64() / 1e9
    };
    (0..5).map(|_| one()).fold(0.0, f64::max)
}

// === the kernel alone ===

/// The kernel, loaded a second time for launches with this benchmark's own tables.
struct Kernel {
    module: CUmodule,
    move_rows: CUfunction,
    stream: CUstream,
}

impl Kernel {
    /// Loads the kernel. The device's context must be current, as after allocating buffers on this thread.
    fn load(device: &dyn Device) -> Kernel {
        let image = CString::new(kernels::PTX).unwrap();
        // SAFETY: the image is text that ends in a zero.
        let module = unsafe { module::load_data(image.as_ptr().cast()) }.unwrap();
        // SAFETY: the module is loaded.
        let move_rows = unsafe { module::get_function(module, CString::new(kernels::MOVE_ROWS).unwrap()) }.unwrap();
        Kernel { module, move_rows, stream: device.stream().unwrap() as CUstream }
    }

    /// # Safety
    /// The tables must be in memory that the GPU reads, and their rows in live memory.
    unsafe fn launch(&self, (mut sets, mut rows): (u64, u64), grid: formula::Grid) {
        let mut parameters = [(&raw mut sets).cast::<c_void>(), (&raw mut rows).cast::<c_void>()];
        let (blocks, threads) = ((grid.rows, grid.sets, grid.shares), (grid.threads, 1, 1));
        // SAFETY: the kernel takes these two pointers; the rest is the caller's promise.
        unsafe { result::launch_kernel(self.move_rows, blocks, threads, 0, self.stream, &mut parameters) }.unwrap();
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: every launch is done.
        unsafe { module::unload(self.module) }.unwrap();
    }
}

/// The address of a buffer, which must live as long as the address is used.
fn address(buffer: &Buffer) -> u64 {
    // SAFETY: only the address is used.
    unsafe { buffer.read(0..buffer.len()) }.unwrap().address()
}

/// The tables of a launch that gathers these slots into a batch, or scatters the batch.
fn tables(
    slots: &[usize],
    (row, outer): (usize, usize),
    (kept, batch): (u64, u64),
    gather: bool,
) -> (RawSet, Vec<RawRow>) {
    let (piece, wide) = ((row / outer) as u64, (row / outer * slots.len()) as u64);
    let pair = |(n, slot): (usize, &usize)| {
        let (kept, there) = (kept + (slot * row) as u64, batch + n as u64 * piece);
        if gather { RawRow { from: kept, to: there } } else { RawRow { from: there, to: kept } }
    };
    let (from_stride, to_stride) = if gather { (piece, wide) } else { (wide, piece) };
    let (unit, convert) = (formula::unit(piece, piece, Convert::No), Convert::No);
    let (outer, count) = (outer as u64, slots.len() as u32);
    let set = RawSet { from_stride, to_stride, outer, inner: piece, first: 0, count, convert, unit };
    (set, slots.iter().enumerate().map(pair).collect())
}

/// The same by the GPU's clock, with tables that are on the GPU already.
fn alone(device: &Arc<dyn Device>, count: usize, row: usize, outer: usize) -> [f64; 3] {
    let arena = Buffer::new(device, 2 * count * row).unwrap();
    let [batch, other] = [(), ()].map(|()| Buffer::new(device, count * row).unwrap());
    let (kernel, order) = (Kernel::load(&**device), drawn(2 * count, count));
    let bytes = (2 * count * row) as f64;
    let way = |gather: bool| {
        let (set, rows) = tables(&order, (row, outer), (address(&arena), address(&batch)), gather);
        let (sets, rows) = (holding(device, &[set]), holding(device, &rows));
        let (table, grid) = ((address(&sets), address(&rows)), formula::grid(&[set]));
        // SAFETY: tables and rows live through the launches, and rows do not overlap.
        bytes / seconds(kernel.stream, &mut || unsafe { kernel.launch(table, grid) }) / 1e9
    };
    let moved = [way(true), way(false)];
    // SAFETY: both live through the copies.
    let (from, to) = unsafe { (batch.read(0..batch.len()).unwrap(), other.read(0..other.len()).unwrap()) };
    let copy = bytes / seconds(kernel.stream, &mut || own_copy(&**device, &from, &to)) / 1e9;
    [moved[0], moved[1], copy]
}

/// Measures the cost of a launch's table: copied before each launch, as in the server; read by the kernel from pinned host memory; already
/// on the GPU.
fn table_costs(device: &Arc<dyn Device>, batch: usize) {
    println!(
        "\na gather of {batch} rows, microseconds of the GPU: its table copied before (as now), read from the host, on the GPU already"
    );
    for row in [64usize, 1 << 10, 16 << 10] {
        let arena = Buffer::new(device, 4 * batch * row).unwrap();
        let there = Buffer::new(device, batch * row).unwrap();
        let (kernel, order) = (Kernel::load(&**device), drawn(4 * batch, batch));
        let (set, rows) = tables(&order, (row, 1), (address(&arena), address(&there)), true);
        let staging = device.staging().unwrap();
        let host = [holding(&staging, &[set]), holding(&staging, &rows)];
        let gpu = [holding(device, &[set]), holding(device, &rows)];
        let grid = formula::grid(&[set]);
        let at = |tables: &[Buffer; 2]| (address(&tables[0]), address(&tables[1]));
        let took = |before: bool, table: (u64, u64)| {
            let turn = &mut || {
                if before {
                    // SAFETY: both tables live through this and have the same size. One copy, as for a launch.
                    unsafe { device.upload(at(&host).1, at(&gpu).1, host[1].len()) }.unwrap();
                }
                // SAFETY: as above; the GPU reads pinned memory at the host's address.
                unsafe { kernel.launch(table, grid) };
            };
            1e6 * seconds(kernel.stream, turn)
        };
        let [copied, read, there_already] = [took(true, at(&gpu)), took(false, at(&host)), took(false, at(&gpu))];
        println!("{row:<12}{copied:>10.1}{read:>10.1}{there_already:>10.1}");
    }
}

/// A buffer of the device with these values.
fn holding<T: Copy>(device: &Arc<dyn Device>, values: &[T]) -> Buffer {
    // SAFETY: plain numbers without padding, in the kernel's layout.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
    Buffer::holding(device, bytes).unwrap()
}

/// The GPU's time for a turn: the best of five tries of twenty, between two events.
fn seconds(stream: CUstream, turn: &mut dyn FnMut()) -> f64 {
    const TURNS: u32 = 20;
    let [from, to] = [(), ()].map(|()| event::create(CUevent_flags::CU_EVENT_DEFAULT).unwrap());
    let mut one = || {
        // SAFETY: events and stream are alive, throughout.
        unsafe { event::record(from, stream) }.unwrap();
        for _ in 0..TURNS {
            turn();
        }
        // SAFETY: as above; the elapsed time is read after the second event is done.
        let milliseconds = unsafe {
            event::record(to, stream).unwrap();
            event::synchronize(to).unwrap();
            event::elapsed(from, to).unwrap()
        };
        f64::from(milliseconds) / 1e3 / f64::from(TURNS)
    };
    let best = (0..5).map(|_| one()).fold(f64::INFINITY, f64::min);
    // SAFETY: nothing uses the events any more.
    unsafe { event::destroy(from).and_then(|()| event::destroy(to)) }.unwrap();
    best
}
