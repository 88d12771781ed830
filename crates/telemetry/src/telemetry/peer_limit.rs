//! The limits of one client, as a label.

/// A limit on what one client may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerLimit {
    Sequences,
    InFlight,
    Queued,
}

impl PeerLimit {
    pub const ALL: [PeerLimit; 3] = [PeerLimit::Sequences, PeerLimit::InFlight, PeerLimit::Queued];

    /// The first word of the limit's setting.
    pub const fn name(self) -> &'static str {
        match self {
            PeerLimit::Sequences => "sequences",
            PeerLimit::InFlight => "in_flight",
            PeerLimit::Queued => "queued",
        }
    }
}
