//! An accelerator for tests, in host memory.
//!
//! Its memory is limited, it can fail, and it does its work only when a caller waits for it. Rows move by the kernels' own formula. It must
//! not serve requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{
    Accelerator, Accelerators, Device, DeviceError, DeviceId, Fence, Host, MemorySpan, MemorySpanMut, NoAccelerator,
    RawRow, RawSet, Reading, formula,
};

/// A set of stand-ins of one size. Clones share their state.
#[derive(Debug, Clone)]
pub struct StandIns(Arc<Vec<Arc<DeviceCounters>>>);

/// The shared state of one stand-in.
#[derive(Debug)]
struct DeviceCounters {
    room: usize,
    used: AtomicUsize,
    waits: AtomicU64,
    launches: AtomicU64,
    copied: AtomicU64,
    staged: AtomicUsize,
    broken: AtomicBool,
    gate: Gate,
}

impl StandIns {
    pub fn new(count: u16, room: usize) -> StandIns {
        let one = || {
            Arc::new(DeviceCounters {
                room,
                used: AtomicUsize::new(0),
                waits: AtomicU64::new(0),
                launches: AtomicU64::new(0),
                copied: AtomicU64::new(0),
                staged: AtomicUsize::new(0),
                broken: AtomicBool::new(false),
                gate: Gate::default(),
            })
        };
        StandIns(Arc::new(std::iter::repeat_with(one).take(usize::from(count)).collect()))
    }

    /// Number of waits for any of them.
    pub fn waits(&self) -> u64 {
        self.0.iter().map(|c| c.waits.load(Ordering::Relaxed)).sum()
    }

    /// Number of launches that moved rows.
    pub fn launches(&self) -> u64 {
        self.0.iter().map(|c| c.launches.load(Ordering::Relaxed)).sum()
    }

    /// Bytes copied from and to the host.
    pub fn copied(&self) -> u64 {
        self.0.iter().map(|c| c.copied.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in use, over all stand-ins.
    pub fn used(&self) -> usize {
        self.0.iter().map(|c| c.used.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of host memory that they use for staging, over all stand-ins.
    pub fn staged(&self) -> usize {
        self.0.iter().map(|c| c.staged.load(Ordering::Relaxed)).sum()
    }

    /// Makes every later wait fail.
    pub fn break_down(&self) {
        self.0.iter().for_each(|c| c.broken.store(true, Ordering::Relaxed));
        self.go_on();
    }

    /// Makes every later wait for this one fail.
    pub fn break_one(&self, ordinal: u16) {
        if let Some(counts) = self.0.get(usize::from(ordinal)) {
            counts.broken.store(true, Ordering::Relaxed);
            counts.gate.set(None);
        }
    }

    /// Makes waits succeed again.
    pub fn mend(&self) {
        self.0.iter().for_each(|c| c.broken.store(false, Ordering::Relaxed));
    }

    /// Holds all waits until [`StandIns::finish`] or [`StandIns::go_on`].
    pub fn hold(&self) {
        self.0.iter().for_each(|c| c.gate.set(Some(0)));
    }

    /// Lets this many waits end, oldest first.
    pub fn finish(&self, waits: u64) {
        self.0.iter().for_each(|c| c.gate.add(waits));
    }

    /// Ends the hold.
    pub fn go_on(&self) {
        self.0.iter().for_each(|c| c.gate.set(None));
    }
}

/// Blocks waits while it is closed.
#[derive(Debug, Default)]
struct Gate {
    /// The number of waits that may pass; `None` lets all pass.
    passes: Mutex<Option<u64>>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, passes: Option<u64>) {
        *self.passes.lock() = passes;
        self.changed.notify_all();
    }

    fn add(&self, more: u64) {
        if let Some(passes) = &mut *self.passes.lock() {
            *passes += more;
        }
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut passes = self.passes.lock();
        while let Some(left) = &mut *passes {
            if *left > 0 {
                *left -= 1;
                return;
            }
            self.changed.wait(&mut passes);
        }
    }
}

impl Accelerators for StandIns {
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator> {
        let of = |(ordinal, counts): (u16, &Arc<DeviceCounters>)| Accelerator {
            ordinal,
            name: "stand-in".to_owned(),
            uuid: format!("GPU-stand-in-{ordinal}"),
            total_bytes: counts.room as u64,
        };
        Ok((0..).zip(self.0.iter()).map(of).collect())
    }

    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError> {
        let place = DeviceId::Cuda(ordinal);
        let missing = || DeviceError::Failed { place, what: "open", why: "there is no such stand-in".to_owned() };
        let counts = Arc::clone(self.0.get(usize::from(ordinal)).ok_or_else(missing)?);
        Ok(Arc::new(StandIn { ordinal, counts, work: Arc::default() }))
    }
}

/// Views memory of a stand-in as host memory.
///
/// # Safety
/// The span must be of a stand-in's memory.
pub unsafe fn read<'a>(span: &MemorySpan<'a>) -> MemorySpan<'a> {
    // SAFETY: memory of a stand-in is host memory, and it lives as long.
    unsafe { MemorySpan::from_raw(DeviceId::Host, span.address(), span.len()) }
}

/// Views memory of a stand-in as host memory.
///
/// # Safety
/// The span must be of a stand-in's memory.
pub unsafe fn write<'a>(span: &'a mut MemorySpanMut<'_>) -> MemorySpanMut<'a> {
    // SAFETY: memory of a stand-in is host memory, exclusively borrowed for as long.
    unsafe { MemorySpanMut::from_raw(DeviceId::Host, span.address(), span.len()) }
}

/// Submits work of a graph, behind all work submitted before.
///
/// # Safety
/// `stream` must be that of a live stand-in. All memory that the work touches must stay alive and untouched by others until it is done.
pub unsafe fn ask(stream: u64, work: impl FnOnce() + Send + 'static) {
    // SAFETY: the caller's promise: streams are what `StandIn::stream` gave.
    unsafe { &*(stream as *const WorkQueue) }.ask(work);
}

/// Does all submitted work.
///
/// # Safety
/// As for [`ask`].
pub unsafe fn catch_up(stream: u64) {
    // SAFETY: as above.
    unsafe { &*(stream as *const WorkQueue) }.catch_up();
}

type Piece = Box<dyn FnOnce() + Send>;

/// Submitted work that is not done yet, in order.
#[derive(Default)]
struct WorkQueue {
    asked: Mutex<PieceQueue>,
    /// Held by the thread that does the work.
    doing: Mutex<()>,
}

#[derive(Default)]
struct PieceQueue {
    /// Number of pieces done.
    done: u64,
    pieces: VecDeque<Piece>,
}

impl WorkQueue {
    fn ask(&self, piece: impl FnOnce() + Send + 'static) {
        self.asked.lock().pieces.push_back(Box::new(piece));
    }

