//! The second half of a run: waits for the device, and splits the outputs. A device that fails during its work is lost.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::batch::outputs::OutputSplit;
use crate::config::model::settings::ModelSettings;
use crate::device::{Device, DeviceError, Fence, Unfinished};
use crate::model::load::LoadedModel;

use super::ports::RunMemory;
use super::reply_shapes::{crop_by_lengths, reshape_output};
use super::row_work::{CommittedRow, RowOutcome, RunSize, RunTimes};
use super::run_error::RunError;

/// The error of a device that failed during its work. After it, the slots of this instance hold no state.
#[derive(Debug)]
pub(in crate::model) struct LostDevice {
    /// The first error. Later errors only follow from it.
    error: OnceLock<DeviceError>,
    /// Outputs that the device may still write.
    memory: Unfinished,
}

impl LostDevice {
    pub(super) fn new(device: &Arc<dyn Device>) -> LostDevice {
        LostDevice { error: OnceLock::new(), memory: Unfinished::new(Arc::clone(device)) }
    }

    pub(in crate::model) fn error(&self) -> Option<&DeviceError> {
        self.error.get()
    }

    /// Records that the device failed, and keeps the memory that it may still write.
    pub(super) fn lose(&self, error: &DeviceError, held: RunMemory) {
        let _ = self.error.set(error.clone());
        self.memory.keep(held);
    }
}

/// A run that is being submitted. If it is given up, by an error or a panic, the device first does all its work, because the memory of the run
/// may then be used again. If the wait fails, the device is lost.
#[derive(Debug)]
pub(super) struct UnfinishedRun {
    device: Arc<dyn Device>,
    lost: Arc<LostDevice>,
    pub(super) held: RunMemory,
    is_finished: bool,
}

impl UnfinishedRun {
    pub(super) fn new(device: &Arc<dyn Device>, lost: &Arc<LostDevice>) -> UnfinishedRun {
        let (device, lost) = (Arc::clone(device), Arc::clone(lost));
        UnfinishedRun { device, lost, held: RunMemory::default(), is_finished: false }
    }

    /// Returns its memory, because all of it is submitted.
    pub(super) fn finish(mut self) -> RunMemory {
        self.is_finished = true;
        std::mem::take(&mut self.held)
    }
}

impl Drop for UnfinishedRun {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(failed) = self.device.fence().and_then(|fence| self.device.wait(fence))
        {
            self.lost.lose(&failed, std::mem::take(&mut self.held));
        }
    }
}

/// A submitted run, with the data for its second half.
#[derive(Debug)]
pub(in crate::model) struct Submitted {
    pub(super) load: Arc<LoadedModel>,
    pub(super) device: Arc<dyn Device>,
    pub(super) lost: Arc<LostDevice>,
    /// Completes after all work of the run.
    pub(super) fence: Fence,
    /// The state of each row after the run; `None` is padding.
    pub(super) rows: Vec<Option<CommittedRow>>,
    pub(in crate::model) size: RunSize,
    pub(super) at: Instant,
    /// Memory that the device writes, and may still read.
    pub(super) held: RunMemory,
}

impl Submitted {
    /// The number of requests in the run.
    pub(in crate::model) fn requests(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    /// The failure of its device, also after the wait.
    pub(in crate::model) fn lost_device(&self) -> Arc<LostDevice> {
        Arc::clone(&self.lost)
    }

    /// Waits for the device and returns the outcome of each request. `from` is the start of the wait in `times`. If the wait fails, the
    /// device is lost.
    pub(in crate::model) fn wait(self, from: Instant, times: &mut RunTimes) -> Result<Vec<RowOutcome>, RunError> {
        let Submitted { load, device, lost, fence, rows, held, .. } = self;
        let waited = device.wait(fence);
        let done = Instant::now();
        times.run += done.saturating_duration_since(from);
        if let Err(error) = waited {
            lost.lose(&error, held);
            return Err(error.into());
        }
        let mut outcomes = outcomes(&load.settings, rows, held.splits);
        times.state_out += done.elapsed();
        outcomes.iter_mut().for_each(|outcome| outcome.times = *times);
        Ok(outcomes)
    }
}

fn outcomes(settings: &ModelSettings, rows: Vec<Option<CommittedRow>>, splits: Vec<OutputSplit>) -> Vec<RowOutcome> {
    let outcome = |CommittedRow { state, copy, not_finite }: CommittedRow| {
        let outputs = Vec::with_capacity(splits.len());
        RowOutcome { outputs, state, copy, not_finite, times: RunTimes::default() }
    };
    let mut rows: Vec<Option<RowOutcome>> = rows.into_iter().map(|row| row.map(outcome)).collect();
    let wanted: Vec<bool> = rows.iter().map(Option::is_some).collect();
    for (output, cut) in settings.outputs.iter().zip(splits) {
        let parts = cut.tensors(wanted.iter().copied());
        for (row, tensor) in rows.iter_mut().zip(parts) {
            let Some((row, mut tensor)) = row.as_mut().zip(tensor) else { continue };
            reshape_output(settings, output.reshape.as_ref(), &output.dims, &mut tensor);
            row.outputs.push(tensor);
        }
    }
    let mut rows: Vec<RowOutcome> = rows.into_iter().flatten().collect();
    rows.iter_mut().for_each(|row| crop_by_lengths(settings, row));
    rows
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::device::Accelerators as _;
    use crate::device::stand_in::StandIns;

    /// The next run may get the memory that the device still writes for this one.
    #[test]
    fn a_run_that_panics_while_it_is_submitted_waits_for_the_device() {
        let gpus = StandIns::new(1, 1 << 20);
        let device = gpus.open(0).unwrap();
        let lost = Arc::new(LostDevice::new(&device));
        let panics = || {
            catch_unwind(AssertUnwindSafe(|| {
                let _run = UnfinishedRun::new(&device, &lost);
                assert!(gpus.waits() > 9, "as the test wants");
            }))
        };
        assert!(panics().is_err());
        assert_eq!((gpus.waits(), lost.error()), (1, None));
        drop(UnfinishedRun::new(&device, &lost).finish());
        assert_eq!(gpus.waits(), 1);
        gpus.break_down();
        assert!(panics().is_err());
        assert!(lost.error().is_some());
    }
}
