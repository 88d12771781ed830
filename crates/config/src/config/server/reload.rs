//! A reload of the settings. The new settings are checked whole. Then those that only a restart applies keep their values, and this mixture is
//! checked as well: values that are allowed together in the file may not be allowed beside the values that stay.

use std::path::Path;

use super::access::MASK;
use super::file::keys;
use super::flags::GivenFlags;
use super::key::Key;
use super::settings::{HostInfo, Settings, load, resolved};
use super::shown::Shown;
use crate::config::fault::Fault;

/// The outcome of a reload.
#[derive(Debug, Clone, PartialEq)]
pub struct Reloaded {
    /// The settings from now on.
    pub settings: Settings,
    /// The keys whose values change now.
    pub changed: Vec<&'static str>,
    /// The keys whose new values wait for a restart, with these values.
    pub pending: Vec<Shown>,
}

/// Merges the layers anew over the running settings. On error returns all faults.
pub fn reload(
    file: Option<(&Path, &str)>,
    variable: &dyn Fn(&str) -> Option<String>,
    given: &GivenFlags,
    host: &HostInfo,
    running: &Settings,
) -> Result<Reloaded, Vec<Fault>> {
    let wanted = load(file, variable, given, host)?;
    let waits: Vec<&'static Key> = keys().filter(|key| !key.reload && differs(key, running, &wanted)).collect();
    let mut layers = wanted.layers.clone();
    for key in &waits {
        layers.take_from(&running.layers, key);
    }
    let settings = resolved(layers, variable, host).map_err(beside_running)?;
    let changed = keys().filter(|key| differs(key, running, &settings)).map(|key| key.path).collect();
    let pending = waits.iter().filter_map(|key| row(key, &wanted)).cloned().collect();
    Ok(Reloaded { settings, changed, pending })
}

/// Says of faults that they are in no file alone.
fn beside_running(faults: Vec<Fault>) -> Vec<Fault> {
    let beside = |fault: Fault| {
        let what = format!("{} (beside running values of settings that only a restart changes)", fault.what);
        Fault { what, ..fault }
    };
    faults.into_iter().map(beside).collect()
}

/// Whether two settings differ in a key. Values that are shown without their secrets are compared as they were written.
fn differs(key: &Key, one: &Settings, other: &Settings) -> bool {
    let value = |of| row(key, of).map(|row: &Shown| row.value.as_str());
    let is_secret = value(one).is_some_and(|value| value.contains(MASK));
    value(one) != value(other) || (is_secret && one.layers.given(key) != other.layers.given(key))
}

fn row<'s>(key: &Key, settings: &'s Settings) -> Option<&'s Shown> {
    settings.shown.iter().find(|row| row.key == key.path)
}
