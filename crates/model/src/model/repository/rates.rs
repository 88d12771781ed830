//! Chooses the loads that wait for resources before a run. If a configuration's request for that has no effect, a note of the load gives
//! the reason.

use crate::config::fault::code;
use crate::config::model::Draft;
use crate::config::model::settings::{BackendKind, ModelSettings};
use crate::error::LoadError;
use crate::model::runtime::LoadRates;

use super::resources::Resources;

const FIELD: &str = "instance_group.rate_limiter";

/// The resources that a load's instances wait for, if its configuration names some and they have an effect.
pub(super) fn rates_of(
    resources: &Resources,
    draft: &Draft,
    settings: &mut ModelSettings,
) -> Result<Option<LoadRates>, LoadError> {
    if settings.rates.is_empty() {
        return Ok(None);
    }
    let in_vain = match &resources.rates {
        _ if settings.backend == BackendKind::Plugin => "a plug-in that is the model is not rated",
        None => "the server rates nothing; set rate_limit = \"execution_count\", or --rate-limit=execution_count",
        Some(limiter) => {
            let fault = |what| LoadError::Config { at: draft.instances_at(), code: code::INSTANCES, what };
            return limiter.add(&settings.rates).map_err(fault);
        }
    };
    settings.notes.push(draft.note("instance_group", format!("{FIELD} has no effect: {in_vain}")));
    Ok(None)
}
