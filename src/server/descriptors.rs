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

/// Connections of clients without which a server is of no use. Probes and operators need some of them.
const LEAST_CLIENTS: usize = 8;

impl Connections {
    /// The descriptors that the server needs with this many connections of clients, if so many are open for other things.
    pub fn descriptors(&self, clients: usize, open: usize) -> usize {
        let others = open.saturating_add(FILES).saturating_add(self.reserved.saturating_mul(2));
        others.saturating_add(clients)
    }

    /// Why the server cannot work with this many descriptors. `None` if it can, perhaps with fewer connections.
    pub fn too_few(&self, descriptors: usize, open: usize) -> Option<String> {
        let clients = self.max.min(LEAST_CLIENTS);
        let (least, all) = (self.descriptors(clients, open), self.descriptors(self.max, open));
        let Connections { max, reserved, .. } = self;
        (descriptors < least).then(|| {
            format!(
                "this process may open {descriptors} files (ulimit -n), and needs at least {least}: {open} are open, {FILES} are for \
                 models and plug-ins, {reserved} each for the admin and the metrics listener (connections.reserved), {clients} \
                 for clients. Raise the limit, best to {all}, which connections.max = {max} needs"
            )
        })
    }

    /// Lowers `max` to leave descriptors for files and for the admin and metrics listeners. Also returns whether it did.
    #[must_use]
    pub fn fit(self, descriptors: usize, open: usize) -> (Connections, bool) {
        let free = descriptors.saturating_sub(self.descriptors(0, open)).max(1);
        let max = self.max.min(free);
        // One peer must not use all of them.
        let per_peer = if max < self.max { self.per_peer.min(max / 2).max(1) } else { self.per_peer };
        (Connections { max, per_peer, ..self }, max < self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_operators() {
        let options = Connections { max: 1000, per_peer: 900, reserved: 10, ..Connections::default() };
        let (fitted, lowered) = options.fit(5000, 50);
        assert_eq!((fitted, lowered), (options, false));
        let (fitted, lowered) = options.fit(300, 50);
        assert_eq!((fitted.max, fitted.per_peer, lowered), (300 - 50 - FILES - 20, 83, true));
        assert_eq!(options.fit(10, 50).0.max, 1);
    }

    #[test]
    fn a_limit_under_which_nothing_works_is_reported_with_its_figures() {
        let options = Connections { max: 1000, reserved: 10, ..Connections::default() };
        let least = 50 + FILES + 20 + LEAST_CLIENTS;
        assert_eq!(options.too_few(least, 50), None);
        let why = options.too_few(least - 1, 50).unwrap_or_default();
        assert!(
            why.starts_with("this process may open 141 files (ulimit -n), and needs at least 142: 50 are open"),
            "{why}"
        );
        assert!(why.ends_with("best to 1134, which connections.max = 1000 needs"), "{why}");
        let small = Connections { max: 2, ..options };
        assert_eq!(small.too_few(50 + FILES + 20 + 2, 50), None);
    }
}
