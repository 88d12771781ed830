//! Reasons for which the server closes connections.

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionClosed {
    Max,
    PerPeer,
    FirstByte,
    Head,
    Idle,
    Write,
}

impl ConnectionClosed {
    pub const ALL: [ConnectionClosed; 6] = [
        ConnectionClosed::Max,
        ConnectionClosed::PerPeer,
        ConnectionClosed::FirstByte,
        ConnectionClosed::Head,
        ConnectionClosed::Idle,
        ConnectionClosed::Write,
    ];

    /// The setting under `connections` that caused the close.
    pub const fn name(self) -> &'static str {
        match self {
            ConnectionClosed::Max => "max",
            ConnectionClosed::PerPeer => "per_peer",
            ConnectionClosed::FirstByte => "first_byte",
            ConnectionClosed::Head => "head",
            ConnectionClosed::Idle => "idle",
            ConnectionClosed::Write => "write",
        }
    }
}
