//! One GPU with its own stream. The device does all work in the order of submission; the host waits for fences only.

use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::result::{self, event, module, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUfunction, CUmodule, CUresult, CUstream};
use parking_lot::Mutex;

use super::pinned::Pinned;
use super::primary::Primary;
use super::{failed, kernels, nvml};
use crate::device::{Device, DeviceError, DeviceId, Fence, RawRow, RawSet, Reading, formula};

/// How long a wait polls before it blocks. Steps of small models end within this time, and a wake-up takes about as long.
const EAGER: Duration = Duration::from_micros(50);

/// A GPU and a stream.
pub(super) struct Gpu {
    primary: Arc<Primary>,
    stream: CUstream,
    module: CUmodule,
    move_rows: CUfunction,
    tables: Mutex<Tables>,
    /// Recorded events that no thread waits for any more; reused for later fences.
    events: Mutex<Vec<CUevent>>,
}

// SAFETY: handles of the driver may be used from any thread; each use makes the context current first.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.primary.ordinal)
    }
}

impl Gpu {
    pub(super) fn open(ordinal: u16) -> Result<Gpu, DeviceError> {
        let primary = Arc::new(Primary::retain(ordinal)?);
        primary.bind()?;
        let no_kernels = || failed(ordinal, "take the kernels");
        let image = CString::new(kernels::PTX).unwrap_or_default();
        // SAFETY: the image is text that ends in a zero; the driver copies it.
        let module = unsafe { module::load_data(image.as_ptr().cast()) }.map_err(no_kernels())?;
        // From here on, dropping `gpu` releases everything.
        let mut gpu = Gpu {
            primary,
            stream: ptr::null_mut(),
            module,
            move_rows: ptr::null_mut(),
            tables: Mutex::default(),
            events: Mutex::default(),
        };
        let name = CString::new(kernels::MOVE_ROWS).unwrap_or_default();
        // SAFETY: the module is loaded.
        gpu.move_rows = unsafe { module::get_function(module, name) }.map_err(no_kernels())?;
        // This stream is ordered with the null stream, so that copies of a runtime on the null stream keep the order too.
        gpu.stream = stream::create(StreamKind::Default).map_err(failed(ordinal, "make a stream"))?;
        Ok(gpu)
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(cudarc::driver::DriverError) -> DeviceError {
        failed(self.primary.ordinal, what)
    }

    /// Records an event behind all work submitted so far.
    fn record(&self) -> Result<CUevent, DeviceError> {
        let reused = self.events.lock().pop();
        let event = match reused {
            Some(event) => event,
            None => new_event().map_err(self.failed("make a fence"))?,
        };
        // SAFETY: this object owns both handles, and they are alive.
        unsafe { event::record(event, self.stream) }.map_err(self.failed("make a fence"))?;
        Ok(event)
    }

    fn wait_for(&self, event: CUevent) -> Result<(), DeviceError> {
        let began = Instant::now();
        loop {
            // SAFETY: this object owns the event, and it is alive.
            match unsafe { event::query(event) } {
                Ok(()) => return Ok(()),
                Err(e) if e.0 != CUresult::CUDA_ERROR_NOT_READY => return Err(self.failed("finish its work")(e)),
                Err(_) if began.elapsed() < EAGER => std::hint::spin_loop(),
                Err(_) => break,
            }
        }
        // SAFETY: as above.
        unsafe { event::synchronize(event) }.map_err(self.failed("finish its work"))
    }

    fn launch(&self, sets: u64, rows: u64, grid: formula::Grid) -> Result<(), DeviceError> {
        let (mut sets, mut rows) = (sets, rows);
        let mut parameters = [(&raw mut sets).cast::<c_void>(), (&raw mut rows).cast::<c_void>()];
        let blocks = (grid.rows, grid.sets, grid.shares);
        // SAFETY: the kernel takes these two pointers; they point to tables of this size on the device.
        let launched = unsafe {
            result::launch_kernel(self.move_rows, blocks, (grid.threads, 1, 1), 0, self.stream, &mut parameters)
        };
        launched.map_err(self.failed("move rows"))
    }
}

fn new_event() -> Result<CUevent, cudarc::driver::DriverError> {
    let mut event = ptr::null_mut();
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
    // SAFETY: `event` is writable.
    unsafe { cudarc::driver::sys::cuEventCreate(&raw mut event, flags) }.result()?;
    Ok(event)
}

impl Device for Gpu {
    fn place(&self) -> DeviceId {
        DeviceId::Cuda(self.primary.ordinal)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.primary.bind()?;
        // SAFETY: the context is current.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { place: self.place(), bytes },
            _ => self.failed("give memory")(error),
        })?;
        // SAFETY: this call just allocated these bytes; the stream orders later work behind the memset.
        let zeroed = unsafe { result::memset_d8_async(address, 0, bytes.max(1), self.stream) };
        if let Err(error) = zeroed {
            // SAFETY: no other code has the address yet.
            let _ = unsafe { result::free_sync(address) };
            return Err(self.failed("zero memory")(error));
        }
        Ok(address)
    }

    unsafe fn release(&self, address: u64, _bytes: usize) {
        if self.primary.bind().is_ok() {
            // SAFETY: this object owns the stream. Submitted work may still use the memory.
            let _ = unsafe { stream::synchronize(self.stream) };
            // SAFETY: the caller's promise. If the driver cannot free the memory, it leaks, which is safe.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        if sets.iter().any(|set| formula::units(set) > u64::from(u32::MAX)) {
            let why = "a row of more than 4 G units is beyond the kernel".to_owned();
            return Err(DeviceError::Failed { place: self.place(), what: "move rows", why });
        }
        self.primary.bind()?;
        let mut tables = self.tables.lock();
        let table = tables.next();
        if let Some(event) = table.busy.take() {
            self.wait_for(event)?;
            self.events.lock().push(event);
        }
        let (sets_len, rows_len) = (size_of_val(sets), size_of_val(rows));
        table.ensure(sets_len + rows_len).map_err(self.failed("give memory"))?;
        // SAFETY: the table's host side has room for both, and the previous copy from it is done.
        unsafe {
            ptr::copy_nonoverlapping(sets.as_ptr().cast::<u8>(), table.host, sets_len);
            ptr::copy_nonoverlapping(rows.as_ptr().cast::<u8>(), table.host.add(sets_len), rows_len);
        }
        // SAFETY: both sides have this size; the host side does not change until the event below.
        let submitted = unsafe { self.upload(table.host as u64, table.device, sets_len + rows_len) }
            .and_then(|()| self.launch(table.device, table.device + sets_len as u64, formula::grid(sets)))
            .and_then(|()| self.record());
        match submitted {
            Ok(event) => table.busy = Some(event),
            Err(error) => {
                // The GPU may still read the table and write the rows, and no event says when that is over.
                // SAFETY: this object owns the stream. If the call fails, the GPU is lost, and the error is returned as well.
                let _ = unsafe { stream::synchronize(self.stream) };
                return Err(error);
            }
        }
        Ok(())
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        self.primary.bind()?;
        // SAFETY: the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(from as *const u8, len) };
        // SAFETY: as above.
        unsafe { result::memcpy_htod_async(to, from, self.stream) }.map_err(self.failed("take bytes"))
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        self.primary.bind()?;
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, len) };
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream) }.map_err(self.failed("give bytes"))
    }

    fn fence(&self) -> Result<Fence, DeviceError> {
        self.primary.bind()?;
        Ok(Fence(self.record()? as u64))
    }

    fn wait(&self, fence: Fence) -> Result<(), DeviceError> {
        self.primary.bind()?;
        let event = fence.0 as CUevent;
        let waited = self.wait_for(event);
        self.events.lock().push(event);
        waited
    }

    fn staging(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::new(Pinned(Arc::clone(&self.primary))))
    }

    fn reading(&self) -> Option<Reading> {
        self.primary.bind().ok()?;
        let (free, total) = result::mem_get_info().ok()?;
        let memory = Reading { free_bytes: free as u64, total_bytes: total as u64, ..Reading::default() };
        Some(nvml::read(self.primary.uuid.as_deref()?, memory))
    }

    fn stream(&self) -> Option<u64> {
        Some(self.stream as u64)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.primary.bind().is_err() {
            return;
        }
        // SAFETY: this object owns these handles and uses them no more; each was created once. If a call fails, the handle leaks, which is
        // safe.
        unsafe {
            if !self.stream.is_null() {
                let _ = stream::synchronize(self.stream);
            }
            for table in &mut self.tables.get_mut().ring {
                table.release();
            }
            for event in self.events.get_mut().drain(..) {
                let _ = event::destroy(event);
            }
            if !self.stream.is_null() {
                let _ = stream::destroy(self.stream);
            }
            let _ = module::unload(self.module);
        }
    }
}

