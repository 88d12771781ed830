//! The operations of the admin listener, over HTTP: plug-ins, models, sequences, status, drain. The server checks the caller's rights, and
//! puts the [`Caller`] into the context of every request.
//!
//! # Layout
//!
//! - `plugins`, `models`, `sequences` (`sequence_list`: the list; `why`: the explanation of one): the operations, independent of a protocol · `refused`: their refusals.
//! - [`config`]: the settings in force, and their reload.
//! - [`status`]: the current status, as data; `rates`: counts per second · `page`: the status as HTML.
//! - `routes`: the table of paths · `http`: their handlers · `openapi`: the document that describes them, with the schemas in `schemas.json`.

pub mod config;
mod http;
mod models;
mod openapi;
mod page;
mod plugins;
mod rates;
mod refused;
mod routes;
mod sequence_list;
mod sequences;
pub mod status;
mod why;

use std::future::Future;
use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::{Notify, Semaphore};

pub use config::{AdminRights, ConfigControl};
pub use routes::routes;

use self::config::ReloadReport;
pub use super::Caller;
use super::audit::Changes;
use super::{Api, Status, control};
use crate::config::server::Shown;
use crate::scheduling::report::PluginControl;

/// Maximum bytes of a component. The largest components that language tool chains make have a third of it.
pub const LARGEST_COMPONENT: usize = 128 << 20;

/// The settings of the admin listener.
#[derive(Debug, Clone, Default)]
pub struct AdminSetup {
    /// Access to plug-ins. Without it, operations on plug-ins are refused.
    pub plugins: Option<Arc<dyn PluginControl>>,
    /// The folder in which `from` looks for components.
    pub plugins_dir: Option<PathBuf>,
    /// Whether clients may upload components.
    pub upload: bool,
    /// Whether ids that are texts, and states of sequences, are shown.
    pub peek: bool,
    /// Maximum bytes of a capture; 0 disables captures.
    pub capture: u64,
    pub node: String,
    /// The library that runs the models, with its version.
    pub runtime: String,
    /// The settings with which the server was started.
    pub settings: Vec<Shown>,
}

/// The shared state of the admin handlers. Cheap to clone; all clones share it.
#[derive(Debug, Clone)]
pub struct Admin(Arc<AdminState>);

#[derive(Debug)]
struct AdminState {
    api: Api,
    options: AdminSetup,
    rights: Arc<AdminRights>,
    /// The settings of the server, if it can read them again.
    config: OnceLock<Arc<dyn ConfigControl>>,
    began: Instant,
    drain: Arc<Notify>,
    rates: rates::Rates,
    /// Key of the hashes of ids. It prevents finding an id by hashing all possible ids.
    ids: RandomState,
    /// Held during a capture, so that only one runs at a time.
    capturing: Arc<Semaphore>,
}

impl Admin {
    /// `drain` is notified when an operator drains the server.
    pub fn new(api: &Api, options: AdminSetup, drain: Arc<Notify>) -> Admin {
        let (began, ids, rates) = (Instant::now(), RandomState::new(), rates::Rates::default());
        let capturing = Arc::new(Semaphore::new(1));
        let rights = Arc::new(AdminRights::new(options.upload, options.peek, options.capture));
        let (api, config) = (api.clone(), OnceLock::new());
        Admin(Arc::new(AdminState { api, options, rights, config, began, drain, rates, ids, capturing }))
    }

    pub fn api(&self) -> &Api {
        &self.0.api
    }

    /// What operators may see and send. All holders share it.
    pub fn rights(&self) -> &Arc<AdminRights> {
        &self.0.rights
    }

    /// Sets the control of the settings. Must be called once, before any request.
    pub fn configure(&self, config: Arc<dyn ConfigControl>) {
        let _ = self.0.config.set(config);
    }

    /// The settings in force.
    fn settings(&self) -> Vec<Shown> {
        let running = self.0.config.get().map(|config| config.running());
        running.unwrap_or_else(|| self.options().settings.clone())
    }

    async fn reload(&self, caller: &Caller) -> Result<ReloadReport, Status> {
        let Some(config) = self.0.config.get() else {
            return Err(Status::unimplemented("this server was started without settings that could be read again"));
        };
        config.reload(caller).await.map_err(|refusal| config::status(&refusal))
    }

    fn options(&self) -> &AdminSetup {
        &self.0.options
    }

    fn capturing(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.capturing)
    }

    fn changes(&self) -> &Changes {
        self.api().changes()
    }

    /// Makes a change and writes its audit line, even if the client no longer waits.
    async fn run_change<T, F>(&self, caller: &Caller, change: impl FnOnce(Admin, Caller) -> F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        control::to_its_end(change(self.clone(), caller.clone())).await
    }

    /// Drains the server, as SIGTERM does.
    fn drain(&self, caller: &Caller) {
        self.changes().note(caller, "drain", "server", Ok(()));
        self.0.drain.notify_one();
    }
}
