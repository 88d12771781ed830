//! Connections that became something else than HTTP: they outlive the connection's own task, and the server still waits for them, or cuts
//! them, on its way out.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::message_meter::MessageMeter;

/// The server puts this into every request that asks for an upgrade.
#[derive(Debug, Clone)]
pub struct Upgrades {
    /// Connections the server waits for.
    pub open: TaskTracker,
    /// Connections end now.
    pub cut: CancellationToken,
    /// How long the client may be silent before it is asked for a sign of life; zero is for ever.
    pub keepalive: Duration,
    /// Counts the message that the client is sending.
    pub(crate) meter: MessageMeter,
    /// What counts the connection while it is open.
    pub permit: Arc<dyn Any + Send + Sync>,
}

impl Upgrades {
    /// Runs what an upgraded connection does, so that the server knows of it.
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
