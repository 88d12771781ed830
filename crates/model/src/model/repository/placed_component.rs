//! The component of a plug-in that a model names.

use std::sync::Arc;

use sequor_wasm::component::Component;

use crate::config::fault::did_you_mean;
use crate::processing::{PlaceRegistry, PluginPlace};

/// The current version of a plug-in, if it is the version that the model names. The error is a sentence.
pub(super) fn named_component<P: PluginPlace>(
    registry: &PlaceRegistry<P>,
    name: &str,
    wanted: Option<&str>,
) -> Result<Arc<Component<P::World>>, String> {
    let component = registry.find(name).map_err(|error| format!("{error}{}", near(registry, name)))?;
    let is = component.sha256();
    match wanted {
        Some(sha256) if sha256 != is => Err(format!("{name} has the hash {is}, and sha256 = \"{sha256}\" is wanted")),
        None if registry.rules().require_sha256 => {
            Err(format!("plugins.require_sha256 is set: add  sha256 = \"{is}\""))
        }
        _ => Ok(component),
    }
}

/// The nearest name in the plug-in folder.
fn near<P: PluginPlace>(registry: &PlaceRegistry<P>, name: &str) -> String {
    let folder = registry.rules().dir.as_ref().map(std::fs::read_dir);
    let files = folder.into_iter().flatten().flatten().flatten();
    let names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    did_you_mean(name, names.iter().filter_map(|name| name.strip_suffix(".wasm")))
}
