//! What every connection of a server learns of its end, and how many there still are.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shutdown {
    /// Listeners and connections that still live.
    pub(super) connections: TaskTracker,
    /// No new connections; old ones end when what is on them is answered.
    pub(super) closing: CancellationToken,
    /// Connections end now.
    pub(super) cut: CancellationToken,
}
