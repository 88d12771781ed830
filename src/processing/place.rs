//! A place where a version of a plug-in serves: at a model, in one load of it. A registry puts versions there.

use std::fmt;
use std::sync::Arc;

use sequor_wasm::component::Component;
use sequor_wasm::world::World;

use super::health::PlaceHealth;
use super::status::PlaceStatus;
use crate::telemetry::{Metrics, PluginMetrics};

/// How a version can take the place of another.
#[derive(Debug)]
pub enum Replacement<V> {
    /// At once, for all sequences.
    InPlace(Arc<V>),
    /// For new sequences, by a new load of the model.
    NewLoad,
}

/// A place of one world.
pub trait PluginPlace: Send + Sync + fmt::Debug + 'static {
    /// What its components are for.
    type World: World;
    /// A version, configured for a place.
    type Version: Send + Sync;

    /// The counters of a plug-in of this name.
    fn metrics(metrics: &Metrics, name: &str) -> Arc<PluginMetrics>;

    /// Where a model's file names its plug-in.
    fn named_in() -> &'static str;

    fn name(&self) -> &str;

    fn model(&self) -> &str;

    /// The hash of the version that serves.
    fn sha256(&self) -> String;

    /// Whether its load takes no new sequences.
    fn is_retired(&self) -> bool;

    fn health(&self) -> &PlaceHealth;

    fn status(&self) -> PlaceStatus;

    /// Configures another version for this place. It serves nothing yet.
    fn try_version(&self, component: &Arc<Component<Self::World>>) -> Result<Replacement<Self::Version>, String>;

    /// Lets a version serve from now on. Requests that the version before has begun are finished by it.
    fn take_over(&self, version: Arc<Self::Version>, unparks: bool);
}
