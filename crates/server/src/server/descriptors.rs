//! File descriptors: the process raises its limit, and connections leave some of them free.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::server::Connections;

/// Descriptors reserved for other files: models, settings, plug-ins.
const FILES: usize = 64;

/// Raises the limit of descriptors to the maximum that the system allows, and returns it.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The number of open descriptors, according to /proc.
pub fn open() -> usize {
    fs_err::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Lowers `max` to leave descriptors for files and for the admin and metrics listeners. Also returns whether it did.
#[must_use]
pub fn fit(connections: Connections, descriptors: usize, open: usize) -> (Connections, bool) {
    let others = open.saturating_add(FILES).saturating_add(connections.reserved.saturating_mul(2));
    let free = descriptors.saturating_sub(others).max(1);
    let max = connections.max.min(free);
    // One peer must not use all of them.
    let per_peer = if max < connections.max { connections.per_peer.min(max / 2).max(1) } else { connections.per_peer };
    (Connections { max, per_peer, ..connections }, max < connections.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_operators() {
        let options = Connections { max: 1000, per_peer: 900, reserved: 10, ..Connections::default() };
        let (fitted, lowered) = fit(options, 5000, 50);
        assert_eq!((fitted, lowered), (options, false));
        let (fitted, lowered) = fit(options, 300, 50);
        assert_eq!((fitted.max, fitted.per_peer, lowered), (300 - 50 - FILES - 20, 83, true));
        assert_eq!(fit(options, 10, 50).0.max, 1);
    }
}
