//! An accelerator for tests, in memory of the host: it has an end, it can fail, what it sends to the host arrives when somebody waits for
//! it and not before, and its rows move by the kernels' own formula. It is not for serving.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{
    Accelerator, Accelerators, Device, DeviceError, Host, Mark, NoAccelerator, Place, RawRow, RawSet, Reading, Span,
    SpanMut, formula,
};

/// Some of them, of one size. Clones are the same.
#[derive(Debug, Clone)]
pub struct StandIns(Arc<Vec<Arc<Counts>>>);

/// What is to be known of one of them.
#[derive(Debug)]
struct Counts {
    room: usize,
    used: AtomicUsize,
    waits: AtomicU64,
    launches: AtomicU64,
    broken: AtomicBool,
}

impl StandIns {
    pub fn new(count: u16, room: usize) -> StandIns {
        let one = || {
            Arc::new(Counts {
                room,
                used: AtomicUsize::new(0),
                waits: AtomicU64::new(0),
                launches: AtomicU64::new(0),
                broken: AtomicBool::new(false),
            })
        };
        StandIns(Arc::new(std::iter::repeat_with(one).take(usize::from(count)).collect()))
    }

    /// How often somebody waited for one of them.
    pub fn waits(&self) -> u64 {
        self.0.iter().map(|c| c.waits.load(Ordering::Relaxed)).sum()
    }

    /// How often rows were moved.
    pub fn launches(&self) -> u64 {
        self.0.iter().map(|c| c.launches.load(Ordering::Relaxed)).sum()
    }

    /// Bytes in use, over all.
    pub fn used(&self) -> usize {
        self.0.iter().map(|c| c.used.load(Ordering::Relaxed)).sum()
    }

    /// From now on every wait fails.
    pub fn break_down(&self) {
        self.0.iter().for_each(|c| c.broken.store(true, Ordering::Relaxed));
    }
}

impl Accelerators for StandIns {
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator> {
        let of = |(ordinal, counts): (u16, &Arc<Counts>)| Accelerator {
            ordinal,
            name: "stand-in".to_owned(),
            uuid: format!("GPU-stand-in-{ordinal}"),
            total_bytes: counts.room as u64,
        };
        Ok((0..).zip(self.0.iter()).map(of).collect())
    }

    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError> {
        let place = Place::Cuda(ordinal);
        let missing = || DeviceError::Failed { place, what: "open", why: "there is no such stand-in".to_owned() };
        let counts = Arc::clone(self.0.get(usize::from(ordinal)).ok_or_else(missing)?);
        Ok(Arc::new(StandIn { ordinal, counts, sent: Mutex::default() }))
    }
}

/// Memory of a stand-in as the host has it.
///
/// # Safety
/// The span must be of a stand-in's memory.
pub unsafe fn read<'a>(span: &Span<'a>) -> Span<'a> {
    // SAFETY: that is memory of the host, and lives as long.
    unsafe { Span::from_raw(Place::Host, span.address(), span.len()) }
}

/// Memory of a stand-in as the host has it.
///
/// # Safety
/// The span must be of a stand-in's memory.
pub unsafe fn write<'a>(span: &'a mut SpanMut<'_>) -> SpanMut<'a> {
    // SAFETY: that is memory of the host, borrowed alone for as long.
    unsafe { SpanMut::from_raw(Place::Host, span.address(), span.len()) }
}

#[derive(Debug)]
struct StandIn {
    ordinal: u16,
    counts: Arc<Counts>,
    /// On its way to the host: where to, and what.
    sent: Mutex<Sent>,
}

#[derive(Debug, Default)]
struct Sent {
    /// How many were sent before those that are kept here.
    before: u64,
    copies: std::collections::VecDeque<(u64, Vec<u8>)>,
}

impl Device for StandIn {
    fn place(&self) -> Place {
        Place::Cuda(self.ordinal)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let full = DeviceError::OutOfMemory { place: self.place(), bytes };
        let room = self.counts.room;
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= room);
        self.counts.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| full)?;
        Host.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        self.counts.used.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the caller's promise; the memory is the host's.
        unsafe { Host.release(address, bytes) };
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        self.counts.launches.fetch_add(1, Ordering::Relaxed);
        let grid = formula::grid(sets);
        for share in 0..grid.shares {
            for set in 0..grid.sets {
                for row in 0..grid.rows {
                    for thread in 0..grid.threads {
                        // SAFETY: the caller's promise; the addresses are the host's.
                        unsafe { formula::move_rows(sets, rows, grid, (row, set, share), thread) };
                    }
                }
            }
        }
        Ok(())
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { Host.upload(from, to, len) }
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: `len` readable bytes, by the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, len) }.to_vec();
        self.sent.lock().copies.push_back((to, bytes));
        Ok(())
    }

    fn mark(&self) -> Result<Mark, DeviceError> {
        let sent = self.sent.lock();
        Ok(Mark(sent.before + sent.copies.len() as u64))
    }

    fn wait(&self, mark: Mark) -> Result<(), DeviceError> {
        self.counts.waits.fetch_add(1, Ordering::Relaxed);
        if self.counts.broken.load(Ordering::Relaxed) {
            let why = "it was broken on purpose".to_owned();
            return Err(DeviceError::Failed { place: self.place(), what: "finish its work", why });
        }
        let mut sent = self.sent.lock();
        while sent.before < mark.0 {
            let Some((to, bytes)) = sent.copies.pop_front() else { break };
            sent.before += 1;
            // SAFETY: whoever sent it has promised that there is room for it until now.
            unsafe { (to as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    }

    fn staging(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::new(Host))
    }

    fn reading(&self) -> Option<Reading> {
        let (room, used) = (self.counts.room, self.counts.used.load(Ordering::Relaxed));
        let free_bytes = room.saturating_sub(used) as u64;
        Some(Reading { free_bytes, total_bytes: room as u64, utilization: Some(0.5), ..Reading::default() })
    }
}