    fn fence(&self) -> u64 {
        let asked = self.asked.lock();
        asked.done + asked.pieces.len() as u64
    }

    fn catch_up(&self) {
        self.until(self.fence());
    }

    /// Does all work submitted before this fence.
    fn until(&self, fence: u64) {
        let _doing = self.doing.lock();
        loop {
            let mut asked = self.asked.lock();
            if asked.done >= fence {
                break;
            }
            let Some(piece) = asked.pieces.pop_front() else { break };
            drop(asked);
            piece();
            self.asked.lock().done += 1;
        }
    }
}

struct StandIn {
    ordinal: u16,
    counts: Arc<DeviceCounters>,
    work: Arc<WorkQueue>,
}

impl std::fmt::Debug for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StandIn({})", self.ordinal)
    }
}

impl StandIn {
    /// Submits a copy from one address to another.
    fn copy(&self, from: u64, to: u64, len: usize) {
        self.counts.copied.fetch_add(len as u64, Ordering::Relaxed);
        self.work.ask(move || {
            // SAFETY: the caller's promise: both stay alive, and nothing else uses them, until this is done.
            unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
        });
    }
}

impl Device for StandIn {
    fn place(&self) -> DeviceId {
        DeviceId::Cuda(self.ordinal)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let full = DeviceError::OutOfMemory { place: self.place(), bytes };
        let room = self.counts.room;
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= room);
        self.counts.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| full)?;
        Host.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        // Submitted work may still use the memory.
        self.work.catch_up();
        self.counts.used.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the caller's promise; this is host memory.
        unsafe { Host.release(address, bytes) };
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        self.counts.launches.fetch_add(1, Ordering::Relaxed);
        let (grid, sets, rows) = (formula::grid(sets), sets.to_vec(), rows.to_vec());
        self.work.ask(move || {
            for share in 0..grid.shares {
                for set in 0..grid.sets {
                    for row in 0..grid.rows {
                        for thread in 0..grid.threads {
                            // SAFETY: the caller's promise; the addresses are in host memory.
                            unsafe { formula::move_rows(&sets, &rows, grid, (row, set, share), thread) };
                        }
                    }
                }
            }
        });
        Ok(())
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        self.copy(from, to, len);
        Ok(())
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        self.copy(from, to, len);
        Ok(())
    }

    fn fence(&self) -> Result<Fence, DeviceError> {
        Ok(Fence(self.work.fence()))
    }

    fn wait(&self, fence: Fence) -> Result<(), DeviceError> {
        self.counts.waits.fetch_add(1, Ordering::Relaxed);
        self.counts.gate.pass();
        if self.counts.broken.load(Ordering::Relaxed) {
            let why = "it was broken on purpose".to_owned();
            return Err(DeviceError::Failed { place: self.place(), what: "finish its work", why });
        }
        self.work.until(fence.0);
        Ok(())
    }

    fn staging(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::new(StagingMemory(Arc::clone(&self.counts))))
    }

    fn reading(&self) -> Option<Reading> {
        let (room, used) = (self.counts.room, self.counts.used.load(Ordering::Relaxed));
        let free_bytes = room.saturating_sub(used) as u64;
        Some(Reading { free_bytes, total_bytes: room as u64, utilization: Some(0.5), ..Reading::default() })
    }

    fn stream(&self) -> Option<u64> {
        Some(Arc::as_ptr(&self.work) as u64)
    }
}

/// Host memory for staging of a stand-in, counted.
#[derive(Debug)]
struct StagingMemory(Arc<DeviceCounters>);

impl Device for StagingMemory {
    fn place(&self) -> DeviceId {
        DeviceId::Host
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.0.staged.fetch_add(bytes, Ordering::Relaxed);
        Host.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        self.0.staged.fetch_sub(bytes, Ordering::Relaxed);
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
