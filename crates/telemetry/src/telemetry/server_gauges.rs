//! Gauges of the whole server: whether it is ready, and the limits that other gauges approach.

use super::kinds::Gauge;

#[derive(Debug)]
pub(super) struct ServerGauges {
    pub(super) ready: Gauge,
    pub(super) state_limit: Gauge,
    pub(super) queued_limit: Gauge,
}

impl ServerGauges {
    pub(super) fn set(&self, ready: bool, state_limit: Option<u64>, queued_limit: u64) {
        self.ready.set(i64::from(ready));
        self.state_limit.set(i64::try_from(state_limit.unwrap_or(0)).unwrap_or(i64::MAX));
        self.queued_limit.set(i64::try_from(queued_limit).unwrap_or(i64::MAX));
    }
}
