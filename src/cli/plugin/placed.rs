//! The part that the commands for processors and state initializers share. Both are tried for a model that a case describes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::world::{self, GivenComponent};
use super::{Failed, file};
use crate::author::trial::TrialOptions;
use crate::processing::TensorPort;
use sequor_wasm::instances::ReplacedGuests;

/// CPU time of a call without tensors: the default of a model's file.
pub(super) const CALL_TIME: Duration = Duration::from_millis(10);
/// CPU time of a call in a case. Cases do not test the time of calls.
pub(super) const CASE_TIME: Duration = Duration::from_secs(1);

/// The options of a command. `time` is the default CPU time of a call.
pub(super) fn trial_options(given: GivenComponent<'_>, time: Duration) -> Result<TrialOptions, Failed> {
    let is_set = |name: &str| given.matches.try_contains_id(name).unwrap_or(false);
    let has_options = ["set", "time", "memory", "grant"].into_iter().any(is_set);
    let mut options = if has_options { file::trial_options(given.matches)? } else { TrialOptions::default() };
    if !is_set("time") {
        options.limits.time = time;
    }
    Ok(options)
}

/// The path of the case that describes the model: that of `--case`, or the first beside the component.
pub(super) fn case_path(given: GivenComponent<'_>) -> Option<PathBuf> {
    let named = given.matches.try_get_many::<PathBuf>("case").ok().flatten();
    let named = named.and_then(|mut cases| cases.next().cloned());
    named.or_else(|| world::cases(given.path).ok().and_then(|cases| cases.into_iter().next()))
}

/// A sentence about instances that a server would replace as this trial did. `None` if all stayed.
pub(super) fn replaced_text(ReplacedGuests { spent, failed }: ReplacedGuests) -> Option<String> {
    let count = |n: u64| if n == 1 { "1 instance was".to_owned() } else { format!("{n} instances were") };
    let spent =
        (spent > 0).then(|| format!("{} replaced: most of the memory limit was in use after a call", count(spent)));
    let failed = (failed > 0).then(|| format!("{} replaced after a call that failed", count(failed)));
    let all: Vec<String> = spent.into_iter().chain(failed).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

pub(super) fn replaced_json(ReplacedGuests { spent, failed }: ReplacedGuests) -> Value {
    json!({ "memory": spent, "failed_call": failed })
}

pub(super) fn ports_json(ports: &[TensorPort]) -> Value {
    let port = |port: &TensorPort| {
        BTreeMap::from([
            ("name", json!(port.name)),
            ("datatype", json!(port.dtype.to_string())),
            ("shape", json!(port.dims.to_wire())),
            ("optional", json!(port.optional)),
        ])
    };
    ports.iter().map(|of| json!(port(of))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_instances_are_counted_by_their_cause() {
        let text = |spent, failed| replaced_text(ReplacedGuests { spent, failed });
        assert_eq!(text(0, 0), None);
        assert_eq!(text(0, 1).as_deref(), Some("1 instance was replaced after a call that failed"));
        let both = "2 instances were replaced: most of the memory limit was in use after a call; 1 instance was replaced after a call that failed";
        assert_eq!(text(2, 1).as_deref(), Some(both));
    }
}
