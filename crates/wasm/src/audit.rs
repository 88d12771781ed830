//! Audit lines: one for each change of a plug-in, and one for each change that was refused.

use super::plugin_error::PluginError;

/// A change of a plug-in.
#[derive(Debug, Clone, Copy)]
pub struct PluginChange<'a> {
    /// The operation.
    pub what: &'a str,
    pub plugin: &'a str,
    /// The model that the change concerns; empty if it concerns all.
    pub model: &'a str,
    /// The source of the change: the name of a key, `local`, or a place.
    pub by: &'a str,
}

impl<'a> PluginChange<'a> {
    /// A change for all models.
    pub fn new(what: &'a str, plugin: &'a str, by: &'a str) -> PluginChange<'a> {
        PluginChange { what, plugin, model: "", by }
    }

    /// The same change for one model.
    #[must_use]
    pub fn at(self, model: &'a str) -> PluginChange<'a> {
        PluginChange { model, ..self }
    }

    /// Logs a change that was made, from one hash to another.
    pub fn record(self, before: &str, after: &str) {
        let PluginChange { what, plugin, model, by } = self;
        tracing::info!(target: "sequor::audit", by, what, plugin, model, before, after, "plug-in changed");
    }

    /// Logs a change that was refused, with the reason. `tried` is the hash that was to serve.
    pub fn refused(self, before: &str, tried: &str, why: &PluginError) {
        let (PluginChange { what, plugin, model, by }, why) = (self, why.to_string());
        tracing::warn!(target: "sequor::audit", by, what, plugin, model, before, tried, why, "plug-in not changed");
    }
}
