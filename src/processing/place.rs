//! A place of a plug-in: one load of a model, where one version of the plug-in serves. A registry decides which version.

use std::fmt;
use std::sync::Arc;

use sequor_wasm::component::Component;
use sequor_wasm::world::World;

use super::health::PlaceHealth;
use super::status::PlaceStatus;
use crate::telemetry::{Metrics, PluginMetrics};

/// How a new version can replace the current one.
#[derive(Debug)]
pub enum Replacement<V> {
    /// At once, for all sequences.
    InPlace(Arc<V>),
    /// For new sequences only, by a new load of the model.
    NewLoad,
}

/// A place of one world.
pub trait PluginPlace: Send + Sync + fmt::Debug + 'static {
    /// The world of the place's components.
    type World: World;
    /// A version that is configured for a place.
    type Version: Send + Sync;

    /// The metrics of the plug-in with this name.
    fn metrics(metrics: &Metrics, name: &str) -> Arc<PluginMetrics>;

    /// The section of a model's file that names the plug-in.
    fn named_in() -> &'static str;

    fn name(&self) -> &str;

    fn model(&self) -> &str;

    /// The hash of the current version.
    fn sha256(&self) -> String;

    /// Whether the load takes no more new sequences.
    fn is_retired(&self) -> bool;

    fn health(&self) -> &PlaceHealth;

    fn status(&self) -> PlaceStatus;

    /// Configures another version for this place. The version does not serve yet.
    fn try_version(&self, component: &Arc<Component<Self::World>>) -> Result<Replacement<Self::Version>, String>;

    /// Makes a version serve from now on, without strikes. The previous version finishes the requests that it has begun. A parked plug-in
    /// stays parked.
    fn take_over(&self, version: Arc<Self::Version>);
}
