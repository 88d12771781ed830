//! The settings of a server, from its file, the environment and flags: at the start, and again at a reload.

use std::path::PathBuf;

use super::{Failed, host, launch, variable};
use crate::config::Fault;
use crate::config::server::{self, Connections, Drain, GivenFlags, HostInfo, Reloaded, Settings, Shown};
use crate::server::SettingsSource;
use crate::server::descriptors::Descriptors;

/// The file, the environment and the flags that the process began with.
#[derive(Debug)]
pub(super) struct ProcessSettings {
    given: GivenFlags,
    host: HostInfo,
    descriptors: Descriptors,
}

impl ProcessSettings {
    pub(super) fn new(given: &GivenFlags) -> ProcessSettings {
        ProcessSettings { given: given.clone(), host: host::info(), descriptors: Descriptors::raise() }
    }

    /// The same, before the sockets and other files of the server are open.
    pub(super) fn before_start(given: &GivenFlags) -> ProcessSettings {
        let before = ProcessSettings::new(given);
        ProcessSettings { descriptors: before.descriptors.before_start(), ..before }
    }

    /// Refuses to serve if the process may not even open the files for a few connections.
    pub(super) fn check_descriptors(&self, settings: &Settings) -> Result<(), Failed> {
        let too_few = self.descriptors.too_few((&settings.connections, reserving(settings)));
        too_few.map_or(Ok(()), |why| Err(Failed::Configuration(why)))
    }

    /// Lowers the limits of connections to the number of files that the process may open. Warns if settings do not fit each other.
    pub(super) fn fit(&self, mut settings: Settings) -> Settings {
        if let Some(notice) = shortened_drain(settings.drain) {
            tracing::warn!("{notice}");
        }
        settings.connections = fitted(self.descriptors, settings.connections, reserving(&settings));
        settings
    }
}

impl SettingsSource for ProcessSettings {
    fn read(&self, running: &Settings) -> Result<Reloaded, String> {
        let (path, text) = file(&self.given)?.unzip();
        let file = path.as_deref().zip(text.as_deref());
        let reloaded = server::reload(file, &variable, &self.given, &self.host, running);
        let reloaded = reloaded.map_err(|faults| lines(&faults).join("\n"))?;
        Ok(Reloaded { settings: self.fit(reloaded.settings), ..reloaded })
    }

    fn shown(&self, settings: &Settings) -> Vec<Shown> {
        launch::shown(settings)
    }
}

/// The number of listeners that have `connections.reserved` of their own.
fn reserving(settings: &Settings) -> usize {
    [settings.admin.enabled, settings.metrics.enabled].into_iter().filter(|is_on| *is_on).count()
}

/// Lowers the limits of connections to what the descriptors allow, with a warning.
fn fitted(descriptors: Descriptors, wanted: Connections, reserving: usize) -> Connections {
    let (fitted, lowered) = descriptors.fit(wanted, reserving);
    if lowered {
        let (limit, needed) = (descriptors.limit, descriptors.needed((&wanted, reserving), wanted.max));
        let (max, per_peer) = (fitted.max, fitted.per_peer);
        tracing::warn!(
            limit,
            needed,
            max,
            per_peer,
            "connections.max is lowered: the process may not open enough files (ulimit -n)"
        );
    }
    fitted
}

/// Loads the settings from file, environment and flags.
pub(super) fn load(given: &GivenFlags) -> Result<Settings, Failed> {
    let (path, text) = file(given).map_err(Failed::Configuration)?.unzip();
    let file = path.as_deref().zip(text.as_deref());
    let wrong = |faults: Vec<Fault>| Failed::Configuration(lines(&faults).join("\nsequor: "));
    server::load(file, &variable, given, &host::info()).map_err(wrong)
}

/// Loads the settings, with a line for each fault. Values with a fault are left out.
pub(super) fn load_all(given: &GivenFlags) -> Result<(Settings, Vec<String>), Failed> {
    let (path, text) = file(given).map_err(Failed::Configuration)?.unzip();
    let file = path.as_deref().zip(text.as_deref());
    let (settings, faults) = server::load_all(file, &variable, given, &host::info());
    Ok((settings, lines(&faults)))
}

/// The settings file and its text, if one is named.
fn file(given: &GivenFlags) -> Result<Option<(PathBuf, String)>, String> {
    let Some(path) = server::config_path(&variable, given) else { return Ok(None) };
    let text = fs_err::read_to_string(&path).map_err(|e| e.to_string())?;
    Ok(Some((path, text)))
}

fn lines(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(|f| format!("{} {}", f.at, f.what)).collect()
}

/// Why live sequences get less time at a stop than `drain.finish`.
fn shortened_drain(drain: Drain) -> Option<String> {
    let (needed, limit) = (drain.announce.0.saturating_add(drain.finish.0), drain.exit_timeout.0);
    let (announce, finish, exit) = (drain.announce, drain.finish, drain.exit_timeout);
    (needed > limit).then(|| {
        format!(
            "live sequences get less time than drain.finish: drain.exit_timeout ({exit}) ends a drain before drain.announce \
             ({announce}) and drain.finish ({finish}) are over"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::units::Span;

    #[test]
    fn the_limits_of_connections_are_shown_as_they_are_in_force() {
        let host = HostInfo { name: "here".to_owned(), memory: None };
        let settings = server::load(None, &|_| None, &GivenFlags::default(), &host).unwrap();
        let descriptors = Descriptors { limit: 400, open: 10, starting: 0 };
        let source = ProcessSettings { given: GivenFlags::default(), host, descriptors };
        let settings = source.fit(settings);
        let shown = source.shown(&settings);
        let row = shown.iter().find(|row| row.key == "connections.max").unwrap();
        assert!(settings.connections.max < 400);
        assert_eq!(row.value, settings.connections.max.to_string());
        assert_eq!(row.origin, "default, lowered by ulimit -n");
    }

    #[test]
    fn a_drain_longer_than_exit_timeout_is_reported() {
        let drain = |announce, finish, exit| {
            let [announce, finish, exit_timeout] =
                [announce, finish, exit].map(|seconds| Span(Duration::from_secs(seconds)));
            shortened_drain(Drain { announce, finish, exit_timeout })
        };
        assert_eq!(drain(5, 25, 30), None);
        let text = drain(5, 600, 30).unwrap_or_default();
        assert!(
            text.contains("drain.exit_timeout (30s) ends a drain before drain.announce (5s) and drain.finish ("),
            "{text}"
        );
    }
}
