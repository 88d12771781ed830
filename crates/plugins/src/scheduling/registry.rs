//! The scheduler plug-ins of a server, and all bindings. Their versions are in the registry of the wasm crate. This registry does not know
//! models. Changes run one after the other, and each writes one audit line.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::config::model::LoadFacts;
use crate::sync::Mutex;
use sequor_core::Time;
use sequor_wasm::audit::PluginChange;
use sequor_wasm::changes::{Hashed, NamingFiles, VersionChanges};
use sequor_wasm::journal::LogLine;
use sequor_wasm::limits::Limits;
use sequor_wasm::versions::{FileBefore, FilePrint, MakeVersion, VersionFolders, VersionRegistry, VersionedPlugin};

use super::binding::{BindingOptions, Decider, SchedulerBinding};
use super::guest::Source;
use super::key_interner::KeyInterner;
use super::maintenance::Maintenance;
use super::port::SchedulerPort;
use super::report::{BindingState, By, PluginError, Summary};
use super::scheduler_host::{Alarm as _, Clock};
use super::startup::Ready;
use super::status::BindingServices;
use crate::telemetry::{Metrics, PluginMetrics};

/// Makes a version of a plug-in from the bytes of its component.
pub type MakeSource = MakeVersion<dyn Source>;

/// The server's settings for all plug-ins.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginRules {
    /// The folder of NAME.wasm. Without one, plug-ins arrive only over the wire.
    pub dir: Option<PathBuf>,
    /// Whether a model's file must name the hash of its plug-in.
    pub require_sha256: bool,
    pub time: Duration,
    /// The default of [`Limits::memory`].
    pub memory: Option<u64>,
    pub strikes: u32,
    /// Maximum `max_wait` that a model may set.
    pub max_wait: Duration,
    /// Maximum percent of a core that a plug-in's calls may take at a load.
    pub cpu_share: Option<u32>,
    /// Maximum candidates that a plug-in is shown.
    pub max_candidates: u32,
    /// The folder for failed questions. Without one, they are not written.
    pub rounds: Option<PathBuf>,
    /// The folder for the bytes of known components. Without one, they stay in memory.
    pub components: Option<PathBuf>,
}

impl Default for PluginRules {
    fn default() -> Self {
        let Limits { time, memory } = Limits::default();
        let (dir, rounds, components) = (None, None, None);
        let (require_sha256, strikes, max_wait, max_candidates) = (false, 3, Duration::from_secs(60), 1024);
        let cpu_share = None;
        PluginRules {
            dir,
            require_sha256,
            time,
            memory,
            strikes,
            max_wait,
            cpu_share,
            max_candidates,
            rounds,
            components,
        }
    }
}

/// Cheap to clone; all clones are one registry.
#[derive(Debug, Clone)]
pub struct Registry(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) rules: PluginRules,
    shared: BindingServices,
    metrics: Metrics,
    maintenance: Arc<Maintenance>,
    /// Its lock is also held for a change of bindings.
    changes: VersionChanges<dyn Source, Arc<PluginMetrics>>,
    bindings: Mutex<Vec<Arc<SchedulerBinding>>>,
    /// The models' files that name plug-ins, once set.
    pub(super) named: OnceLock<Box<dyn NamingFiles>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("rules", &self.rules).field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.maintenance.raise();
    }
}

/// A plug-in that decides, with its metrics.
type RegisteredPlugin = VersionedPlugin<dyn Source, Arc<PluginMetrics>>;

/// A registry reference that does not keep it alive.
#[derive(Debug)]
pub(super) struct WeakRegistry(Weak<Inner>);

impl WeakRegistry {
    pub(super) fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(Registry)
    }
}

