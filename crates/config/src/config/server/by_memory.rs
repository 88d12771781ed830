//! Derives limits from the memory of this process if they are not set. A server in a small container then refuses requests and sequences
//! before the system kills its process.

use std::collections::BTreeMap;

use super::file::ServerLimits;
use super::layers::Origin;
use crate::config::units::{Size, human};

/// Memory that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMemory {
    pub bytes: u64,
    /// The source of the number: `memory.max of /sys/fs/cgroup`.
    pub source: String,
}

/// The limits, and the sources of the derived ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LimitsByMemory {
    pub(super) limits: ServerLimits,
    pub(super) sources: BTreeMap<&'static str, String>,
}

/// The unit of derived limits.
const MIB: u64 = 1 << 20;

/// Fills in `limits.queued`, `limits.state` and `limits.tensors` if they are not set. States get three quarters of the memory less
/// `limits.queued`, but at least a quarter. The rest is for models, plug-ins and the program. The tensors of runs may take the memory that
/// states and requests do not use: they live for milliseconds, and a limit that keeps both apart would refuse models that run well.
pub(super) fn by_memory(
    given: &ServerLimits,
    origins: &BTreeMap<&'static str, Origin>,
    memory: Option<&HostMemory>,
) -> LimitsByMemory {
    let (mut limits, mut sources) = (*given, BTreeMap::new());
    let Some(HostMemory { bytes, source }) = memory else { return LimitsByMemory { limits, sources } };
    let (quarter, of) = (rounded(bytes / 4), format!("{} ({source})", human(*bytes)));
    if !origins.contains_key("limits.queued") && quarter < given.queued.0 {
        // A request of the maximum size must fit.
        let (queued, why) = match quarter.max(given.request.0) {
            queued if queued == quarter => (queued, format!("a quarter of {of}")),
            queued => (queued, format!("limits.request, which is more than a quarter of {of}")),
        };
        limits.queued = Size(queued.min(given.queued.0));
        sources.insert("limits.queued", why);
    }
    if given.state.is_none() {
        let (rest, least) = (rounded(bytes / 4 * 3).saturating_sub(limits.queued.0), quarter);
        let why = match rest >= least {
            true => format!("three quarters of {of}, less limits.queued"),
            false => format!("a quarter of {of}"),
        };
        limits.state = Some(Size(rest.max(least)));
        sources.insert("limits.state", why);
    }
    if given.tensors.is_none() {
        limits.tensors = Some(Size(rounded(bytes / 4 * 3).max(MIB)));
        sources.insert("limits.tensors", format!("three quarters of {of}"));
    }
    LimitsByMemory { limits, sources }
}

/// Rounds down to whole MiB, for readability.
fn rounded(bytes: u64) -> u64 {
    bytes / MIB * MIB
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// `limits.queued` and `limits.state` in MiB, and the texts of their sources.
    fn limits(memory: u64, set: &[&'static str], of: ServerLimits) -> (u64, Option<u64>, String) {
        let origins = set.iter().map(|key| (*key, Origin::Flag("--x".to_owned()))).collect();
        let host = HostMemory { bytes: memory, source: "memory.max of /sys/fs/cgroup".to_owned() };
        let LimitsByMemory { limits, sources } = by_memory(&of, &origins, Some(&host));
        let given: Vec<String> = ["limits.queued", "limits.state"]
            .iter()
            .filter_map(|key| sources.get(key))
            .map(|why| why.replace(" (memory.max of /sys/fs/cgroup)", ""))
            .collect();
        (limits.queued.0 / MIB, limits.state.map(|state| state.0 / MIB), given.join("; "))
    }

    #[test]
    fn limits_that_are_not_set_fit_the_memory_together() {
        let default = ServerLimits::default;
        let small = "a quarter of 1 GiB; three quarters of 1 GiB, less limits.queued".to_owned();
        assert_eq!(limits(GIB, &[], default()), (256, Some(512), small));
        let large = "three quarters of 64 GiB, less limits.queued".to_owned();
        assert_eq!(limits(64 * GIB, &[], default()), (4096, Some(44 << 10), large));
        // A request of the maximum size always fits.
        let least = "limits.request, which is more than a quarter of 64 MiB; a quarter of 64 MiB".to_owned();
        assert_eq!(limits(64 * MIB, &[], default()), (64, Some(16), least));
        let (queued, state, _) = limits(GIB + 7, &[], default());
        assert_eq!((queued, state), (256, Some(512)), "whole MiB");
    }

    #[test]
    fn tensors_of_runs_may_take_what_states_and_requests_do_not_use() {
        let tensors = |memory: u64, of: ServerLimits| {
            let host = HostMemory { bytes: memory, source: "MemTotal of /proc/meminfo".to_owned() };
            by_memory(&of, &BTreeMap::new(), Some(&host)).limits.tensors
        };
        assert_eq!(tensors(GIB, ServerLimits::default()), Some(Size(768 * MIB)));
        assert_eq!(tensors(MIB, ServerLimits::default()), Some(Size(MIB)), "never 0, which would refuse every run");
        let set = ServerLimits { tensors: Some(Size(GIB)), ..ServerLimits::default() };
        assert_eq!(tensors(GIB, set), Some(Size(GIB)));
    }

    #[test]
    fn limits_that_are_set_are_kept() {
        let of = ServerLimits { queued: Size(GIB), state: Some(Size(7 * GIB)), ..ServerLimits::default() };
        let set = ["limits.queued", "limits.state"];
        assert_eq!(limits(GIB, &set, of), (1024, Some(7 << 10), String::new()));
        let queued = ServerLimits { queued: Size(GIB), ..ServerLimits::default() };
        assert_eq!(
            limits(4 * GIB, &set[..1], queued),
            (1024, Some(2048), "three quarters of 4 GiB, less limits.queued".to_owned())
        );
        // If `limits.queued` takes all memory, states still get a quarter.
        assert_eq!(limits(GIB, &set[..1], queued), (1024, Some(256), "a quarter of 1 GiB".to_owned()));
        let unknown = by_memory(&ServerLimits::default(), &BTreeMap::new(), None);
        assert_eq!((unknown.limits, unknown.sources.len()), (ServerLimits::default(), 0));
    }
}
