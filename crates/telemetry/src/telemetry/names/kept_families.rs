//! Metrics of the states that initializers keep by name.

use prometheus_client::registry::Registry;

use crate::telemetry::kept::KeptMetrics;
use crate::telemetry::kinds::{Counter, Gauge};
use crate::telemetry::labels::{Family, Labels, label};

use super::series::{SeriesAction, family};

/// States that initializers keep by name.
#[derive(Debug)]
pub(in crate::telemetry) struct KeptFamilies {
    lookups: Family<Counter>,
    evictions: Family<Counter>,
    bytes: Family<Gauge>,
}

impl KeptFamilies {
    pub(super) fn register(r: &mut Registry) -> KeptFamilies {
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        let lookups = "STARTs that asked for a kept state, by result: `hit` began with a copy, `miss` ran the steps";
        KeptFamilies {
            lookups: family(r, "sequor_kept_states_total", lookups, counter),
            evictions: family(
                r,
                "sequor_kept_states_evicted_total",
                "Kept states evicted to make room for others",
                counter,
            ),
            bytes: family(r, "sequor_kept_states_bytes", "Bytes of states that initializers keep", gauge),
        }
    }

    /// The series of the kept states of one model version.
    pub(in crate::telemetry) fn model(&self, name: &str, version: u64) -> KeptMetrics {
        self.series_of(SeriesAction::Get, name, version)
    }

    /// Removes these series of one model version.
    pub(in crate::telemetry) fn forget(&self, name: &str, version: u64) {
        drop(self.series_of(SeriesAction::Remove, name, version));
    }

    fn series_of(&self, action: SeriesAction, name: &str, version: u64) -> KeptMetrics {
        let labels: Labels = vec![label("model", name), label("version", &version.to_string())];
        let with = |value: &str| [labels.clone(), vec![label("result", value)]].concat();
        KeptMetrics {
            hits: action.series(&self.lookups, &with("hit")),
            misses: action.series(&self.lookups, &with("miss")),
            evictions: action.series(&self.evictions, &labels),
            bytes: action.series(&self.bytes, &labels),
        }
    }
}
