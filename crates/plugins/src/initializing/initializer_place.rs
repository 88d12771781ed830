//! Implements [`PluginPlace`] for the initializer of a load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_wasm::room::RoomPurpose;

use super::initializer::Initializer;
use super::version::InitializerVersion;
use super::world::{InitializerComponent, InitializerWorld};
use crate::processing::PluginPlace;
use crate::processing::health::PlaceHealth;
use crate::processing::place::{Misfit, Replacement};
use crate::processing::registry::PlaceRegistry;
use crate::processing::status::PlaceStatus;
use crate::telemetry::{Metrics, PluginMetrics};

/// The initializers of a server.
pub type InitializerRegistry = PlaceRegistry<Initializer>;

impl PluginPlace for Initializer {
    type World = InitializerWorld;
    type Version = InitializerVersion;

    fn metrics(metrics: &Metrics, name: &str) -> Arc<PluginMetrics> {
        metrics.initializer(name)
    }

    fn named_in() -> &'static str {
        "[plugins.initializer]"
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

    fn try_version(&self, component: &Arc<InitializerComponent>) -> Result<Replacement<InitializerVersion>, Misfit> {
        let version = InitializerVersion::start(component, &self.site, RoomPurpose::Replacement)?;
        Ok(Replacement::InPlace(Arc::new(version)))
    }

    /// Another version may give other steps for a name, so the states of the previous version are dropped.
    fn take_over(&self, version: Arc<InitializerVersion>) {
        self.current.store(version);
        self.kept.clear();
        self.health.forgive();
    }
}
