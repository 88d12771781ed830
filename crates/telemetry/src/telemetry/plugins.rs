//! Counters of a plug-in. `names` has the names of the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use super::kinds::{Amount, Counter, Gauge, Histogram, nanos};

/// The functions of a plug-in that Sequor calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Configure,
    Plan,
    Admit,
    Observe,
    Save,
    Restore,
    Pre,
    Post,
    Initialize,
    Steps,
}

impl Hook {
    /// The hooks of schedulers.
    pub const SCHEDULER: [Hook; 6] =
        [Hook::Configure, Hook::Plan, Hook::Admit, Hook::Observe, Hook::Save, Hook::Restore];
    /// The hooks of processors.
    pub const PROCESSOR: [Hook; 3] = [Hook::Configure, Hook::Pre, Hook::Post];
    /// The hooks of initializers.
    pub const INITIALIZER: [Hook; 3] = [Hook::Configure, Hook::Initialize, Hook::Steps];

    pub const fn name(self) -> &'static str {
        match self {
            Hook::Configure => "configure",
            Hook::Plan => "plan",
            Hook::Admit => "admit",
            Hook::Observe => "observe",
            Hook::Save => "save",
            Hook::Restore => "restore",
            Hook::Pre => "pre",
            Hook::Post => "post",
            Hook::Initialize => "initialize",
            Hook::Steps => "steps",
        }
    }
}

/// All counters of one plug-in, wherever it is attached.
pub struct PluginMetrics {
    /// One for each hook of the plug-in's world.
    pub(super) calls: Vec<(Hook, Histogram)>,
    pub(super) fallbacks: Counter,
    pub(super) stale: Counter,
    pub(super) passed_over: Counter,
    pub(super) replaced: Counter,
    pub(super) refused: Counter,
    pub(super) make: Make,
    pub(super) made: Mutex<Made>,
}

/// A plug-in's own counter: its name and its labels.
pub(super) type OwnCounter = (String, Vec<(String, String)>);

/// Creates the series whose last label is known only when they count first.
pub(super) struct Make {
    pub(super) strikes: Box<dyn Fn(&str) -> Counter + Send + Sync>,
    pub(super) memory: Box<dyn Fn(&str) -> Gauge + Send + Sync>,
    pub(super) parked: Box<dyn Fn(&str) -> Gauge + Send + Sync>,
    pub(super) waiting: Box<dyn Fn(&str) -> Gauge + Send + Sync>,
    pub(super) instances: Box<dyn Fn(&str) -> Gauge + Send + Sync>,
    pub(super) counter: Box<dyn Fn(&OwnCounter) -> Amount + Send + Sync>,
}

#[derive(Default)]
pub(super) struct Made {
    pub(super) strikes: BTreeMap<String, Counter>,
    pub(super) counters: BTreeMap<OwnCounter, Amount>,
    /// Models that have gauges of this plug-in.
    pub(super) models: BTreeSet<String>,
}

impl std::fmt::Debug for PluginMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginMetrics").field("fallbacks", &self.fallbacks).finish_non_exhaustive()
    }
}

impl PluginMetrics {
    pub fn called(&self, hook: Hook, took: Duration) {
        if let Some((_, histogram)) = self.calls.iter().find(|(of, _)| *of == hook) {
            histogram.observe(nanos(took), 1);
        }
    }

    /// Counts a strike. `reason` is one of a few words.
    pub fn add_strike(&self, reason: &str) {
        let mut made = self.made.lock();
        made.strikes.entry(reason.to_owned()).or_insert_with(|| (self.make.strikes)(reason)).add(1);
    }

    pub fn fell_back(&self) {
        self.fallbacks.add(1);
    }

    pub fn went_stale(&self, picks: u32) {
        self.stale.add(u64::from(picks));
    }

    /// Counts a round that the plug-in did not get, because it had used its share of a core.
    pub fn passed_over(&self) {
        self.passed_over.add(1);
    }

    /// Counts a replacement of the plug-in's version. `is`: whether it took place.
    pub fn replaced(&self, is: bool) {
        if is { &self.replaced } else { &self.refused }.add(1);
    }

    /// The gauge of the memory of its instance at this model.
    pub fn memory_at(&self, model: &str) -> Gauge {
        self.at(model);
        (self.make.memory)(model)
    }

    /// The gauge of loads of this model at which it is parked.
    pub fn parked_at(&self, model: &str) -> Gauge {
        self.at(model);
        (self.make.parked)(model)
    }

    /// The gauge of calls to other models that its instances at this model wait for.
    pub fn waiting_at(&self, model: &str) -> Gauge {
        self.at(model);
        (self.make.waiting)(model)
    }

    /// The gauge of its instances at this model, called and warm.
    pub fn instances_at(&self, model: &str) -> Gauge {
        self.at(model);
        (self.make.instances)(model)
    }

    fn at(&self, model: &str) {
        let mut made = self.made.lock();
        if !made.models.contains(model) {
            made.models.insert(model.to_owned());
        }
    }

    /// Adds to the plug-in's own counter. The caller limits the number of counters and checks the names.
    pub fn count(&self, name: &str, labels: &[(String, String)], value: f64) {
        let counter = (name.to_owned(), labels.to_vec());
        let mut made = self.made.lock();
        let amount = made.counters.entry(counter).or_insert_with_key(|counter| (self.make.counter)(counter));
        amount.add(value);
    }
}
