//! Serves the models of OVMS's command line, and accepts the command lines of other servers if the program is called by their names.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::Failed;
use crate::config::ovms::OvmsCommand;
use crate::config::ovms::refresh::{OvmsModels, OvmsRepository, RefreshError};
use crate::config::server::GivenFlags;
use crate::error::SourceFault;
use crate::model::{RepositorySource, TemporaryFolder};

/// The models of OVMS's files, as the loader follows them.
#[derive(Debug)]
struct OvmsSource(OvmsRepository);

impl RepositorySource for OvmsSource {
    fn refresh(&self) -> Result<(), SourceFault> {
        let refreshed = self.0.refresh();
        for notice in self.0.take_notices() {
            tracing::warn!("{notice}");
        }
        refreshed.map_err(|error| match error {
            RefreshError::Unreadable(why) => SourceFault::Unreadable(why),
            RefreshError::Invalid(why) => SourceFault::Invalid(why.join("; ")),
            RefreshError::Models(refused) => SourceFault::Models(refused),
        })
    }

    fn original(&self, path: &Path) -> Option<PathBuf> {
        self.0.original(path)
    }
}

/// The temporary folder of a repository, and the source that it follows. The folder is removed on drop.
pub(super) type FollowedFolder = (TemporaryFolder, Arc<dyn RepositorySource>);

/// Adds the flags of OVMS to our own. The models become a repository that follows their changes, as OVMS does.
pub(super) fn repository(matches: &ArgMatches, given: &mut GivenFlags) -> Result<Option<FollowedFolder>, Failed> {
    let lines = |wrong: Vec<String>| Failed::Configuration(wrong.join("\nsequor: "));
    let read = |path: &Path| fs_err::read_to_string(path);
    let Some(command) = OvmsCommand::from_matches(matches, &read).map_err(lines)? else { return Ok(None) };
    let OvmsCommand { models, poll_seconds, scan_minutes, settings, notices } = command;
    given.notices.extend(notices);
    for (key, flag, value) in settings {
        given.set(key, flag, value);
    }
    let Some(models) = models else { return Ok(None) };
    let failed = |error: std::io::Error| Failed::Failed(format!("no folder for the models: {error}"));
    let folder = TemporaryFolder::new(TemporaryFolder::MODELS).map_err(failed)?;
    let is_file = matches!(models, OvmsModels::File(_));
    let repository = OvmsRepository::new(folder.path(), models, scan_minutes);
    match repository.refresh() {
        Ok(()) => {}
        // As in OVMS, one invalid model of a file does not stop the start. The load shows it as refused.
        Err(RefreshError::Models(_)) if is_file => {}
        Err(RefreshError::Models(refused)) => return Err(lines(refused.iter().map(ToString::to_string).collect())),
        Err(RefreshError::Unreadable(why)) => return Err(Failed::Configuration(why)),
        Err(RefreshError::Invalid(why)) => return Err(lines(why)),
    }
    // The log does not run yet.
    given.notices.extend(repository.take_notices().iter().map(ToString::to_string));
    let flag = || "--config_path".to_owned();
    given.set("model.repository", flag(), folder.path().display().to_string());
    let is_given = |flag: &str| matches.value_source(flag) == Some(ValueSource::CommandLine);
    if poll_seconds > 0 && !is_given("model-control-mode") {
        given.set("model.control_mode", flag(), "poll".to_owned());
        if !is_given("model-poll") {
            given.set("model.poll", flag(), format!("{poll_seconds}s"));
        }
    }
    Ok(Some((folder, Arc::new(OvmsSource(repository)))))
}

/// A server whose name the program may be called by, through a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerName {
    Triton,
    Ovms,
}

impl ServerName {
    /// The server that matches the name of the program's path.
    pub(super) fn from_program(program: &Path) -> Option<ServerName> {
        match program.file_name().and_then(OsStr::to_str) {
            Some("tritonserver") => Some(ServerName::Triton),
            Some("ovms") => Some(ServerName::Ovms),
            _ => None,
        }
    }
}

/// Converts the arguments to those of `sequor`. If the program is called by another server's name, it accepts that server's command line,
/// with that server's default ports.
pub(super) fn called_as(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let Some(server) = arguments.first().and_then(|program| ServerName::from_program(program.as_ref())) else {
        return arguments;
    };
    let version = OsString::from("--version");
    if arguments.contains(&version) {
        arguments.truncate(1);
        arguments.push(version);
        return arguments;
    }
    let is_given = |flag: &str| {
        let with_value = format!("{flag}=");
        arguments.iter().filter_map(|given| given.to_str()).any(|given| given == flag || given.starts_with(&with_value))
    };
    let more: Vec<&str> = match server {
        ServerName::Triton => vec!["serve"],
        ServerName::Ovms => {
            let port = Some("--port=9178").filter(|_| !is_given("--port") && !is_given("--grpc-port"));
            let rest = Some("--allow-http=false").filter(|_| !is_given("--rest_port") && !is_given("--http-port"));
            let metrics = Some("--allow-metrics=false").filter(|_| !is_given("--metrics_enable"));
            std::iter::once("serve").chain(port).chain(rest).chain(metrics).collect()
        }
    };
    arguments.splice(1..1, more.into_iter().map(OsString::from));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_the_command_line_of_the_server_it_is_named_after() {
        let called = |line: &str| {
            let words = called_as(line.split(' ').map(OsString::from));
            words.iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(called("/usr/bin/sequor serve"), "/usr/bin/sequor serve");
        assert_eq!(called("sequor --version"), "sequor --version");
        assert_eq!(called("bin/tritonserver --version"), "bin/tritonserver --version");
        assert_eq!(called("ovms --port 9000 --version"), "ovms --version");
        assert_eq!(called("bin/tritonserver --http-port 80"), "bin/tritonserver serve --http-port 80");
        let ovms = "ovms serve --port=9178 --allow-http=false --allow-metrics=false --config_path c.json";
        assert_eq!(called("ovms --config_path c.json"), ovms);
        let ports = "ovms serve --allow-metrics=false --port 9000 --rest_port=5555";
        assert_eq!(called("ovms --port 9000 --rest_port=5555"), ports);
        let free = "ovms serve --allow-metrics=false --grpc-port=0 --http-port=0";
        assert_eq!(called("ovms --grpc-port=0 --http-port=0"), free);
    }
}
