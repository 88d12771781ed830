//! The health of a plug-in at one model: its strikes, parking, and counters for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sequor_core::Time;
use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::strikes::{Strikes, WINDOW};

use crate::telemetry::kinds::Gauge;
use crate::telemetry::{GaugePart, Meter};

/// The server's clock.
pub type ProcessorClock = Arc<dyn ProcessorTime>;

/// A clock.
pub trait ProcessorTime: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Time;
}

/// The last strike of a plug-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceFault {
    /// `trap`, `time` or `memory`. An answer that breaks a rule counts as `trap`.
    pub kind: &'static str,
    pub what: String,
    pub at: SystemTime,
}

/// The counters of a plug-in at one model.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceCounts {
    pub calls: u64,
    pub calls_per_second: f64,
    /// Median and 99th percentile of the time of a call, in microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    /// Requests that bypassed the plug-in.
    pub bypassed: u64,
    pub strikes: u32,
    pub last_fault: Option<PlaceFault>,
}

/// Counts strikes, and parks the plug-in after too many.
#[derive(Debug)]
pub struct PlaceHealth {
    clock: ProcessorClock,
    /// Number of strikes within a minute that park the plug-in.
    most: u32,
    gauges: PlaceGauges,
    /// Read by every request. Changed together with the reason, under the lock of `state`.
    is_parked: AtomicBool,
    state: Mutex<PlaceState>,
}

/// The gauges of a plug-in at a model. All loads of the model share them. Each load adds its part, and removes it when it ends.
#[derive(Debug)]
pub(crate) struct PlaceGauges {
    memory: GaugePart,
    parked: Gauge,
}

impl PlaceGauges {
    pub(crate) fn new(memory: Gauge, parked: Gauge) -> PlaceGauges {
        PlaceGauges { memory: GaugePart::new(memory), parked }
    }
}

#[derive(Debug, Default)]
struct PlaceState {
    strikes: Strikes,
    /// The reason why the plug-in is parked.
    parked: Option<String>,
    /// How often an operator has parked it.
    parkings: u64,
    last_fault: Option<PlaceFault>,
    meter: Meter,
}

impl PlaceHealth {
    pub(crate) fn new(clock: ProcessorClock, most: u32, gauges: PlaceGauges) -> PlaceHealth {
        PlaceHealth { clock, most: most.max(1), gauges, is_parked: AtomicBool::new(false), state: Mutex::default() }
    }

    /// The caller holds the lock of `state`.
    fn set_parked(&self, is: bool) {
        if self.is_parked.swap(is, Ordering::AcqRel) != is {
            self.gauges.parked.add(if is { 1 } else { -1 });
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now().0)
    }

    /// The reason why the plug-in is parked; `None` if it is not.
    pub(crate) fn parked(&self) -> Option<String> {
        if !self.is_parked.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().parked.clone()
    }

    /// Parks the plug-in. If it is already parked, the first reason stays.
    pub(crate) fn park(&self, why: String) {
        let mut state = self.state.lock();
        state.parkings += 1;
        state.parked.get_or_insert(why);
        self.set_parked(true);
    }

    /// How often [`PlaceHealth::park`] was called.
    pub(crate) fn parkings(&self) -> u64 {
        self.state.lock().parkings
    }

    /// Clears the strikes.
    pub(crate) fn forgive(&self) {
        self.state.lock().strikes.clear();
    }

    /// Unparks the plug-in, and clears the strikes and the last fault. If an operator has parked it since the number of parkings was this, it
    /// stays parked.
    pub(crate) fn unpark(&self, parkings: u64) {
        let mut state = self.state.lock();
        if state.parkings == parkings {
            state.strikes.clear();
            (state.parked, state.last_fault) = (None, None);
            self.set_parked(false);
        }
    }

    /// Counts a strike. If the maximum is reached, parks the plug-in.
    pub(crate) fn add_strike(
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
            state.last_fault = Some(PlaceFault { kind, what: what.to_owned(), at });
            let parks = strikes >= self.most && state.parked.is_none();
            if parks {
                let seconds = WINDOW.as_secs();
                let why = format!("{name} is parked on {model} after {strikes} strikes in {seconds} s ({kind}");
                // Every client reads this reason. The text of a failure may contain another client's data, so only operators see it
                // (`plugin show`).
                state.parked = Some(format!("{why})"));
                self.set_parked(true);
                (strikes, Some(format!("{why}: {what})")))
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

    /// Counts a call. `memory` is what the guest uses after it.
    pub(crate) fn called(&self, took: Duration, memory: u64) {
        self.gauges.memory.set(memory);
        self.state.lock().meter.called(self.clock.now(), took);
    }

    /// Counts a request that bypassed the plug-in.
    pub(crate) fn bypassed(&self) {
        self.state.lock().meter.fallbacks += 1;
    }

    pub(crate) fn counts(&self) -> PlaceCounts {
        let now = self.clock.now();
        let state = self.state.lock();
        PlaceCounts {
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

impl Drop for PlaceHealth {
    fn drop(&mut self) {
        self.set_parked(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Noon;

    impl ProcessorTime for Noon {
        fn now(&self) -> Time {
            Time(0)
        }
    }

    #[test]
    fn loads_of_a_model_share_its_gauges_and_take_their_parts_back() {
        let (memory, parked) = (Gauge::default(), Gauge::default());
        let load = || PlaceHealth::new(Arc::new(Noon), 3, PlaceGauges::new(memory.clone(), parked.clone()));
        let shown = || (memory.get(), parked.get());
        let (first, second) = (load(), load());
        first.called(Duration::ZERO, 70);
        first.called(Duration::ZERO, 60);
        second.called(Duration::ZERO, 5);
        first.park("as the test wants".to_owned());
        first.park("once more".to_owned());
        assert_eq!(shown(), (65, 1));
        first.unpark(first.parkings());
        second.park("as the test wants".to_owned());
        assert_eq!(shown(), (65, 1));
        drop(first);
        assert_eq!(shown(), (5, 1));
        drop(second);
        assert_eq!(shown(), (0, 0));
    }
}
