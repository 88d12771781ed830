//! Registers metrics, and looks up or removes their series.

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::MetricConstructor;
use prometheus_client::registry::Registry;

use crate::telemetry::kinds::Gauge;
use crate::telemetry::labels::{Family, Labels};

pub(super) fn family<M>(registry: &mut Registry, name: &str, help: &str, make: fn() -> M) -> Family<M>
where
    M: EncodeMetric + TypedMetric + std::fmt::Debug + Send + Sync + 'static,
    fn() -> M: MetricConstructor<M>,
{
    let family = Family::new_with_constructor(make);
    registry.register(name, help, family.clone());
    family
}

pub(super) fn gauge_alone(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// Whether to get a series, or to remove it.
#[derive(Debug, Clone, Copy)]
pub(super) enum SeriesAction {
    Get,
    Remove,
}

impl SeriesAction {
    pub(super) fn series<M: Clone>(self, family: &Family<M>, labels: &Labels) -> M
    where
        fn() -> M: MetricConstructor<M>,
    {
        let metric = family.get_or_create_owned(labels);
        if matches!(self, SeriesAction::Remove) {
            family.remove(labels);
        }
        metric
    }
}