// === tables ===

/// A ring of launch tables. At most this many launches run before the next one waits for the oldest.
#[derive(Default)]
struct Tables {
    ring: [LaunchTable; 8],
}

/// The sets and rows of one launch: a host buffer and its copy on the device.
struct LaunchTable {
    host: *mut u8,
    device: u64,
    size: usize,
    /// The event behind the last launch that read this table.
    busy: Option<CUevent>,
}

impl Default for LaunchTable {
    fn default() -> LaunchTable {
        LaunchTable { host: ptr::null_mut(), device: 0, size: 0, busy: None }
    }
}

impl Tables {
    /// The table that was used longest ago.
    fn next(&mut self) -> &mut LaunchTable {
        self.ring.rotate_left(1);
        let [oldest, ..] = &mut self.ring;
        oldest
    }
}

impl LaunchTable {
    /// Makes both sides at least `size` bytes large. No launch may still read the table.
    fn ensure(&mut self, size: usize) -> Result<(), cudarc::driver::DriverError> {
        if size <= self.size {
            return Ok(());
        }
        let size = size.next_power_of_two().max(4096);
        // SAFETY: no launch reads the old buffers any more.
        unsafe { self.release() };
        // SAFETY: the context is current; this table owns both buffers.
        unsafe {
            self.device = result::malloc_sync(size)?;
            self.host = result::malloc_host(size, 0)?.cast();
        }
        self.size = size;
        Ok(())
    }

    /// # Safety
    /// No launch may still read the table. The context must be current.
    unsafe fn release(&mut self) {
        // SAFETY: the caller's promise; each buffer was allocated once and is forgotten here.
        unsafe {
            if self.device != 0 {
                let _ = result::free_sync(self.device);
            }
            if !self.host.is_null() {
                let _ = result::free_host(self.host.cast());
            }
            if let Some(event) = self.busy.take() {
                let _ = event::destroy(event);
            }
        }
        (self.device, self.host, self.size) = (0, ptr::null_mut(), 0);
    }
}
