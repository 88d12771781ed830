//! What operators do with plug-ins: the registry's business, but for those that decide for a model.

use sequor_wasm::journal::LogLine;

use crate::scheduling::Registry;
use crate::scheduling::report::{Attach, By, PluginControl, PluginError, Summary};

use super::facade::Repository;

impl PluginControl for Repository {
    fn list(&self) -> Vec<Summary> {
        self.0.deciders.registry().map(Registry::list).unwrap_or_default()
    }

    fn show(&self, name: &str) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.show(name)
    }

    fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.load(name, component, by)
    }

    fn attach(&self, how: &Attach, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.change(|| self.0.deciders.attach(how, by))?;
        self.show(&how.plugin)
    }

    fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.replace(name, component, by)
    }

    fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.rollback(name, by)
    }

    fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.change(|| self.0.deciders.detach(name, model, by))?;
        self.show(name)
    }

    fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.park(name, by)
    }

    fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.deciders.equipped()?.unpark(name, by)
    }

    fn unload(&self, name: &str, by: By<'_>) -> Result<(), PluginError> {
        self.0.deciders.equipped()?.unload(name, by)
    }

    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        self.0.deciders.equipped()?.logs(name, after)
    }
}
