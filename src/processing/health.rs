//! Whether a processor serves at its place: its strikes, parking, and what operators see of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sequor_core::Time;
use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::strikes::{Strikes, WINDOW};

use crate::telemetry::Meter;
use crate::telemetry::kinds::Gauge;

/// The time, as the server counts it.
pub type ProcessorClock = Arc<dyn ProcessorTime>;

/// Says what time it is.
pub trait ProcessorTime: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Time;
}

/// What a processor did wrong last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFault {
    /// `trap`, `time` or `memory`. An answer that breaks a rule counts as a trap.
    pub kind: &'static str,
    pub what: String,
    pub at: SystemTime,
}

/// The counters of a processor at its place.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkCounts {
    pub calls: u64,
    pub calls_per_second: f64,
    /// Time of a call, median and 99th percentile, microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    /// Requests that went on without it.
    pub bypassed: u64,
    pub strikes: u32,
    pub last_fault: Option<LinkFault>,
}

/// Strikes, and whether they have parked the processor.
#[derive(Debug)]
pub(super) struct LinkHealth {
    clock: ProcessorClock,
    /// So many strikes within a minute park it.
    most: u32,
    memory: Gauge,
    /// Read by every request. Set together with the reason below.
    is_parked: AtomicBool,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    strikes: Strikes,
    /// Why it is parked, if it is.
    parked: Option<String>,
    last_fault: Option<LinkFault>,
    meter: Meter,
}

impl LinkHealth {
    pub(super) fn new(clock: ProcessorClock, most: u32, memory: Gauge) -> LinkHealth {
        LinkHealth { clock, most: most.max(1), memory, is_parked: AtomicBool::new(false), state: Mutex::default() }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now().0)
    }

    /// Why it is parked, if it is.
    pub(super) fn parked(&self) -> Option<String> {
        if !self.is_parked.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().parked.clone()
    }

    /// Parks it. Nothing changes if it is parked already.
    pub(super) fn park(&self, why: String) {
        let mut state = self.state.lock();
        state.parked.get_or_insert(why);
        self.is_parked.store(true, Ordering::Release);
    }

    /// Forgets strikes, and parking too if `unparks`.
    pub(super) fn forgive(&self, unparks: bool) {
        let mut state = self.state.lock();
        state.strikes.clear();
        if unparks {
            (state.parked, state.last_fault) = (None, None);
            self.is_parked.store(false, Ordering::Release);
        }
    }

    /// Counts a strike. The last one that counts parks the processor.
    pub(super) fn struck(
        &self,
        journal: &Journal,
        model: &str,
        (kind, what): (&'static str, &str),
        bypasses: bool,
        at: SystemTime,
    ) {
        let now = self.now();
        let name = journal.plugin();
        let (strikes, parks) = {
            let mut state = self.state.lock();
            let strikes = state.strikes.add(now);
            state.last_fault = Some(LinkFault { kind, what: what.to_owned(), at });
            let parks = strikes >= self.most && state.parked.is_none();
            if parks {
                let seconds = WINDOW.as_secs();
                let why =
                    format!("{name} is parked on {model} after {strikes} strikes in {seconds} s ({kind}: {what})");
                state.parked = Some(why.clone());
                self.is_parked.store(true, Ordering::Release);
                (strikes, Some(why))
            } else {
                (strikes, None)
            }
        };
        journal.write(Level::Warn, &format!("{what} (strike {strikes} of {} on {model})", self.most));
        if let Some(why) = parks {
            let effect = if bypasses { "Requests go on without it" } else { "The model is not ready" };
            let line = format!("{why}. {effect}. sequor plugin show {name}; then unpark or rollback.");
            journal.write(Level::Error, &line);
        }
    }

    /// Counts a call, after which its guest uses this memory.
    pub(super) fn called(&self, took: Duration, memory: u64) {
        self.memory.set(i64::try_from(memory).unwrap_or(i64::MAX));
        self.state.lock().meter.called(self.clock.now(), took);
    }

    /// Counts a request that went on without it.
    pub(super) fn bypassed(&self) {
        self.state.lock().meter.fallbacks += 1;
    }

    pub(super) fn counts(&self) -> LinkCounts {
        let now = self.clock.now();
        let state = self.state.lock();
        LinkCounts {
            calls: state.meter.calls,
            calls_per_second: state.meter.per_second(now),
            p50_us: state.meter.quantile_us(0.5),
            p99_us: state.meter.quantile_us(0.99),
            bypassed: state.meter.fallbacks,
            strikes: state.strikes.count(self.now()),
            last_fault: state.last_fault.clone(),
        }
    }
}
