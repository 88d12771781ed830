//! File descriptors: the process raises its limit, and connections leave some of them free.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::server::Connections;

/// Descriptors reserved for other files: models, settings, plug-ins.
const FILES: usize = 64;
/// Connections of clients without which a server is of no use. Probes and operators need some of them.
const LEAST_CLIENTS: usize = 8;

/// The descriptors of the process before it has connections.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors {
    /// Number of files that the process may open.
    pub limit: usize,
    pub open: usize,
}

impl Descriptors {
    /// Raises the limit to the maximum that the system allows. Counts the open descriptors in /proc.
    pub fn raise() -> Descriptors {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let limit = if raised.is_ok() { maximum } else { current };
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Descriptors { limit, open: fs_err::read_dir("/proc/self/fd").map_or(0, Iterator::count) }
    }

    /// The descriptors that the server needs with this many connections of clients.
    pub fn needed(self, connections: &Connections, clients: usize) -> usize {
        let others = self.open.saturating_add(FILES).saturating_add(connections.reserved.saturating_mul(2));
        others.saturating_add(clients)
    }

    /// Why the server cannot work with these descriptors. `None` if it can, perhaps with fewer connections.
    pub fn too_few(self, connections: &Connections) -> Option<String> {
        let (Descriptors { limit, open }, Connections { max, reserved, .. }) = (self, connections);
        let clients = (*max).min(LEAST_CLIENTS);
        let (least, all) = (self.needed(connections, clients), self.needed(connections, *max));
        (limit < least).then(|| {
            format!(
                "this process may open {limit} files (ulimit -n), and needs at least {least}: {open} are open, {FILES} are for \
                 models and plug-ins, {reserved} each for the admin and the metrics listener (connections.reserved), {clients} \
                 for clients. Raise the limit, best to {all}, which connections.max = {max} needs"
            )
        })
    }

    /// Lowers `max` to leave descriptors for files and for the admin and metrics listeners. Also returns whether it did.
    #[must_use]
    pub fn fit(self, connections: Connections) -> (Connections, bool) {
        let free = self.limit.saturating_sub(self.needed(&connections, 0)).max(1);
        let max = connections.max.min(free);
        let lowered = max < connections.max;
        // One peer must not use all of them.
        let per_peer = if lowered { connections.per_peer.min(max / 2).max(1) } else { connections.per_peer };
        (Connections { max, per_peer, ..connections }, lowered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: usize) -> Descriptors {
        Descriptors { limit, open: 50 }
    }

    #[test]
    fn connections_leave_descriptors_for_operators() {
        let options = Connections { max: 1000, per_peer: 900, reserved: 10, ..Connections::default() };
        let (fitted, lowered) = of(5000).fit(options);
        assert_eq!((fitted, lowered), (options, false));
        let (fitted, lowered) = of(300).fit(options);
        assert_eq!((fitted.max, fitted.per_peer, lowered), (300 - 50 - FILES - 20, 83, true));
        assert_eq!(of(10).fit(options).0.max, 1);
    }

    #[test]
    fn a_limit_under_which_nothing_works_is_reported_with_its_figures() {
        let options = Connections { max: 1000, reserved: 10, ..Connections::default() };
        let least = 50 + FILES + 20 + LEAST_CLIENTS;
        assert_eq!(of(least).too_few(&options), None);
        let why = of(least - 1).too_few(&options).unwrap_or_default();
        assert!(
            why.starts_with("this process may open 141 files (ulimit -n), and needs at least 142: 50 are open"),
            "{why}"
        );
        assert!(why.ends_with("best to 1134, which connections.max = 1000 needs"), "{why}");
        let small = Connections { max: 2, ..options };
        assert_eq!(of(50 + FILES + 20 + 2).too_few(&small), None);
    }
}