impl Registry {
    /// A registry without plug-ins. `keeps`: whether it runs a maintenance thread.
    pub fn new(
        rules: PluginRules,
        loader: Box<MakeSource>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        keeps: bool,
    ) -> std::io::Result<Registry> {
        let maintenance = Arc::new(Maintenance::default());
        let shared = BindingServices {
            clock,
            alarm: maintenance.clone(),
            texts: Arc::new(KeyInterner::default()),
            rounds: rules.rounds.clone(),
        };
        let folders = VersionFolders {
            plugins: rules.dir.clone(),
            components: rules.components.clone(),
            is_name: crate::config::model::is_plugin_name,
        };
        let changes = VersionChanges::new(VersionRegistry::new(loader, folders));
        let (bindings, named) = (Mutex::default(), OnceLock::new());
        let inner = Inner { rules, shared, metrics, maintenance, changes, bindings, named };
        let inner = Arc::new(inner);
        if keeps {
            let weak = Arc::downgrade(&inner);
            inner
                .maintenance
                .start(move || weak.upgrade().map(|inner| (inner.maintain(), inner.shared.clock.now())))?;
        }
        Ok(Registry(inner))
    }

    /// Sets the models' files that name plug-ins. Call it once.
    pub fn knows_files(&self, named: Box<dyn NamingFiles>) {
        let _ = self.0.named.set(named);
    }

    pub fn rules(&self) -> &PluginRules {
        &self.0.rules
    }

    pub fn texts(&self) -> &Arc<KeyInterner> {
        &self.0.shared.texts
    }

    /// Does what is due for every binding. Returns the next due time.
    pub fn maintain(&self) -> Option<Time> {
        self.0.maintain()
    }

    // === plug-ins ===

    pub fn list(&self) -> Vec<Summary> {
        self.0.changes.versions.names().iter().filter_map(|name| self.show(name).ok()).collect()
    }

    pub fn show(&self, name: &str) -> Result<Summary, PluginError> {
        let (manifest, sha256) =
            self.with(name, |p| (p.current.source.manifest().clone(), p.current.source.sha256().to_owned()))?;
        let attached = self.bindings_of(name).iter().map(|a| a.show()).collect();
        Ok(Summary {
            name: name.to_owned(),
            version: manifest.version,
            sha256,
            world: "scheduler".to_owned(),
            attached,
        })
    }

