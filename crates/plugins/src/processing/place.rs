//! A place of a plug-in: one load of a model, where one version of the plug-in serves. A registry decides which version.

use std::fmt;
use std::sync::Arc;

use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::component::Component;
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::room::NoGuestRoom;
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

/// Why a version cannot serve at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The version does not fit the place, or its start failed.
    #[error("{0}")]
    Unfit(String),
    /// The server has no room for it now.
    #[error("{0}")]
    NoRoom(String),
}

impl Misfit {
    /// A sentence about this version at this model.
    pub(super) fn describe(&self, version: &str, model: &str) -> String {
        match self {
            Misfit::Unfit(why) => format!("{version} does not fit {model}: {why}"),
            Misfit::NoRoom(why) => format!("{version} did not start for {model}: {why}"),
        }
    }

    /// The refusal of an operation, with this text.
    pub(crate) fn refusal(&self, text: String) -> PluginError {
        match self {
            Misfit::Unfit(_) => PluginError::Invalid(text),
            Misfit::NoRoom(_) => PluginError::Unavailable(text),
        }
    }
}

impl From<String> for Misfit {
    fn from(what: String) -> Misfit {
        Misfit::Unfit(what)
    }
}

impl From<NoGuestRoom> for Misfit {
    fn from(no_room: NoGuestRoom) -> Misfit {
        Misfit::NoRoom(no_room.to_string())
    }
}

impl From<CallError> for Misfit {
    fn from(CallError { fault, what }: CallError) -> Misfit {
        if fault == CallFault::Full { Misfit::NoRoom(what) } else { Misfit::Unfit(what) }
    }
}

impl From<Misfit> for String {
    fn from(misfit: Misfit) -> String {
        misfit.to_string()
    }
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
    fn try_version(&self, component: &Arc<Component<Self::World>>) -> Result<Replacement<Self::Version>, Misfit>;

    /// Makes a version serve from now on, without strikes. The previous version finishes the requests that it has begun. A parked plug-in
    /// stays parked.
    fn take_over(&self, version: Arc<Self::Version>);
}
