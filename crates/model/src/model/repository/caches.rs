//! Chooses the loads that keep their answers in the response cache. If a configuration's request for that has no effect, a note of the load
//! gives the reason.

use crate::config::model::Draft;
use crate::config::model::settings::{BackendKind, ModelSettings, Scheduling};
use crate::model::load::LoadCache;

use super::resources::Resources;

const FIELD: &str = "response_cache";

/// The cache of a load, if its configuration asks for one and it has an effect.
pub(super) fn cache_of(resources: &Resources, draft: &Draft, settings: &mut ModelSettings) -> Option<LoadCache> {
    if !settings.proto.response_cache.is_some_and(|cache| cache.enable) {
        return None;
    }
    let cache = match (in_vain(settings), &resources.cache) {
        (None, Some(cache)) => Ok(cache.for_load()),
        (None, None) => Err("the server has no cache; set cache.size, or --cache-config=local,size=BYTES"),
        (Some(why), _) => Err(why),
    };
    cache.map_err(|why| settings.notes.push(draft.note(FIELD, format!("{FIELD} has no effect: {why}")))).ok()
}

/// Why the answers of this model cannot be kept, or `None` if they can.
fn in_vain(settings: &ModelSettings) -> Option<&'static str> {
    let plugins = !settings.processor_plugins.is_empty() || settings.backend == BackendKind::Plugin;
    match &settings.scheduling {
        _ if settings.backend == BackendKind::Ensemble => Some("the steps of an ensemble always run"),
        _ if settings.scheduler.is_some() => Some("a scheduler plug-in decides about every request"),
        _ if plugins => Some("an answer that a plug-in makes may depend on more than the inputs"),
        Scheduling::Dynamic { in_order: true, .. } => {
            Some("with preserve_ordering, an answer from the cache would overtake others")
        }
        Scheduling::Dynamic { .. } | Scheduling::Each => None,
        Scheduling::Sequence(_) => Some("an answer depends on the steps before it"),
    }
}
