//! Implements [`PluginPlace`] for a processor of a chain.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_wasm::room::RoomPurpose;

use super::health::PlaceHealth;
use super::link::ChainLink;
use super::place::{Misfit, PluginPlace, Replacement};
use super::status::PlaceStatus;
use super::version::LinkVersion;
use super::world::{ProcessorComponent, ProcessorWorld};
use crate::telemetry::{Metrics, PluginMetrics};

impl PluginPlace for ChainLink {
    type World = ProcessorWorld;
    type Version = LinkVersion;

    fn metrics(metrics: &Metrics, name: &str) -> Arc<PluginMetrics> {
        metrics.processor(name)
    }

    fn named_in() -> &'static str {
        "[[plugins.processor]]"
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn model(&self) -> &str {
        &self.site.facts.name
    }

    fn sha256(&self) -> String {
        self.current.load().sha256.clone()
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    fn health(&self) -> &PlaceHealth {
        &self.health
    }

    fn status(&self) -> PlaceStatus {
        let (current, options) = (self.current.load(), &self.site.options);
        let call = (options.limits.time, options.config.as_str());
        PlaceStatus::new(&self.site.facts, &current.sha256, &self.health, current.memory(), call)
    }

    /// A version needs a new load if its signature or `scratch` differs, or if only one of the two versions wants `post`.
    fn try_version(&self, component: &Arc<ProcessorComponent>) -> Result<Replacement<LinkVersion>, Misfit> {
        let (version, answered) = LinkVersion::start(component, &self.site, RoomPurpose::Replacement)?;
        let outer = if self.site.options.is_model { self.site.inner.clone() } else { answered };
        let (before, after) = (self.current.load(), &version.manifest);
        let alike = before.manifest.scratch == after.scratch && before.manifest.post == after.post;
        if outer == self.outer && alike {
            return Ok(Replacement::InPlace(Arc::new(version)));
        }
        Ok(Replacement::NewLoad)
    }

    fn take_over(&self, version: Arc<LinkVersion>) {
        self.current.store(version);
        self.health.forgive();
    }
}
