//! What operators ask of a running server, over HTTP: plug-ins, models, sequences, status, drain. The server decides who may ask, and
//! names the [`Caller`] in the context of every request.
//!
//! # Layout
//!
//! - `plugins`, `models`, `sequences` (`sequence_list`: those that there are): what is asked, in no protocol's words · `refused`: why it was not done.
//! - [`status`]: what is so now, as data; `rates`: how fast counters count · `page`: the same for people.
//! - `routes`: the table of paths · `http`: their handlers · `openapi`: the document that describes them, with the schemas in `schemas.json`.

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

use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Notify, Semaphore};

pub use routes::routes;

use super::Api;
pub use super::Caller;
use super::audit::Changes;
use crate::config::server::Shown;
use crate::scheduling::report::PluginControl;

/// The most bytes a component may have: the largest that language tool chains make have a third of it.
pub const LARGEST_COMPONENT: usize = 128 << 20;

/// The operators' service.
#[derive(Debug, Clone, Default)]
pub struct AdminSetup {
    /// Without them, calls about plug-ins are refused.
    pub plugins: Option<Arc<dyn PluginControl>>,
    /// Where `from` looks for components.
    pub plugins_dir: Option<PathBuf>,
    /// Whether components may come over the wire.
    pub upload: bool,
    /// Whether texts that clients chose as ids, and states of sequences, are shown.
    pub peek: bool,
    /// Maximum bytes of a captured sequence; 0 captures none.
    pub capture: u64,
    pub node: String,
    /// What runs the models, with its version.
    pub runtime: String,
    /// The settings the server was started with.
    pub settings: Vec<Shown>,
}

/// Everything the admin surface needs. Cheap to clone; all clones are the same server.
#[derive(Debug, Clone)]
pub struct Admin(Arc<AdminState>);

#[derive(Debug)]
struct AdminState {
    api: Api,
    options: AdminSetup,
    began: Instant,
    drain: Arc<Notify>,
    rates: rates::Rates,
    /// Key of the hashes of ids, so that a hash cannot be searched by trying all ids.
    ids: RandomState,
    /// Held while a sequence is captured: one at a time.
    capturing: Arc<Semaphore>,
}

impl Admin {
    /// `drain` is notified when an operator takes the server out of service.
    pub fn new(api: &Api, options: AdminSetup, drain: Arc<Notify>) -> Admin {
        let (began, ids, rates) = (Instant::now(), RandomState::new(), rates::Rates::default());
        let capturing = Arc::new(Semaphore::new(1));
        Admin(Arc::new(AdminState { api: api.clone(), options, began, drain, rates, ids, capturing }))
    }

    pub fn api(&self) -> &Api {
        &self.0.api
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

    /// Takes the server out of service, as a signal would.
    fn drain(&self, caller: &Caller) {
        self.changes().note(caller, "drain", "server", Ok(()));
        self.0.drain.notify_one();
    }
}
