//! The processors of a server: their versions, which are those of [`sequor_wasm::versions`], and the places where they serve.
//!
//! Changes run one after the other, and each writes one audit line. A version takes the place of another everywhere or nowhere. At a model that it
//! does not fit as it is, the model is loaded anew.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sequor_wasm::audit::PluginChange;
use sequor_wasm::folder_watch;
use sequor_wasm::grants::GrantTable;
use sequor_wasm::journal::{Journal, Level, LogLine};
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::versions::{MakeVersion, Version, VersionFolders, VersionRegistry};

use super::chain::Chain;
use super::health::ProcessorClock;
use super::link::{ChainLink, Replacement};
use super::status::ProcessorStatus;
use super::version::LinkVersion;
use super::world::ProcessorComponent;
use crate::telemetry::{Metrics, PluginMetrics};

/// Makes a version of a processor from the bytes of its component.
pub type MakeProcessor = MakeVersion<ProcessorComponent>;

/// What the server's settings say about all processors.
#[derive(Debug, Clone, Default)]
pub struct ProcessorRules {
    /// The folder of `NAME.wasm`. Without one, processors come over the wire alone.
    pub dir: Option<PathBuf>,
    /// Whether a model's file must name the hash of its processor.
    pub require_sha256: bool,
    /// Maximum bytes of memory of a guest, if the model names none.
    pub memory: Option<u64>,
    /// Strikes within a minute that park a processor.
    pub strikes: u32,
    /// Which models each processor may call.
    pub grants: GrantTable,
    /// Maximum number of instances of one that calls models, at one model.
    pub instances: usize,
    /// Where the bytes of components lie while they are known. In memory, if there is none.
    pub components: Option<PathBuf>,
}

/// The models, as the registry reaches them.
pub trait ProcessorModels: Send + Sync + fmt::Debug {
    /// The files of models that name the hash of a processor, each with that hash.
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)>;

    /// Loads a model anew. Live sequences finish on the load before. The error says why the load before goes on for all.
    fn reload(&self, model: &str) -> Result<(), String>;
}

/// Cheap to clone. All clones are one registry.
#[derive(Debug, Clone)]
pub struct ProcessorRegistry(Arc<ProcessorRegistryState>);

struct ProcessorRegistryState {
    rules: ProcessorRules,
    clock: ProcessorClock,
    metrics: Metrics,
    versions: VersionRegistry<ProcessorComponent, Arc<PluginMetrics>>,
    links: Mutex<Vec<Weak<ChainLink>>>,
    /// Locked for one change. A thread that holds a model's gate must not take it.
    changing: Mutex<()>,
    models: OnceLock<Box<dyn ProcessorModels>>,
}

impl fmt::Debug for ProcessorRegistryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorRegistry").field("versions", &self.versions).finish_non_exhaustive()
    }
}

/// Who wants a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedBy {
    /// An operator. A parked processor serves again.
    Operator,
    /// A changed file. A parked processor stays parked.
    Folder,
}

impl ProcessorRegistry {
    pub fn new(
        rules: ProcessorRules,
        make: Box<MakeProcessor>,
        clock: ProcessorClock,
        metrics: Metrics,
    ) -> ProcessorRegistry {
        let folders = VersionFolders {
            plugins: rules.dir.clone(),
            components: rules.components.clone(),
            is_name: crate::config::model::is_plugin_name,
        };
        let versions = VersionRegistry::new(make, folders);
        let (links, changing, models) = (Mutex::default(), Mutex::default(), OnceLock::new());
        ProcessorRegistry(Arc::new(ProcessorRegistryState { rules, clock, metrics, versions, links, changing, models }))
    }

    /// Says how the models are reached. To be called once.
    pub fn reach_models(&self, models: Box<dyn ProcessorModels>) {
        let _ = self.0.models.set(models);
    }

    pub fn rules(&self) -> &ProcessorRules {
        &self.0.rules
    }

    pub fn clock(&self) -> &ProcessorClock {
        &self.0.clock
    }

    // === what operators ask ===

    pub fn has(&self, name: &str) -> bool {
        self.0.versions.with(name, |_| ()).is_some()
    }

    pub fn list(&self) -> Vec<ProcessorStatus> {
        self.0.versions.names().iter().filter_map(|name| self.show(name).ok()).collect()
    }

