//! The signals with which a server ends its connections, and the count of open ones.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shutdown {
    /// Open listeners and connections.
    pub(super) connections: TaskTracker,
    /// Accept no new connections. Existing ones end once their requests are answered.
    pub(super) closing: CancellationToken,
    /// Cut all connections at once.
    pub(super) cut: CancellationToken,
}
