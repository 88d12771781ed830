//! File descriptors: the process raises its limit, and connections leave some of them free.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::server::Connections;

/// Descriptors reserved for other files: models, settings, plug-ins.
const FILES: usize = 64;
/// Descriptors that a start opens between its first check and its last: sockets, the runtime, ONNX Runtime, the store of sequences.
const START: usize = 32;
/// Connections of clients without which a server is of no use. Probes and operators need some of them.
const LEAST_CLIENTS: usize = 8;

/// The descriptors of the process before it has connections.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors {
    /// Number of files that the process may open.
    pub limit: usize,
    pub open: usize,
    /// Number of files that the start of the server is still to open.
    pub starting: usize,
}

impl Descriptors {
    /// Raises the limit to the maximum that the system allows. Counts the open descriptors in /proc.
    pub fn raise() -> Descriptors {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let limit = if raised.is_ok() { maximum } else { current };
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Descriptors { limit, open: fs_err::read_dir("/proc/self/fd").map_or(0, Iterator::count), starting: 0 }
    }

    /// These, for a process that has not opened its sockets yet.
    #[must_use]
    pub fn before_start(self) -> Descriptors {
        Descriptors { starting: START, ..self }
    }

    /// The descriptors that the server needs with this many connections of clients. `reserving`: number of listeners that have
    /// `connections.reserved` of their own, those for metrics and operators.
    pub fn needed(self, (connections, reserving): (&Connections, usize), clients: usize) -> usize {
        let reserved = connections.reserved.saturating_mul(reserving);
        [self.starting, FILES, reserved, clients].into_iter().fold(self.open, usize::saturating_add)
    }

    /// Why the server cannot work with these descriptors. `None` if it can, perhaps with fewer connections.
    pub fn too_few(self, (connections, reserving): (&Connections, usize)) -> Option<String> {
        let (Descriptors { limit, open, starting }, Connections { max, reserved, .. }) = (self, connections);
        let clients = (*max).min(LEAST_CLIENTS);
        let needed = |clients| self.needed((connections, reserving), clients);
        let (least, all, files) = (needed(clients), needed(*max), FILES.saturating_add(starting));
        (limit < least).then(|| {
            format!(
                "this process may open {limit} files (ulimit -n), and needs at least {least}: {open} are open, {files} are for \
                 the server itself, models and plug-ins, {} for operators and metrics (connections.reserved = {reserved} for each \
                 of these listeners), {clients} for clients. Raise the limit, best to {all}, which connections.max = {max} needs",
                reserved.saturating_mul(reserving)
            )
        })
    }

    /// Lowers `max` to leave descriptors for files and for the admin and metrics listeners. Also returns whether it did.
    #[must_use]
    pub fn fit(self, connections: Connections, reserving: usize) -> (Connections, bool) {
        let free = self.limit.saturating_sub(self.needed((&connections, reserving), 0)).max(1);
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
        Descriptors { limit, open: 50, starting: 0 }
    }

    #[test]
    fn connections_leave_descriptors_for_operators() {
        let options = Connections { max: 1000, per_peer: 900, reserved: 10, ..Connections::default() };
        let (fitted, lowered) = of(5000).fit(options, 2);
        assert_eq!((fitted, lowered), (options, false));
        let (fitted, lowered) = of(300).fit(options, 2);
        assert_eq!((fitted.max, fitted.per_peer, lowered), (300 - 50 - FILES - 20, 83, true));
        assert_eq!(of(10).fit(options, 2).0.max, 1);
        let (without_metrics, _) = of(300).fit(options, 1);
        assert_eq!(without_metrics.max, fitted.max + 10);
    }

    #[test]
    fn a_limit_under_which_nothing_works_is_reported_with_its_figures() {
        let options = Connections { max: 1000, reserved: 10, ..Connections::default() };
        let least = 50 + FILES + 20 + LEAST_CLIENTS;
        assert_eq!(of(least).too_few((&options, 2)), None);
        assert!(of(least - 10).too_few((&options, 2)).is_some());
        assert_eq!(of(least - 10).too_few((&options, 1)), None, "a listener that is off needs none");
        // What the start opens is needed before it is open.
        assert!(of(least + START - 1).before_start().too_few((&options, 2)).is_some());
        assert_eq!(of(least + START).before_start().too_few((&options, 2)), None);
        let why = of(least - 1).too_few((&options, 2)).unwrap_or_default();
        assert!(
            why.starts_with("this process may open 141 files (ulimit -n), and needs at least 142: 50 are open"),
            "{why}"
        );
        assert!(why.ends_with("best to 1134, which connections.max = 1000 needs"), "{why}");
        let small = Connections { max: 2, ..options };
        assert_eq!(of(50 + FILES + 20 + 2).too_few((&small, 2)), None);
    }
}
