//! Reports to systemd that the server is ready and that it stops (`Type=notify`). Without `NOTIFY_SOCKET` it sends nothing.

use sd_notify::NotifyState;

/// Reports that the models are loaded and the listeners answer.
pub fn ready() {
    report(&NotifyState::Ready);
}

/// Reports that the server has begun to stop.
pub(super) fn stopping() {
    report(&NotifyState::Stopping);
}

fn report(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!(%error, ?state, "systemd was not notified; it may restart this server");
    }
}
