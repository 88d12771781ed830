//! Operations on the plug-ins of models, the same for every world.

use sequor_wasm::audit::PluginChange;
use sequor_wasm::journal::LogLine;
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::world::World;

use super::place::PluginPlace;
use super::registry::PlaceRegistry;
use super::status::PlacedPlugin;

/// The operations of a registry. `by` is the operator who asks.
pub trait PluginOperations {
    /// The world of the registry's plug-ins, as in `plugin.toml`.
    fn world(&self) -> &'static str;

    /// The section of a model's file that names the plug-in.
    fn named_in(&self) -> &'static str;

    fn has(&self, name: &str) -> bool;

    fn list(&self) -> Vec<PlacedPlugin>;

    fn show(&self, name: &str) -> Result<PlacedPlugin, PluginError>;

    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError>;

    /// Loads a component. Loading the same component again changes nothing.
    fn load(&self, name: &str, component: Vec<u8>, by: &str) -> Result<PlacedPlugin, PluginError>;

    /// Replaces the current version at all models. If anything fails, the current version stays at all of them.
    fn replace(&self, name: &str, component: Vec<u8>, by: &str) -> Result<PlacedPlugin, PluginError>;

    /// Replaces the current version with the previous one.
    fn rollback(&self, name: &str, by: &str) -> Result<PlacedPlugin, PluginError>;

    /// Parks the plug-in at every model.
    fn park(&self, name: &str, by: &str) -> Result<PlacedPlugin, PluginError>;

    fn unpark(&self, name: &str, by: &str) -> Result<PlacedPlugin, PluginError>;

    /// Removes a plug-in that serves nowhere.
    fn unload(&self, name: &str, by: &str) -> Result<(), PluginError>;
}

impl<P: PluginPlace> PluginOperations for PlaceRegistry<P> {
    fn world(&self) -> &'static str {
        P::World::NAME
    }

    fn named_in(&self) -> &'static str {
        P::named_in()
    }

    fn has(&self, name: &str) -> bool {
        self.changes().versions.with(name, |_| ()).is_some()
    }

    fn list(&self) -> Vec<PlacedPlugin> {
        self.changes().versions.names().iter().filter_map(|name| self.show(name).ok()).collect()
    }

    fn show(&self, name: &str) -> Result<PlacedPlugin, PluginError> {
        let current = self.changes().current(name)?.source;
        let attached = self.places(name).iter().map(|place| place.status()).collect();
        let (version, sha256) = (current.declared().version.clone(), current.sha256().to_owned());
        Ok(PlacedPlugin { name: name.to_owned(), world: P::World::NAME, version, sha256, attached })
    }

    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        Ok(self.journal(name)?.after(after))
    }

    fn load(&self, name: &str, component: Vec<u8>, by: &str) -> Result<PlacedPlugin, PluginError> {
        self.changes().load(name, component, by, || self.metrics(name))?;
        self.show(name)
    }

    fn replace(&self, name: &str, component: Vec<u8>, by: &str) -> Result<PlacedPlugin, PluginError> {
        self.changes().replace(self, name, component, by)?;
        self.show(name)
    }

    fn rollback(&self, name: &str, by: &str) -> Result<PlacedPlugin, PluginError> {
        self.changes().rollback(self, name, by)?;
        self.show(name)
    }

    fn park(&self, name: &str, by: &str) -> Result<PlacedPlugin, PluginError> {
        let current = self.changes().current(name)?.source;
        self.park_places(name, &format!("an operator has parked {name}"));
        PluginChange::new("park", name, by).record(current.sha256(), current.sha256());
        self.show(name)
    }

    fn unpark(&self, name: &str, by: &str) -> Result<PlacedPlugin, PluginError> {
        let current = self.changes().current(name)?.source;
        for place in self.places(name) {
            let health = place.health();
            health.unpark(health.parkings());
        }
        PluginChange::new("unpark", name, by).record(current.sha256(), current.sha256());
        self.show(name)
    }

    fn unload(&self, name: &str, by: &str) -> Result<(), PluginError> {
        let serves = || {
            let place = self.places(name).into_iter().next()?;
            let model = place.model();
            Some(format!("the sequor.toml of {model} names {name}; take it out and load {model} again first"))
        };
        self.changes().unload(name, by, serves)
    }
}
