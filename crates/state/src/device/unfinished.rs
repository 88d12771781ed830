//! Keeps host memory that a device may still write after a wait for it failed.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Device;

/// Keeps memory until its device is known to be done. If that never happens, the memory leaks on purpose: otherwise the allocator could
/// reuse it while the device still writes there.
pub struct Unfinished {
    device: Arc<dyn Device>,
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Unfinished {
    pub fn new(device: Arc<dyn Device>) -> Unfinished {
        Unfinished { device, kept: Mutex::default() }
    }

    /// Keeps memory that the device was given to write.
    pub fn keep(&self, memory: impl Any + Send) {
        self.kept.lock().push(Box::new(memory));
    }

    /// Drops the kept memory if the device is done with it. Returns whether nothing is kept any more.
    pub fn release(&self) -> bool {
        let mut kept = self.kept.lock();
        let is_done = || self.device.fence().and_then(|fence| self.device.wait(fence)).is_ok();
        if kept.is_empty() || is_done() {
            kept.clear();
        }
        kept.is_empty()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.release() {
            let kept = std::mem::take(self.kept.get_mut());
            tracing::error!(place = %self.device.place(), "memory of the host is leaked: the device failed and may still write to it");
            kept.leak();
        }
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unfinished({} kept)", self.kept.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::device::Accelerators;
    use crate::device::stand_in::StandIns;

    fn kept(unfinished: &Unfinished) -> Weak<()> {
        let memory = Arc::new(());
        let seen = Arc::downgrade(&memory);
        unfinished.keep(memory);
        seen
    }

    #[test]
    fn memory_is_kept_until_the_device_is_done() {
        let stand_ins = StandIns::new(1, 1 << 20);
        let unfinished = Unfinished::new(stand_ins.open(0).unwrap());
        stand_ins.break_down();
        let memory = kept(&unfinished);
        assert!(!unfinished.release());
        assert!(memory.upgrade().is_some());
        stand_ins.mend();
        assert!(unfinished.release());
        assert!(memory.upgrade().is_none());
    }

    #[test]
    fn memory_of_a_device_that_is_never_done_is_leaked() {
        let stand_ins = StandIns::new(1, 1 << 20);
        let unfinished = Unfinished::new(stand_ins.open(0).unwrap());
        stand_ins.break_down();
        let memory = kept(&unfinished);
        drop(unfinished);
        assert!(memory.upgrade().is_some());
    }
}
