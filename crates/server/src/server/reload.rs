//! Reloads the configuration of a running server: at SIGHUP, and when an operator asks. One reload runs at a time; another one waits for it.
//!
//! The settings are read and checked whole before anything changes. So a fault changes nothing.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::checks::Access;
use super::live::LiveServer;
use super::{access, systemd, tls};
use crate::api::Caller;
use crate::api::admin::ConfigControl;
use crate::api::admin::config::{self, PendingSetting, Reload, ReloadRefusal, ReloadReport};
use crate::config::server::{Reloaded, Settings, Shown};
use crate::config::units::Span;
use crate::telemetry::{ReloadMetrics, log};

/// The name of the caller in audit lines when a signal asks for a reload.
const SIGHUP: &str = "SIGHUP";
/// The key of the log's level.
const LOG_LEVEL: &str = "log.level";
/// Maximum time to read the settings and the files that they name. A file may be a pipe or on a server that is gone.
const READ: Duration = Duration::from_secs(30);

/// Where the settings come from.
pub trait SettingsSource: fmt::Debug + Send + Sync {
    /// Reads the settings again over the running ones. The error has one line per fault.
    fn read(&self, running: &Settings) -> Result<Reloaded, String>;

    /// The settings for operators.
    fn shown(&self, settings: &Settings) -> Vec<Shown>;
}

/// The settings of a server, and where they come from.
#[derive(Debug, Clone)]
pub struct ReloadOptions {
    pub running: Settings,
    pub source: Arc<dyn SettingsSource>,
}

/// Reloads the configuration of one server.
#[derive(Debug)]
pub struct ConfigReloader {
    live: LiveServer,
    source: Arc<dyn SettingsSource>,
    /// Held during a reload.
    running: Mutex<RunningSettings>,
    shown: ArcSwap<Vec<Shown>>,
    metrics: ReloadMetrics,
}

#[derive(Debug)]
struct RunningSettings {
    in_force: Settings,
    /// The thread that reads, or that has read last.
    reading: Option<JoinHandle<ReadSettings>>,
}

/// Settings that were read and checked, with the keys of callers and the values for operators.
type ReadSettings = Result<(Reloaded, Access, Vec<Shown>), String>;

impl ConfigReloader {
    pub(super) fn new(live: LiveServer, options: ReloadOptions) -> ConfigReloader {
        let ReloadOptions { running, source } = options;
        let shown = ArcSwap::from_pointee(source.shown(&running));
        let metrics = live.api().metrics().config();
        let running = RunningSettings { in_force: running, reading: None };
        ConfigReloader { live, source, running: Mutex::new(running), shown, metrics }
    }

