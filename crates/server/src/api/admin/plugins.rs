//! Operations on plug-ins, independent of a protocol. Each change runs on a thread for blocking work, and gets an audit line.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_wasm::journal::LogLine;
use tokio::time::{Instant, sleep};

use super::{Admin, Caller, LARGEST_COMPONENT, refused};
use crate::api::{Code, ServerPhase, Status};
use crate::scheduling::report::{Attach, By, PluginControl, PluginError, Summary};

/// How often a request that follows a log checks for new lines.
const LOOK: Duration = Duration::from_millis(200);

/// The source of a component.
#[derive(Debug, Clone)]
pub(super) enum ComponentSource {
    Bytes(Bytes),
    /// A file of `plugins.dir`.
    File(String),
}

impl Admin {
    fn plugins(&self) -> Result<Arc<dyn PluginControl>, Status> {
        self.options().plugins.clone().ok_or_else(|| Status::unimplemented("this server takes no plug-ins"))
    }

    pub(super) async fn list(&self) -> Result<Vec<Summary>, Status> {
        let plugins = self.plugins()?;
        aside(move || Ok(plugins.list())).await
    }

    pub(super) async fn show(&self, name: String) -> Result<Summary, Status> {
        let plugins = self.plugins()?;
        aside(move || plugins.show(&name)).await
    }

    /// Makes a change, and records the caller and the result.
    async fn change<T: Send + 'static>(
        &self,
        caller: &Caller,
        what: &'static str,
        name: &str,
        work: impl FnOnce(&dyn PluginControl, By<'_>) -> Result<T, PluginError> + Send + 'static,
    ) -> Result<T, Status> {
        let name = name.to_owned();
        self.run_change(caller, |admin, caller| async move {
            let by = caller.name.clone();
            let outcome = match admin.plugins() {
                Ok(plugins) => aside(move || work(&*plugins, By(&by))).await,
                Err(status) => Err(status),
            };
            admin.changes().note(&caller, what, &name, outcome.as_ref().map(|_| ()));
            outcome
        })
        .await
    }

    pub(super) async fn load(&self, caller: &Caller, name: String, source: ComponentSource) -> Result<Summary, Status> {
        let component = self.component(caller, "plugin load", &name, source).await?;
        let plugin = name.clone();
        self.change(caller, "plugin load", &name, move |plugins, by| plugins.load(&plugin, component, by)).await
    }

    pub(super) async fn replace(
        &self,
        caller: &Caller,
        name: String,
        source: ComponentSource,
    ) -> Result<Summary, Status> {
        let component = self.component(caller, "plugin replace", &name, source).await?;
        let plugin = name.clone();
        self.change(caller, "plugin replace", &name, move |plugins, by| plugins.replace(&plugin, component, by)).await
    }

    pub(super) async fn attach(&self, caller: &Caller, how: Attach) -> Result<Summary, Status> {
        let name = how.plugin.clone();
        self.change(caller, "plugin attach", &name, move |plugins, by| plugins.attach(&how, by)).await
    }

    pub(super) async fn detach(&self, caller: &Caller, name: String, model: String) -> Result<Summary, Status> {
        let plugin = name.clone();
        self.change(caller, "plugin detach", &name, move |plugins, by| plugins.detach(&plugin, &model, by)).await
    }

    pub(super) async fn rollback(&self, caller: &Caller, name: String) -> Result<Summary, Status> {
        let plugin = name.clone();
        self.change(caller, "plugin rollback", &name, move |plugins, by| plugins.rollback(&plugin, by)).await
    }

    pub(super) async fn park(&self, caller: &Caller, name: String) -> Result<Summary, Status> {
        let plugin = name.clone();
        self.change(caller, "plugin park", &name, move |plugins, by| plugins.park(&plugin, by)).await
    }

    pub(super) async fn unpark(&self, caller: &Caller, name: String) -> Result<Summary, Status> {
        let plugin = name.clone();
        self.change(caller, "plugin unpark", &name, move |plugins, by| plugins.unpark(&plugin, by)).await
    }

    pub(super) async fn unload(&self, caller: &Caller, name: String) -> Result<(), Status> {
        let plugin = name.clone();
        self.change(caller, "plugin unload", &name, move |plugins, by| plugins.unload(&plugin, by)).await
    }

    /// The lines after this one. If there are none, waits up to `wait` for them.
    pub(super) async fn logs(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<LogLine>, Status> {
        let (plugins, until) = (self.plugins()?, Instant::now() + wait);
        loop {
            let lines = plugins.logs(name, after).map_err(refused::status)?;
            let closing = *self.api().phases().borrow() == ServerPhase::Closing;
            if !lines.is_empty() || closing || Instant::now() >= until {
                return Ok(lines);
            }
            sleep(LOOK).await;
        }
    }

    /// The bytes of a component, if its source is allowed. A refusal is recorded for the change that needs the component.
    async fn component(
        &self,
        caller: &Caller,
        what: &'static str,
        name: &str,
        source: ComponentSource,
    ) -> Result<Vec<u8>, Status> {
        let found = match source {
            ComponentSource::Bytes(_) if !self.rights().upload() => Err(refused::denied(
                "components are not taken over the wire: start the server with --admin-upload ([admin] upload = true), or put \
                 the file into its plugins.dir as NAME.wasm and run `sequor plugin load NAME` (over HTTP: ?from=FILE)",
            )),
            ComponentSource::Bytes(bytes) if bytes.is_empty() => Err(refused::bad_input(
                "there is no component in the request: its bytes are the body, or ?from=FILE names a file of plugins.dir",
            )),
            ComponentSource::Bytes(bytes) => Ok(bytes.into()),
            ComponentSource::File(file) => self.file(file).await,
        };
        found.inspect_err(|status| self.changes().note(caller, what, name, Err(status)))
    }

    async fn file(&self, file: String) -> Result<Vec<u8>, Status> {
        let Some(folder) = &self.options().plugins_dir else {
            return Err(refused::denied(
                "the server has no folder of plug-ins: hand the file over (`--from FILE`; over HTTP as the body), or set \
                 [plugins] dir",
            ));
        };
        if Path::new(&file).file_name() != Some(file.as_ref()) {
            return Err(refused::denied(format!("\"{file}\" is no name of a file in plugins.dir")));
        }
        let path = folder.join(&file);
        let read = move || match fs_err::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(PluginError::Absent(format!(
                "there is no {file} in plugins.dir: put it there, or hand it over (`--from FILE`; over HTTP as the body)"
            ))),
            Err(error) => Err(PluginError::Absent(error.to_string())),
            Ok(file) if file.len() > LARGEST_COMPONENT as u64 => {
                Err(PluginError::Invalid(format!("{} is larger than {LARGEST_COMPONENT} bytes", path.display())))
            }
            Ok(_) => fs_err::read(&path).map_err(|e| PluginError::Absent(e.to_string())),
        };
        aside(read).await
    }
}

/// Runs slow work on a thread for blocking work. It runs to its end, even if the client no longer waits.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, PluginError> + Send + 'static) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(refused::status),
        Err(error) => {
            Err(Status::new(Code::Internal, "internal", format!("the server did not get to its end: {error}")))
        }
    }
}
