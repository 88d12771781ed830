//! File descriptors: the process asks for as many as it may have, and connections leave some of them free.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::server::Connections;

/// Descriptors beside connections: models that load, settings that are read again, plug-ins.
const FILES: usize = 64;

/// Raises the limit of descriptors to what the system allows, and returns it.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The descriptors that are open, as far as /proc tells.
pub fn open() -> usize {
    fs_err::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

impl Connections {
    /// Lowers `max` so that descriptors are left for the operators' and the metrics listener and for files; whether it did.
    #[must_use]
    pub fn fit(self, descriptors: usize, open: usize) -> (Connections, bool) {
        let others = open.saturating_add(FILES).saturating_add(self.reserved.saturating_mul(2));
        let free = descriptors.saturating_sub(others).max(1);
        let max = self.max.min(free);
        // One peer shall not have them all.
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
}
