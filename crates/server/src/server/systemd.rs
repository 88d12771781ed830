//! Reports to systemd that the server is ready and that it stops (`Type=notify`). Without `NOTIFY_SOCKET` it sends nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use sd_notify::NotifyState;

/// Whether systemd was told that the server is ready, and not yet that it stops.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Reports that the models are loaded and the listeners answer.
pub fn ready() {
    IS_READY.store(true, Ordering::Relaxed);
    report(&[NotifyState::Ready]);
}

/// Reports that the configuration is being reloaded, and when the result is dropped, that this has ended. With `Type=notify`, `systemctl
/// reload` then waits for the end. A server that still starts or already stops reports nothing: its end of a reload would count as the end of
/// its start.
pub(super) fn reloading() -> Option<ReloadReported> {
    if !IS_READY.load(Ordering::Relaxed) {
        return None;
    }
    let now = NotifyState::monotonic_usec_now().ok();
    report(&std::iter::once(NotifyState::Reloading).chain(now).collect::<Vec<_>>());
    Some(ReloadReported)
}

/// A reload that systemd was told of.
#[derive(Debug)]
pub(super) struct ReloadReported;

impl Drop for ReloadReported {
    fn drop(&mut self) {
        if IS_READY.load(Ordering::Relaxed) {
            report(&[NotifyState::Ready]);
        }
    }
}

/// Reports that the server has begun to stop.
pub(super) fn stopping() {
    IS_READY.store(false, Ordering::Relaxed);
    report(&[NotifyState::Stopping]);
}

fn report(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "systemd was not notified; it may restart this server");
    }
}