    pub fn show(&self, name: &str) -> Result<ProcessorStatus, PluginError> {
        let current = self.current(name)?;
        let attached = self.links(name).iter().map(|link| link.status()).collect();
        let (version, sha256) = (current.declared().version.clone(), current.sha256().to_owned());
        Ok(ProcessorStatus { name: name.to_owned(), version, sha256, attached })
    }

    pub fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        Ok(self.journal(name)?.after(after))
    }

    /// Takes a component in. The same once more changes nothing.
    pub fn load(&self, name: &str, component: Vec<u8>, by: &str) -> Result<ProcessorStatus, PluginError> {
        let _changing = self.0.changing.lock();
        let version = self.0.versions.make(name, component)?;
        let wanted = version.source.sha256().to_owned();
        let (known, is_new) =
            self.0.versions.insert(name, version, self.0.versions.print(name), || self.0.metrics.processor(name));
        if known.sha256() != wanted {
            let what = format!("{name} is loaded already ({}); sequor plugin replace {name}", short(known.sha256()));
            return Err(PluginError::Conflict(what));
        }
        if is_new {
            change("load", name, by).made("", &wanted);
        }
        self.show(name)
    }

    /// Puts a new version in the place of the current one, wherever that serves, or nowhere.
    pub fn replace(&self, name: &str, component: Vec<u8>, by: &str) -> Result<ProcessorStatus, PluginError> {
        let _changing = self.0.changing.lock();
        self.replace_for(RequestedBy::Operator, name, component, by)
    }

    /// Back to the version before.
    pub fn rollback(&self, name: &str, by: &str) -> Result<ProcessorStatus, PluginError> {
        let _changing = self.0.changing.lock();
        let current = self.current(name)?;
        let previous = self.0.versions.with(name, |plugin| plugin.previous.clone()).flatten();
        let nothing = || PluginError::Absent(format!("{name} has no version before {}", short(current.sha256())));
        self.put(RequestedBy::Operator, "rollback", name, &previous.ok_or_else(nothing)?, by)?;
        self.show(name)
    }

    /// Parks it at every model.
    pub fn park(&self, name: &str, by: &str) -> Result<ProcessorStatus, PluginError> {
        let current = self.current(name)?;
        for link in self.links(name) {
            link.health.park(format!("an operator has parked {name}"));
        }
        change("park", name, by).made(current.sha256(), current.sha256());
        self.show(name)
    }

    pub fn unpark(&self, name: &str, by: &str) -> Result<ProcessorStatus, PluginError> {
        let current = self.current(name)?;
        self.links(name).iter().for_each(|link| link.health.forgive(true));
        change("unpark", name, by).made(current.sha256(), current.sha256());
        self.show(name)
    }

    /// Forgets it. It must serve nowhere.
    pub fn unload(&self, name: &str, by: &str) -> Result<(), PluginError> {
        let _changing = self.0.changing.lock();
        let current = self.current(name)?;
        if let Some(link) = self.links(name).first() {
            let model = link.model();
            let what = format!("the sequor.toml of {model} names {name}; take it out and load {model} again first");
            return Err(PluginError::Conflict(what));
        }
        self.0.versions.remove(name);
        change("unload", name, by).made(current.sha256(), "");
        Ok(())
    }

    // === models ===

    /// The current version, from the plug-in folder if it is not known yet.
    pub fn find(&self, name: &str) -> Result<Arc<ProcessorComponent>, PluginError> {
        let (component, is_new) = self.0.versions.find(name, || self.0.metrics.processor(name))?;
        if is_new {
            change("load", name, "plugins.dir").made("", component.sha256());
        }
        Ok(component)
    }

    /// The log and the counters of a processor.
    pub fn journal(&self, name: &str) -> Result<Arc<Journal>, PluginError> {
        let journal = self.0.versions.with(name, |plugin| Arc::clone(&plugin.journal));
        journal.ok_or_else(|| self.0.versions.absent(name))
    }

    pub fn metrics(&self, name: &str) -> Arc<PluginMetrics> {
        self.0.metrics.processor(name)
    }

    /// Notes the processors of a load. A version that has changed while they were configured takes their place.
    pub fn attach(&self, chain: &Chain) -> Result<(), String> {
        let links = chain.links();
        self.0.links.lock().extend(links.iter().map(Arc::downgrade));
        links.iter().try_for_each(|link| self.catch_up(link))
    }

    /// Lets the current version serve at a place that another version was made for.
    fn catch_up(&self, link: &Arc<ChainLink>) -> Result<(), String> {
        let current = self.find(&link.name).map_err(|error| error.to_string())?;
        if current.sha256() == link.sha256() {
            return Ok(());
        }
        match link.try_version(&current)? {
            Replacement::InPlace(version) => link.take_over(version, false),
            Replacement::NewLoad => return Err(format!("{} was replaced meanwhile", link.name)),
        }
        Ok(())
    }

    // === the plug-in folder ===

    /// Watches the folder, if there is one, until the registry is gone.
    pub fn watch(&self) -> std::io::Result<()> {
        let Some(folder) = self.rules().dir.clone() else { return Ok(()) };
        let weak = Arc::downgrade(&self.0);
        folder_watch::watch(folder, move || weak.upgrade().map(|inner| ProcessorRegistry(inner).look()).is_some())
    }

    /// Looks at the files of all processors that are known. A changed file takes the place of the version that serves. A bad one is logged.
    pub fn look(&self) {
        for name in self.0.versions.names() {
            let Some((changed, awaits)) = self.0.versions.note_file(&name) else { continue };
            let is_awaited = || awaits.is_some_and(|sha256| self.other_pin(&name, &sha256).is_none());
            if changed || is_awaited() {
                self.look_at(&name);
            }
        }
    }

    fn look_at(&self, name: &str) {
        let Some(file) = self.0.versions.file(name) else { return };
        // Read under that lock, or an older file could take the place of a newer one.
        let _changing = self.0.changing.lock();
        let read = fs_err::read(&file).map_err(|e| PluginError::Internal(e.to_string()));
        let taken = read.and_then(|component| self.replace_for(RequestedBy::Folder, name, component, "plugins.dir"));
        if let (Err(error), Ok(journal)) = (taken, self.journal(name)) {
            journal.write(Level::Error, &error.to_string());
        }
    }

    /// A file of a model that names another hash of this processor.
    fn other_pin(&self, name: &str, sha256: &str) -> Option<(PathBuf, String)> {
        self.0.models.get()?.pins(name).into_iter().find(|(_, pinned)| pinned != sha256)
    }

    // === a change ===

    fn replace_for(
        &self,
        requested_by: RequestedBy,
        name: &str,
        component: Vec<u8>,
        by: &str,
    ) -> Result<ProcessorStatus, PluginError> {
        let (old, metrics) = (self.current(name)?, self.metrics(name));
        let new = self.0.versions.make(name, component).inspect_err(|_| metrics.replaced(false))?;
        if old.sha256() == new.source.sha256() {
            self.0.versions.set_awaits(name, None);
            return self.show(name);
        }
        self.put(requested_by, "replace", name, &new, by)?;
        self.show(name)
    }

    /// Lets a version serve everywhere. The current one goes on everywhere if anything fails.
    fn put(
        &self,
        requested_by: RequestedBy,
        what: &str,
        name: &str,
        new: &Version<ProcessorComponent>,
        by: &str,
    ) -> Result<(), PluginError> {
        let absent = || self.0.versions.absent(name);
        let (old, previous) =
            self.0.versions.with(name, |p| (p.current.clone(), p.previous.clone())).ok_or_else(absent)?;
        let (before, after) = (old.source.sha256(), new.source.sha256());
        let seen = self.links(name);
        let put = self.fits(name, after, requested_by).and_then(|()| {
            let plan = try_all(&seen, &new.source).map_err(|(model, why)| {
                let what = format!("not replaced: {name} ({}) does not fit {model}: {why}", short(after));
                PluginError::Invalid(format!("{what}. {} goes on serving.", short(before)))
            })?;
            if self.0.rules.dir.is_some() {
                self.0.versions.write_file(name, new).map_err(PluginError::Denied)?;
            }
            self.0.versions.promote(name, new);
            self.reload_all(&plan.reloads).map_err(|why| {
                self.0.versions.restore(name, &old, previous);
                self.go_back(name, &old, &plan.reloads);
                PluginError::Invalid(format!("not replaced: {why}. {} goes on serving.", short(before)))
            })?;
            Ok(plan)
        });
        self.metrics(name).replaced(put.is_ok());
        let plan = put.inspect_err(|why| change(what, name, by).refused(before, after, why))?;
        // From here on nothing can fail.
        for (link, version) in plan.in_place {
            link.take_over(version, requested_by == RequestedBy::Operator);
        }
        // A load may have begun with the version before, and was not seen above.
        for link in self.links(name).iter().filter(|link| !seen.iter().any(|seen| Arc::ptr_eq(seen, link))) {
            if let Err(why) = self.catch_up(link) {
                tracing::error!(plugin = name, model = link.model(), "the version before goes on: {why}");
            }
        }
        change(what, name, by).made(before, after);
        Ok(())
    }

    /// Whether no model's file names another hash than this version's.
    fn fits(&self, name: &str, sha256: &str, requested_by: RequestedBy) -> Result<(), PluginError> {
        let other = self.other_pin(name, sha256);
        if requested_by == RequestedBy::Folder {
            self.0.versions.set_awaits(name, other.as_ref().map(|_| sha256.to_owned()));
        }
        let Some((file, pinned)) = other else { return Ok(()) };
        let (is, pinned, file) = (short(sha256), short(&pinned), file.display());
        Err(PluginError::Conflict(format!(
            "not replaced: {file} names the hash {pinned} of {name}, and this is {is}. PluginChange the hash there first"
        )))
    }

    fn reload_all(&self, models: &BTreeSet<String>) -> Result<(), String> {
        let Some(reach) = self.0.models.get() else { return Ok(()) };
        models.iter().try_for_each(|model| reach.reload(model).map_err(|why| format!("{model} does not load: {why}")))
    }

    /// Lets the version before serve again where a model was loaded with another one.
    fn go_back(&self, name: &str, old: &Version<ProcessorComponent>, models: &BTreeSet<String>) {
        let changed: BTreeSet<String> = self
            .links(name)
            .iter()
            .filter(|link| !link.is_retired() && link.sha256() != old.source.sha256())
            .map(|link| link.model().to_owned())
            .filter(|model| models.contains(model))
            .collect();
        let back = self
            .reload_all(&changed)
            .and_then(|()| if self.0.rules.dir.is_some() { self.0.versions.write_file(name, old) } else { Ok(()) });
        if let Err(why) = back {
            tracing::error!(plugin = name, "the version before does not serve everywhere: {why}");
        }
    }

    fn current(&self, name: &str) -> Result<Arc<ProcessorComponent>, PluginError> {
        let current = self.0.versions.with(name, |plugin| Arc::clone(&plugin.current.source));
        current.ok_or_else(|| self.0.versions.absent(name))
    }

    /// The places where a processor serves.
    fn links(&self, name: &str) -> Vec<Arc<ChainLink>> {
        let mut links = self.0.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).filter(|link| link.name == name).collect()
    }
}