    /// Adds a component. Adding the same one again changes nothing.
    pub fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.changes.load(name, component, by.0, || self.metrics_of(name))?;
        self.show(name)
    }

    /// Replaces the current version by a new one at all its bindings, or at none.
    pub fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.changes.replace(self, name, component, by.0)?;
        self.show(name)
    }

    pub fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.0.changes.rollback(self, name, by.0)?;
        self.show(name)
    }

    pub(super) fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.0))
    }

    /// Parks at once, without waiting for a running change. A version that this change has made is parked too.
    pub fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        let sha256 = self.with(name, |p| p.current.source.sha256().to_owned())?;
        self.bindings_of(name).iter().for_each(|at| at.park());
        PluginChange::new("park", name, by.0).record(&sha256, &sha256);
        self.show(name)
    }

    pub fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.change(|| {
            let sha256 = self.with(name, |p| p.current.source.sha256().to_owned())?;
            let unpark = PluginChange::new("unpark", name, by.0);
            let (mut serves, mut stays, mut last) = (Vec::new(), Vec::new(), None);
            for at in self.bindings_of(name).iter().filter(|at| at.state() == BindingState::Parked) {
                match at.unpark() {
                    Ok(()) => serves.push(at.model().to_owned()),
                    Err(unfit) => {
                        stays.push(format!("{}: {unfit}", at.model()));
                        last = Some(unfit);
                    }
                }
            }
            let Some(unfit) = last else {
                unpark.record(&sha256, &sha256);
                return self.show(name);
            };
            serves.iter().for_each(|model| unpark.at(model).record(&sha256, &sha256));
            let error = unfit.refusal(format!("{name} stays parked on {}", stays.join("; ")));
            unpark.refused(&sha256, &sha256, &error);
            Err(error)
        })
    }

    pub fn unload(&self, name: &str, by: By<'_>) -> Result<(), PluginError> {
        let attached = || {
            let model = self.bindings_of(name).first()?.model().to_owned();
            Some(format!("{name} is attached to {model}; sequor plugin detach {name} --model {model} first"))
        };
        self.0.changes.unload(name, by.0, attached)
    }

    pub fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        self.with(name, |p| p.journal.after(after))
    }

    // === bindings ===

    /// A binding that does not decide until [`Registry::install`].
    pub fn bind(
        &self,
        name: &str,
        facts: LoadFacts,
        port: Arc<SchedulerPort<Decider>>,
        options: BindingOptions,
    ) -> Result<Arc<SchedulerBinding>, PluginError> {
        self.find(name)?;
        let whom =
            self.with(name, |p| (Arc::clone(&p.journal), Arc::clone(&p.extra), Arc::clone(&p.current.source)))?;
        Ok(Arc::new(SchedulerBinding::new(&self.0.shared, whom, facts, port, options)))
    }

    /// Lets a binding decide for its load, in place of the previous one, and supervises it from now on. This cannot fail.
    pub fn install(&self, binding: Arc<SchedulerBinding>, ready: Ready) {
        let before = binding.succeed(ready);
        self.supervise(binding, before.as_ref());
    }

    /// The same, for a binding whose guest starts as soon as there is room for it.
    pub fn install_without_guest(&self, binding: Arc<SchedulerBinding>) {
        let before = binding.succeed_without_guest();
        self.supervise(binding, before.as_ref());
    }

    fn supervise(&self, binding: Arc<SchedulerBinding>, before: Option<&Arc<SchedulerBinding>>) {
        let mut all = self.0.bindings.lock();
        all.retain(|at| !before.is_some_and(|before| Arc::ptr_eq(at, before)));
        all.push(binding);
        drop(all);
        self.0.maintenance.raise();
    }

    /// Lets the built-in policy decide in place of a binding, and ends its supervision.
    pub fn dismiss(&self, binding: &Arc<SchedulerBinding>) {
        binding.close();
        self.0.bindings.lock().retain(|at| !Arc::ptr_eq(at, binding));
    }

    /// The bindings of a plug-in.
    pub fn bindings_of(&self, name: &str) -> Vec<Arc<SchedulerBinding>> {
        self.0.bindings.lock().iter().filter(|at| at.plugin() == name && at.is_there()).cloned().collect()
    }

    /// Changes bindings while no version can be replaced.
    pub fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        self.0.changes.exclusive(change)
    }

    pub fn absent(&self, name: &str) -> PluginError {
        self.0.changes.versions.absent(name)
    }

    // === the plug-in folder ===

    /// The current version. A plug-in that is asked for the first time is read from the plug-in folder.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Source>, PluginError> {
        self.0.changes.find(name, || self.metrics_of(name))
    }

    /// Checks the files of all known plug-ins. A changed file replaces the current version. If a model's file names another hash, it waits
    /// until that changes. A bad file is logged.
    pub fn look(&self) {
        self.0.changes.look(self);
    }

    /// The path of a plug-in in the plug-in folder.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        self.0.changes.versions.file(name)
    }

    /// The print of a plug-in's file now.
    pub fn print(&self, name: &str) -> Option<FilePrint> {
        self.0.changes.versions.print(name)
    }

    /// Writes the current version of a plug-in to the plug-in folder, for the next start. It may have arrived over the wire. `seen` is the
    /// file's print when the change began.
    pub fn keep(&self, name: &str, seen: Option<FilePrint>) -> Result<FileBefore, PluginError> {
        let current = self.0.changes.current(name)?;
        let kept = self.0.changes.versions.write_file(name, &current, &current, seen);
        kept.map_err(|why| PluginError::Denied(format!("not saved: {why}")))
    }

    /// Undoes [`Registry::keep`].
    pub fn unkeep(&self, name: &str, before: FileBefore) {
        if let Ok(current) = self.0.changes.current(name) {
            self.0.changes.restore_file(name, &current, before);
        }
    }

    // === inside ===

    pub(super) fn metrics_of(&self, name: &str) -> Arc<PluginMetrics> {
        self.0.metrics.plugin(name)
    }

    pub(super) fn with<T>(&self, name: &str, look: impl FnOnce(&RegisteredPlugin) -> T) -> Result<T, PluginError> {
        self.0.changes.versions.with(name, look).ok_or_else(|| self.absent(name))
    }
}

impl Inner {
    fn maintain(&self) -> Option<Time> {
        let all = {
            let mut all = self.bindings.lock();
            all.retain(|at| at.is_there());
            all.clone()
        };
        all.iter().filter_map(SchedulerBinding::maintain).min()
    }
}

impl Hashed for dyn Source {
    fn sha256(&self) -> &str {
        Source::sha256(self)
    }
}
