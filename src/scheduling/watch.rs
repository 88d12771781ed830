//! Watches the plug-in folder. A changed file is tried, and then replaces the version that serves. The system reports changes where it can; in any case
//! the files are looked at from time to time.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::registry::Registry;

/// Whoever writes a file has finished once nothing has come for so long.
const QUIET: Duration = Duration::from_millis(200);
/// Between two looks, where the system tells of changes and where it does not.
const TOLD: Duration = Duration::from_secs(5);
const UNTOLD: Duration = Duration::from_secs(1);

impl Registry {
    /// Watches the folder, if there is one, until the registry is gone.
    pub fn watch(&self) -> std::io::Result<()> {
        let Some(folder) = self.rules().dir.clone() else { return Ok(()) };
        let registry = self.downgrade();
        let run = move || {
            // Kept, so that a wait without a watcher is not over at once.
            let (sender, changes) = sync_channel(1);
            let watcher = watcher(&folder, sender.clone());
            let pause = if watcher.is_some() { TOLD } else { UNTOLD };
            while wait(&changes, pause) {
                let Some(registry) = registry.upgrade() else { return };
                registry.look();
            }
            drop((sender, watcher));
        };
        std::thread::Builder::new().name("sequor-plugins".to_owned()).spawn(run).map(drop)
    }
}

/// What the system tells of a folder; without a watcher it tells nothing.
fn watcher(folder: &Path, sender: SyncSender<()>) -> Option<RecommendedWatcher> {
    let made = notify::recommended_watcher(move |_| {
        // One that waits already stands for all; whoever waited for it may be gone.
        let _ = sender.try_send(());
    });
    let watching = made.and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watching
        .inspect_err(|e| tracing::warn!("{}: no news of changes, it is looked at each second: {e}", folder.display()))
        .ok()
}

/// Until something has changed and it is quiet again, or for this long. False if there will be no more news.
fn wait(changes: &Receiver<()>, pause: Duration) -> bool {
    match changes.recv_timeout(pause) {
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) => false,
        Ok(()) => loop {
            match changes.recv_timeout(QUIET) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        },
    }
}