/// How a version takes the place of another.
struct ReplacementPlan {
    in_place: Vec<(Arc<ChainLink>, Arc<LinkVersion>)>,
    /// Models to load anew.
    reloads: BTreeSet<String>,
}

/// Configures a version for each place. The error names the model that it does not fit. Nothing has changed yet.
fn try_all(links: &[Arc<ChainLink>], new: &Arc<ProcessorComponent>) -> Result<ReplacementPlan, (String, String)> {
    let mut plan = ReplacementPlan { in_place: Vec::new(), reloads: BTreeSet::new() };
    for link in links {
        match link.try_version(new) {
            Ok(Replacement::InPlace(version)) => plan.in_place.push((Arc::clone(link), version)),
            // Its sequences finish on the version that they began with.
            Ok(Replacement::NewLoad) if link.is_retired() => {}
            Ok(Replacement::NewLoad) => drop(plan.reloads.insert(link.model().to_owned())),
            Err(_) if link.is_retired() => {}
            Err(why) => return Err((link.model().to_owned(), why)),
        }
    }
    Ok(plan)
}

fn change<'a>(what: &'a str, plugin: &'a str, by: &'a str) -> PluginChange<'a> {
    PluginChange { what, plugin, model: "", by }
}

/// A hash as people read it.
fn short(sha256: &str) -> &str {
    sha256.get(..7).unwrap_or(sha256)
}