    /// Reloads at every SIGHUP, for as long as the process lives.
    pub async fn follow(self: Arc<Self>, mut hangups: Signal) {
        let caller = Caller { name: SIGHUP.to_owned(), address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        while hangups.recv().await.is_some() {
            // The log and the audit line say why it was refused.
            let _ = self.reload(&caller).await;
        }
    }

    async fn reload_for(&self, caller: &Caller) -> Result<ReloadReport, ReloadRefusal> {
        let mut running = self.running.lock().await;
        let _told = systemd::reloading();
        let outcome = self.try_reload(&mut running).await;
        let on = outcome.as_ref().map(|report| report.changed.join(", ")).unwrap_or_default();
        let refused = outcome.as_ref().err().map(config::status);
        self.live.api().changes().note_whole(caller, "config reload", &on, refused.as_ref().map_or(Ok(()), Err));
        match &outcome {
            Ok(report) => self.metrics.applied(report.pending.len()),
            Err(_) => self.metrics.refused(),
        }
        outcome
    }

    async fn try_reload(&self, running: &mut RunningSettings) -> Result<ReloadReport, ReloadRefusal> {
        if self.live.is_draining() {
            return Err(ReloadRefusal::Draining);
        }
        let (Reloaded { settings, mut changed, pending }, access, shown) = self.read(running, READ).await?;
        // A drain that has begun meanwhile has its settings already.
        if self.live.is_draining() {
            return Err(ReloadRefusal::Draining);
        }
        self.live.apply(&settings, &access);
        self.shown.store(Arc::new(with_pending(shown, &pending)));
        running.in_force = settings;
        if log::is_overridden() && changed.contains(&LOG_LEVEL) {
            tracing::warn!("log.level has changed without an effect: the variable RUST_LOG is set");
            changed.retain(|key| *key != LOG_LEVEL);
        }
        let pending: Vec<_> =
            pending.into_iter().map(|Shown { key, value, .. }| PendingSetting { key, value }).collect();
        let waiting: Vec<_> = pending.iter().map(|setting| setting.key).collect();
        tracing::info!(
            changed = changed.join(", "),
            pending_restart = waiting.join(", "),
            "the configuration was reloaded"
        );
        Ok(ReloadReport { changed, pending })
    }

    /// Reads and checks the settings on another thread.
    async fn read(
        &self,
        running: &mut RunningSettings,
        limit: Duration,
    ) -> Result<(Reloaded, Access, Vec<Shown>), ReloadRefusal> {
        // An earlier reload may still be reading, because it took too long or its client hung up. So at most one thread hangs.
        if let Some(last) = running.reading.as_mut().filter(|last| !last.is_finished()) {
            let _ = within(last, limit).await?;
        }
        let (source, before) = (Arc::clone(&self.source), running.in_force.clone());
        let reading = running.reading.insert(spawn_blocking(move || {
            let reloaded = source.read(&before)?;
            let access = checked(&reloaded.settings)?;
            let shown = source.shown(&reloaded.settings);
            Ok((reloaded, access, shown))
        }));
        within(reading, limit).await?.map_err(ReloadRefusal::Invalid)
    }
}

/// What the thread has read.
async fn within(reading: &mut JoinHandle<ReadSettings>, limit: Duration) -> Result<ReadSettings, ReloadRefusal> {
    let too_long = |_| {
        let limit = Span(limit);
        ReloadRefusal::Failed(format!("the settings and the files of keys that they name were not read within {limit}"))
    };
    let read = timeout(limit, reading).await.map_err(too_long)?;
    read.map_err(|error| ReloadRefusal::Failed(error.to_string()))
}

impl ConfigControl for ConfigReloader {
    fn reload<'r>(&'r self, caller: &'r Caller) -> Reload<'r> {
        Box::pin(self.reload_for(caller))
    }

    fn running(&self) -> Vec<Shown> {
        self.shown.load().to_vec()
    }
}

/// Checks what a reload applies beyond the values of the settings: the files of keys, and the log level.
fn checked(settings: &Settings) -> Result<Access, String> {
    log::check(&settings.log.level).map_err(|error| fault_at(settings, LOG_LEVEL, &error))?;
    access::open(settings).map_err(|(key, error)| fault_at(settings, key, &format!("{key}: {error}")))
}

/// Checks the same, and returns a line for each fault.
pub fn faults(settings: &Settings) -> Vec<String> {
    let of_level = log::check(&settings.log.level).err().map(|error| fault_at(settings, LOG_LEVEL, &error));
    let of_keys = access::faults(settings).into_iter();
    let of_keys = of_keys.map(|(key, error)| fault_at(settings, key, &format!("{key}: {error}")));
    of_level.into_iter().chain(of_keys).collect()
}

/// Checks the certificates, which a start needs in addition. Returns a line for each fault.
pub fn tls_faults(settings: &Settings) -> Vec<String> {
    let of_tls = settings.tls.iter().flat_map(|tls| tls::faults(&tls.into()));
    of_tls.map(|(key, error)| fault_at(settings, key, &format!("{key}: {error}"))).collect()
}

/// The reasons for clients to refuse the server's certificate, which a start takes. Returns a line for each.
pub fn tls_warnings(settings: &Settings) -> Vec<String> {
    let of_tls = settings.tls.iter().flat_map(|tls| tls::warnings(&tls.into()));
    of_tls.map(|warning| fault_at(settings, "tls.cert", &format!("tls.cert: {warning}"))).collect()
}

/// The fault of a setting, at the place that sets it.
pub fn fault_at(settings: &Settings, key: &str, error: &dyn fmt::Display) -> String {
    match settings.origins.get(key) {
        Some(origin) => format!("{origin}: {error}"),
        None => error.to_string(),
    }
}

/// The signal that asks for a reload. Until this is called, it ends the process.
pub fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

fn with_pending(mut shown: Vec<Shown>, pending: &[Shown]) -> Vec<Shown> {
    for row in &mut shown {
        row.pending = pending.iter().find(|waiting| waiting.key == row.key).map(|waiting| waiting.value.clone());
    }
    shown
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
