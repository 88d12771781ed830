//! The driver, with its waits counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sequor::device::cuda::Driver;
use sequor::device::{
    Accelerator, Accelerators, Device, DeviceError, Mark, NoAccelerator, Place, RawRow, RawSet, Reading,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    waits: Arc<AtomicU64>,
}

impl Counted {
    /// How often a host thread waited for a GPU so far.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl Accelerators for Counted {
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator> {
        Driver.usable()
    }

    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(One { device: Driver.open(ordinal)?, waits: Arc::clone(&self.waits) }))
    }
}

#[derive(Debug)]
struct One {
    device: Arc<dyn Device>,
    waits: Arc<AtomicU64>,
}

impl Device for One {
    fn place(&self) -> Place {
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
        // SAFETY: as above.
        unsafe { self.device.upload(from, to, len) }
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.device.download(from, to, len) }
    }

    fn mark(&self) -> Result<Mark, DeviceError> {
        self.device.mark()
    }

    fn wait(&self, mark: Mark) -> Result<(), DeviceError> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.device.wait(mark)
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
