//! An accelerator for tests, in host memory.
//!
//! Its memory is limited, it can fail, and it does work only when a caller waits for it. Rows move by the kernels' own formula. It is not for
//! serving.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{
    Accelerator, Accelerators, Device, DeviceError, DeviceId, Fence, Host, MemorySpan, MemorySpanMut, NoAccelerator,
    RawRow, RawSet, Reading, formula,
};

/// Some of them, of one size. Clones are the same.
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

    /// How often a thread waited for one of them.
    pub fn waits(&self) -> u64 {
        self.0.iter().map(|c| c.waits.load(Ordering::Relaxed)).sum()
    }

    /// How often rows were moved.
    pub fn launches(&self) -> u64 {
        self.0.iter().map(|c| c.launches.load(Ordering::Relaxed)).sum()
    }

    /// Bytes that went over the host, there or back.
    pub fn copied(&self) -> u64 {
        self.0.iter().map(|c| c.copied.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in use, over all.
    pub fn used(&self) -> usize {
        self.0.iter().map(|c| c.used.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of host memory that they write to and read from, over all.
    pub fn staged(&self) -> usize {
        self.0.iter().map(|c| c.staged.load(Ordering::Relaxed)).sum()
    }

    /// From now on every wait fails.
    pub fn break_down(&self) {
        self.0.iter().for_each(|c| c.broken.store(true, Ordering::Relaxed));
        self.go_on();
    }

    /// Waits succeed again.
    pub fn mend(&self) {
        self.0.iter().for_each(|c| c.broken.store(false, Ordering::Relaxed));
    }

    /// From now on no wait ends before [`StandIns::finish`] or [`StandIns::go_on`].
    pub fn hold(&self) {
        self.0.iter().for_each(|c| c.gate.set(Some(0)));
    }

    /// Lets so many waits end, those that began first.
    pub fn finish(&self, waits: u64) {
        self.0.iter().for_each(|c| c.gate.add(waits));
    }

    /// Nothing is held any more.
    pub fn go_on(&self) {
        self.0.iter().for_each(|c| c.gate.set(None));
    }
}

/// What waits must pass.
#[derive(Debug, Default)]
struct Gate {
    /// How many may pass, if not all.
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

/// Memory of a stand-in as the host has it.
///
/// # Safety
/// The span must be of a stand-in's memory.
pub unsafe fn read<'a>(span: &MemorySpan<'a>) -> MemorySpan<'a> {
    // SAFETY: that is memory of the host, and lives as long.
    unsafe { MemorySpan::from_raw(DeviceId::Host, span.address(), span.len()) }
}

/// Memory of a stand-in as the host has it.
///
/// # Safety
/// The span must be of a stand-in's memory.
pub unsafe fn write<'a>(span: &'a mut MemorySpanMut<'_>) -> MemorySpanMut<'a> {
    // SAFETY: that is memory of the host, borrowed alone for as long.
    unsafe { MemorySpanMut::from_raw(DeviceId::Host, span.address(), span.len()) }
}

/// Asks for work of a graph's, to be done behind everything that was asked for before.
///
/// # Safety
/// The stream must be that of a stand-in that is alive, and all memory that the work touches must stay and be left alone until it is done.
pub unsafe fn ask(stream: u64, work: impl FnOnce() + Send + 'static) {
    // SAFETY: the caller's promise: streams are what `StandIn::stream` gave.
    unsafe { &*(stream as *const WorkQueue) }.ask(work);
}

/// Does everything that was asked for.
///
/// # Safety
/// As for [`ask`].
pub unsafe fn catch_up(stream: u64) {
    // SAFETY: as above.
    unsafe { &*(stream as *const WorkQueue) }.catch_up();
}

type Piece = Box<dyn FnOnce() + Send>;

/// What was asked for and is not done, in its order.
#[derive(Default)]
struct WorkQueue {
    asked: Mutex<PieceQueue>,
    /// Held by the thread that does it.
    doing: Mutex<()>,
}

#[derive(Default)]
struct PieceQueue {
    /// How many pieces were done.
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

    /// Does what was asked for before this fence.
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
    /// Copies later, from one address to another.
    fn copy(&self, from: u64, to: u64, len: usize) {
        self.counts.copied.fetch_add(len as u64, Ordering::Relaxed);
        self.work.ask(move || {
            // SAFETY: the caller's promise: both are there, and used by nothing else, until this is done.
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
        // What was asked for already may still use it.
        self.work.catch_up();
        self.counts.used.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the caller's promise; the memory is the host's.
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
                            // SAFETY: the caller's promise; the addresses are the host's.
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

/// Host memory that a stand-in writes to and reads from, counted.
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
