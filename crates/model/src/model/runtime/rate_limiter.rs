//! Makes the threads of instances wait for the resources that a run needs. All models of a repository share one limiter.

use std::sync::Arc;

use crate::config::model::settings::InstanceRate;
use crate::config::server::rates::ResourceLimit;
use crate::sync::{self, Condvar, Mutex};

use super::rate_ledger::{InstanceKey, RateLedger};

/// Cheap to clone; all clones are one limiter.
#[derive(Debug, Clone)]
pub(in crate::model) struct RateLimiter(Arc<LimiterState>);

#[derive(Debug)]
struct LimiterState {
    ledger: Mutex<RateLedger>,
    granted: Condvar,
}

/// The instances of one load. They are removed when this is dropped.
#[derive(Debug)]
pub(in crate::model) struct LoadRates {
    limiter: RateLimiter,
    instances: Vec<Option<InstanceKey>>,
}

/// The resources of a run. Dropping it gives them back.
#[derive(Debug)]
pub(in crate::model) struct RunPermit {
    limiter: RateLimiter,
    instance: InstanceKey,
    has_run: bool,
    is_returned: bool,
}

impl RateLimiter {
    pub(in crate::model) fn new(limits: Vec<ResourceLimit>) -> RateLimiter {
        RateLimiter(Arc::new(LimiterState { ledger: Mutex::new(RateLedger::new(limits)), granted: Condvar::new() }))
    }

    /// Adds the instances of a load. The error is the reason why none is added. `None` for a load that needs no resources.
    pub(in crate::model) fn add(&self, rates: &[Option<InstanceRate>]) -> Result<Option<LoadRates>, String> {
        if rates.is_empty() {
            return Ok(None);
        }
        let mut ledger = self.0.ledger.lock();
        let instances = ledger.add(rates)?;
        // A resource without a limit may have a higher count now.
        if ledger.grant() {
            self.0.granted.notify_all();
        }
        Ok(Some(LoadRates { limiter: self.clone(), instances }))
    }

    /// Number of instances that wait for a resource.
    #[cfg(test)]
    pub(in crate::model) fn waiting(&self) -> usize {
        self.0.ledger.lock().waiting()
    }

    fn release(&self, instance: InstanceKey, has_run: bool) {
        let mut ledger = self.0.ledger.lock();
        let is_granted = if has_run { ledger.release(instance) } else { ledger.release_unused(instance) };
        if is_granted {
            self.0.granted.notify_all();
        }
    }
}

impl LoadRates {
    /// Waits until this instance may run. It releases its last run's resources under the same lock, so that it competes with the waiting
    /// instances for its next turn.
    pub(in crate::model) fn acquire(&self, instance: u16, last: Option<RunPermit>) -> Option<RunPermit> {
        let instance = self.instances.get(usize::from(instance)).copied().flatten()?;
        let LimiterState { ledger, granted } = &*self.limiter.0;
        let mut ledger = ledger.lock();
        match last {
            Some(mut last) => {
                last.is_returned = true;
                if ledger.release_and_wait(instance) {
                    granted.notify_all();
                }
            }
            None => ledger.wait(instance),
        }
        while !ledger.take_grant(instance) {
            ledger = sync::wait(granted, ledger);
        }
        drop(ledger);
        Some(RunPermit { limiter: self.limiter.clone(), instance, has_run: false, is_returned: false })
    }
}

impl RunPermit {
    /// Records that a run begins. Without a run, the instance gets its turn back.
    pub(in crate::model) fn run(&mut self) {
        self.has_run = true;
    }
}

impl Drop for LoadRates {
    fn drop(&mut self) {
        let mut ledger = self.limiter.0.ledger.lock();
        self.instances.iter().flatten().for_each(|instance| ledger.remove(*instance));
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        if !self.is_returned {
            self.limiter.release(self.instance, self.has_run);
        }
    }
}
