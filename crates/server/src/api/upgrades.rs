//! Upgraded connections, which no longer use HTTP. They outlive the connection's task. When the server stops, it waits for them or cuts
//! them.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::message_meter::MessageMeter;

/// The server's handles for an upgraded connection. The server adds them to every request for an upgrade.
#[derive(Debug, Clone)]
pub struct Upgrades {
    /// Tracks the connections that the server waits for.
    pub open: TaskTracker,
    /// Cuts the connections at once.
    pub cut: CancellationToken,
    /// How long the client may be silent before it gets a ping. Zero means for ever.
    pub keepalive: Duration,
    /// Counts the incomplete message of the client.
    pub(crate) meter: MessageMeter,
    /// Counts the connection while it is open.
    pub permit: Arc<dyn Any + Send + Sync>,
}

impl Upgrades {
    /// Runs the task of an upgraded connection until it ends or is cut.
    pub async fn run(self, task: impl Future<Output = ()>) {
        let Upgrades { cut, permit: _permit, .. } = self;
        let until_cut = async {
            tokio::select! {
                () = task => {}
                () = cut.cancelled() => {}
            }
        };
        self.open.track_future(until_cut).await;
    }
}
