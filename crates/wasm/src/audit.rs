//! Audit lines: one for each change of a plug-in, and one for each change that was refused.

use super::plugin_error::PluginError;

/// A change of a plug-in.
#[derive(Debug, Clone, Copy)]
pub struct PluginChange<'a> {
    /// The operation.
    pub what: &'a str,
    pub plugin: &'a str,
    /// The model that it is about; empty if it is about all.
    pub model: &'a str,
    /// The name of a key, `local`, or the place that the change came from.
    pub by: &'a str,
}

impl PluginChange<'_> {
    /// The change was made: from one hash to another.
    pub fn made(self, before: &str, after: &str) {
        let PluginChange { what, plugin, model, by } = self;
        tracing::info!(target: "sequor::audit", by, what, plugin, model, before, after, "plug-in changed");
    }

    /// The change was refused for this reason. `tried` is the hash that was to serve.
    pub fn refused(self, before: &str, tried: &str, why: &PluginError) {
        let (PluginChange { what, plugin, model, by }, why) = (self, why.to_string());
        tracing::warn!(target: "sequor::audit", by, what, plugin, model, before, tried, why, "plug-in not changed");
    }
}
