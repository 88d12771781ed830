//! A driver that counts waits and measures the time of the GPU's work. The time is measured between two events around the work of a batch,
//! on the same stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cudarc::driver::result::{self, ctx, event, primary_ctx};
use cudarc::driver::sys::{CUcontext, CUevent, CUevent_flags, CUstream};
use parking_lot::Mutex;
use sequor::device::cuda::CudaDriver;
use sequor::device::{
    Accelerator, Accelerators, Device, DeviceError, DeviceId, Fence, NoAccelerator, RawRow, RawSet, Reading,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct Counted(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    waits: AtomicU64,
    /// Nanoseconds of finished work.
    busy: AtomicU64,
}

impl Counted {
    /// Number of waits of host threads for a GPU.
    pub(crate) fn waits(&self) -> u64 {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// The time in which the GPU did work that was waited for. Gaps between the launches of one batch count as work.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.0.busy.load(Ordering::Relaxed))
    }
}

impl Accelerators for Counted {
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator> {
        CudaDriver.usable()
    }

    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError> {
        let (device, counts) = (CudaDriver.open(ordinal)?, Arc::clone(&self.0));
        // SAFETY: opening the device started the driver; all users share the context.
        let context = unsafe { primary_ctx::retain(result::device::get(i32::from(ordinal)).unwrap()) }.unwrap();
        Ok(Arc::new(One { device, counts, context: context as usize, spans: Mutex::default() }))
    }
}

#[derive(Debug)]
struct One {
    device: Arc<dyn Device>,
    counts: Arc<Counts>,
    context: usize,
    spans: Mutex<Spans>,
}

/// Events around work.
#[derive(Debug, Default)]
struct Spans {
    /// The event before work that has no fence behind it yet.
    begun: Option<Event>,
    /// Events around the work before each fence.
    closed: Vec<(Event, Event)>,
    free: Vec<Event>,
}

#[derive(Debug)]
struct Event(CUevent);

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Event {}

impl Spans {
    /// Records an event behind all work submitted so far.
    fn record(&mut self, stream: CUstream) -> Event {
        let made = || Event(event::create(CUevent_flags::CU_EVENT_DEFAULT).unwrap());
        let event = self.free.pop().unwrap_or_else(made);
        // SAFETY: both are alive, and the context is current on threads that submit work.
        unsafe { event::record(event.0, stream) }.unwrap();
        event
    }

    fn begin(&mut self, stream: CUstream) {
        if self.begun.is_none() {
            self.begun = Some(self.record(stream));
        }
    }

    fn end(&mut self, stream: CUstream) {
        if let Some(from) = self.begun.take() {
            let to = self.record(stream);
            self.closed.push((from, to));
        }
    }

    /// Removes finished spans and returns their nanoseconds.
    fn harvest(&mut self) -> u64 {
        // SAFETY: the events are recorded and alive.
        let done = |(_, to): &mut (Event, Event)| unsafe { event::query(to.0) }.is_ok();
        let mut sum = 0.0;
        for (from, to) in self.closed.extract_if(.., done).collect::<Vec<_>>() {
            // SAFETY: as above; if the second event is done, so is the first.
            sum += unsafe { event::elapsed(from.0, to.0) }.unwrap_or(0.0);
            self.free.extend([from, to]);
        }
        (f64::from(sum) * 1e6) as u64
    }
}

impl One {
    fn begin(&self) {
        // SAFETY: retained when the device was opened, and never released.
        unsafe { ctx::set_current(self.context as CUcontext) }.unwrap();
        self.spans.lock().begin(self.stream().unwrap() as CUstream);
    }
}

impl Device for One {
    fn place(&self) -> DeviceId {
        self.device.place()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.device.allocate(bytes)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        // SAFETY: the caller's promise, here and below.
        unsafe { self.device.release(address, bytes) };
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.device.run(sets, rows) }
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // Every batch begins with its inputs.
        self.begin();
        // SAFETY: as above.
        unsafe { self.device.upload(from, to, len) }
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.device.download(from, to, len) }
    }

    fn fence(&self) -> Result<Fence, DeviceError> {
        let fence = self.device.fence()?;
        self.spans.lock().end(self.stream().unwrap() as CUstream);
        Ok(fence)
    }

    fn wait(&self, fence: Fence) -> Result<(), DeviceError> {
        self.counts.waits.fetch_add(1, Ordering::Relaxed);
        let waited = self.device.wait(fence);
        self.counts.busy.fetch_add(self.spans.lock().harvest(), Ordering::Relaxed);
        waited
    }

    fn staging(&self) -> Option<Arc<dyn Device>> {
        self.device.staging()
    }

    fn reading(&self) -> Option<Reading> {
        self.device.reading()
    }

    fn stream(&self) -> Option<u64> {
        self.device.stream()
    }
}
