//! Watches the plug-in folder. The system reports changes if it can. In any case the files are checked from time to time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

/// A file counts as written once no change has come for this long.
const QUIET: Duration = Duration::from_millis(200);
/// Time between two checks, if the system reports changes and if it does not.
const REPORTED: Duration = Duration::from_secs(5);
const UNREPORTED: Duration = Duration::from_secs(1);

/// Calls `look` after changes and from time to time, on its own thread, until it returns false.
pub fn watch(folder: PathBuf, look: impl Fn() -> bool + Send + 'static) -> std::io::Result<()> {
    let run = move || {
        // Kept, so that a wait without a watcher does not end at once.
        let (sender, changes) = sync_channel(1);
        let watcher = watcher(&folder, sender.clone());
        let pause = if watcher.is_some() { REPORTED } else { UNREPORTED };
        while wait(&changes, pause) && look() {}
        drop((sender, watcher));
    };
    std::thread::Builder::new().name("sequor-plugins".to_owned()).spawn(run).map(drop)
}

/// Reports changes of a folder; `None` if the system does not.
fn watcher(folder: &Path, sender: SyncSender<()>) -> Option<RecommendedWatcher> {
    let made = notify::recommended_watcher(move |_| {
        // A waiting report covers all changes. The receiver may be gone.
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

/// Waits until a file has changed and changes have stopped, or for this long. False if there will be no more reports.
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
