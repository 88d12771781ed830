//! Watches the plug-in folder. The system reports changes where it can. In any case the files are looked at from time to time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

/// A file counts as written once no change has come for this long.
const QUIET: Duration = Duration::from_millis(200);
/// Between two looks, where the system reports changes and where it does not.
const REPORTED: Duration = Duration::from_secs(5);
const UNREPORTED: Duration = Duration::from_secs(1);

/// Calls `look` after changes and from time to time, on a thread of its own, until it returns false.
pub fn watch(folder: PathBuf, look: impl Fn() -> bool + Send + 'static) -> std::io::Result<()> {
    let run = move || {
        // Kept, so that a wait without a watcher is not over at once.
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
        // A report that waits already stands for all. The receiver may be gone.
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

/// Waits until a file has changed and it is quiet again, or for this long. False if there will be no more news.
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
