//! The plug-ins of one world that models name, with their versions ([`sequor_wasm::versions`]) and the places where they serve.
//!
//! Changes run one after the other, and each writes one audit line. A new version replaces the old one at all places or at none. If it does
//! not fit a model's present load, the model is loaded again. The operations for operators are in `operators`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use sequor_wasm::audit::PluginChange;
use sequor_wasm::component::Component;
use sequor_wasm::folder_watch;
use sequor_wasm::grants::GrantTable;
use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::versions::{FileBefore, FilePrint, MakeVersion, Version, VersionFolders, VersionRegistry};

use super::health::ProcessorClock;
use super::link::ChainLink;
use super::place::{Misfit, PluginPlace, Replacement};
use super::place_models::{PinnedFile, PlaceModels};
use crate::telemetry::{Metrics, PluginMetrics};

/// The processors of a server.
pub type ProcessorRegistry = PlaceRegistry<ChainLink>;

/// Makes a version of a plug-in of these places from the bytes of its component.
pub type MakePlaced<P> = MakeVersion<Component<<P as PluginPlace>::World>>;

/// The server's settings for all plug-ins of a world.
#[derive(Debug, Clone, Default)]
pub struct PlaceRules {
    /// The folder of `NAME.wasm`. If there is none, plug-ins come only over the wire.
    pub dir: Option<PathBuf>,
    /// Whether a model's file must name the hash of its plug-in.
    pub require_sha256: bool,
    /// Maximum bytes of memory of a guest, if the model names none.
    pub memory: Option<u64>,
    /// Strikes within a minute that park a plug-in.
    pub strikes: u32,
    /// The models that each processor may call.
    pub grants: GrantTable,
    /// Maximum instances, at one model, of a plug-in that calls models.
    pub instances: usize,
    /// The directory for the bytes of known components; `None` keeps them in memory.
    pub components: Option<PathBuf>,
}

/// The registry. Cheap to clone; all clones are one registry.
pub struct PlaceRegistry<P: PluginPlace>(Arc<PlaceRegistryState<P>>);

struct PlaceRegistryState<P: PluginPlace> {
    rules: PlaceRules,
    clock: ProcessorClock,
    metrics: Metrics,
    versions: VersionRegistry<Component<P::World>, Arc<PluginMetrics>>,
    places: Mutex<Vec<Weak<P>>>,
    /// Places that must stay parked when their models are loaded again.
    stays_parked: Mutex<Vec<ParkedPlace>>,
    /// Serialises changes. A thread that holds a model's gate must not take this lock. Nothing is compiled under it.
    changing: Mutex<()>,
    models: OnceLock<Box<dyn PlaceModels>>,
}

/// A plug-in that is parked at a model, and the reason.
#[derive(Clone)]
struct ParkedPlace {
    plugin: String,
    model: String,
    why: String,
}

impl<P: PluginPlace> Clone for PlaceRegistry<P> {
    fn clone(&self) -> Self {
        PlaceRegistry(Arc::clone(&self.0))
    }
}

impl<P: PluginPlace> fmt::Debug for PlaceRegistry<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaceRegistry").field("versions", &self.0.versions).finish_non_exhaustive()
    }
}

/// The source of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedBy {
    /// An operator. A parked plug-in serves again. The print is that of the plug-in's file when the change began.
    Operator(Option<FilePrint>),
    /// A changed file. A parked plug-in stays parked. The change never writes that file: a newer file may be there by now.
    Folder,
}

impl<P: PluginPlace> PlaceRegistry<P> {
    pub fn new(
        rules: PlaceRules,
        make: Box<MakePlaced<P>>,
        clock: ProcessorClock,
        metrics: Metrics,
    ) -> PlaceRegistry<P> {
        let folders = VersionFolders {
            plugins: rules.dir.clone(),
            components: rules.components.clone(),
            is_name: crate::config::model::is_plugin_name,
        };
        let versions = VersionRegistry::new(make, folders);
        PlaceRegistry(Arc::new(PlaceRegistryState {
            rules,
            clock,
            metrics,
            versions,
            places: Mutex::default(),
            stays_parked: Mutex::default(),
            changing: Mutex::default(),
            models: OnceLock::new(),
        }))
    }

    /// Sets the access to the models. Call it once.
    pub fn reach_models(&self, models: Box<dyn PlaceModels>) {
        let _ = self.0.models.set(models);
    }

    pub fn rules(&self) -> &PlaceRules {
        &self.0.rules
    }

    pub fn clock(&self) -> &ProcessorClock {
        &self.0.clock
    }

    pub(super) fn versions(&self) -> &VersionRegistry<Component<P::World>, Arc<PluginMetrics>> {
        &self.0.versions
    }

    /// The lock for one change.
    pub(super) fn change_lock(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock()
    }

    // === models ===

    /// The current version, from the plug-in folder if it is not known yet.
    pub fn find(&self, name: &str) -> Result<Arc<Component<P::World>>, PluginError> {
        let (component, is_new) = self.0.versions.find(name, || self.metrics(name))?;
        if is_new {
            PluginChange::new("load", name, "plugins.dir").record("", component.sha256());
        }
        Ok(component)
    }

    /// The log and the counters of a plug-in.
    pub fn journal(&self, name: &str) -> Result<Arc<Journal>, PluginError> {
        let journal = self.0.versions.with(name, |plugin| Arc::clone(&plugin.journal));
        journal.ok_or_else(|| self.0.versions.absent(name))
    }

    pub fn metrics(&self, name: &str) -> Arc<PluginMetrics> {
        P::metrics(&self.0.metrics, name)
    }

    /// Registers the places of a load. If the version changed while they were configured, they get the current one. If a changed file
    /// caused the load, places that were parked stay parked.
    pub fn attach(&self, places: &[Arc<P>]) -> Result<(), String> {
        self.0.places.lock().extend(places.iter().map(Arc::downgrade));
        for place in places {
            let is_here = |parked: &&ParkedPlace| parked.plugin == place.name() && parked.model == place.model();
            if let Some(parked) = self.0.stays_parked.lock().iter().find(is_here) {
                place.health().park(parked.why.clone());
            }
        }
        places.iter().try_for_each(|place| self.catch_up(place))
    }

    /// Switches a place to the current version, if it was made for another one.
    fn catch_up(&self, place: &Arc<P>) -> Result<(), String> {
        let current = self.find(place.name()).map_err(|error| error.to_string())?;
        if current.sha256() == place.sha256() {
            return Ok(());
        }
        match place.try_version(&current)? {
            Replacement::InPlace(version) => place.take_over(version, false),
            Replacement::NewLoad => return Err(format!("{} was replaced meanwhile", place.name())),
        }
        Ok(())
    }

    // === the plug-in folder ===

    /// Watches the plug-in folder, if there is one, while the registry exists.
    pub fn watch(&self) -> std::io::Result<()> {
        let Some(folder) = self.rules().dir.clone() else { return Ok(()) };
        let weak = Arc::downgrade(&self.0);
        folder_watch::watch(folder, move || weak.upgrade().map(|inner| PlaceRegistry(inner).look()).is_some())
    }

    /// Checks the files of all known plug-ins. A changed file replaces the version that serves. An invalid file is logged.
    pub fn look(&self) {
        let is_pinned = |name: &str, sha256: &str| self.other_pin(name, sha256).is_some();
        self.0.versions.changed_files(is_pinned).for_each(|name| self.look_at(&name));
    }

    fn look_at(&self, name: &str) {
        if let (Err(error), Ok(journal)) = (self.take_file(name), self.journal(name)) {
            journal.write(Level::Error, &error.to_string());
        }
    }

    /// Lets the version in the plug-in's file serve.
    fn take_file(&self, name: &str) -> Result<(), PluginError> {
        let Some(file) = self.0.versions.file(name) else { return Ok(()) };
        let print = self.0.versions.print(name);
        let component = fs_err::read(&file).map_err(|e| PluginError::Internal(e.to_string()))?;
        let new = self.made(name, component)?;
        let _changing = self.0.changing.lock();
        // An older file must not replace a newer one. The next look finds that the file has changed.
        if self.0.versions.print(name) != print {
            return Ok(());
        }
        self.replace_for(RequestedBy::Folder, name, &new, "plugins.dir")
    }

    /// A model's file that names another hash of this plug-in.
    fn other_pin(&self, name: &str, sha256: &str) -> Option<(PathBuf, String)> {
        self.0.models.get()?.pins(name).into_iter().find(|(_, pinned)| pinned != sha256)
    }

    // === a change ===

    /// A version of a known plug-in. Compilation can take seconds, so the caller holds no lock.
    pub(super) fn made(&self, name: &str, component: Vec<u8>) -> Result<Version<Component<P::World>>, PluginError> {
        self.current(name)?;
        self.0.versions.make(name, component).inspect_err(|_| self.metrics(name).replaced(false))
    }

    /// Refuses a change if another one has come first since this version was the current one.
    pub(super) fn check_current(&self, name: &str, before: &str) -> Result<(), PluginError> {
        let now = self.current(name)?;
        if now.sha256() == before {
            return Ok(());
        }
        let (before, now) = (short(before), short(now.sha256()));
        Err(PluginError::Conflict(format!(
            "not replaced: meanwhile {now} has replaced {before} of {name}. If that one is not to serve, do this again"
        )))
    }

    /// Replaces the current version. The caller holds `changing`.
    pub(super) fn replace_for(
        &self,
        requested_by: RequestedBy,
        name: &str,
        new: &Version<Component<P::World>>,
        by: &str,
    ) -> Result<(), PluginError> {
        let old = self.current(name)?;
        if old.sha256() == new.source.sha256() {
            self.0.versions.set_awaits(name, None);
            return Ok(());
        }
        self.deploy(requested_by, "replace", name, new, by)
    }

    /// Makes a version serve everywhere. If anything fails, the current version stays everywhere.
    pub(super) fn deploy(
        &self,
        requested_by: RequestedBy,
        what: &str,
        name: &str,
        new: &Version<Component<P::World>>,
        by: &str,
    ) -> Result<(), PluginError> {
        let absent = || self.0.versions.absent(name);
        let (old, previous) =
            self.0.versions.with(name, |p| (p.current.clone(), p.previous.clone())).ok_or_else(absent)?;
        let (before, after) = (old.source.sha256(), new.source.sha256());
        let seen = self.places(name);
        let put = self.fits(name, after, requested_by).and_then(|()| {
            let plan = try_all(&seen, &new.source).map_err(|(model, why)| {
                let what = why.describe(&format!("{name} ({})", short(after)), &model);
                why.refusal(format!("not replaced: {what}. {} goes on serving.", short(before)))
            })?;
            let (file, pinned) = self.set_down(requested_by, name, &old, new).map_err(|why| {
                PluginError::Denied(format!("not replaced: {why}. {} goes on serving.", short(before)))
            })?;
            self.0.versions.promote(name, new);
            let parked = parked(&seen);
            if requested_by == RequestedBy::Folder {
                self.0.stays_parked.lock().clone_from(&parked);
            }
            let reloaded = self.reload_all(&plan.reloads).map_err(|why| {
                *self.0.stays_parked.lock() = parked;
                self.0.versions.restore(name, &old, previous);
                self.restore_files(&pinned);
                // Before the models. Even if one does not load, the failed version must not stay in the folder for the next restart.
                if let Err(why) = self.0.versions.restore_file(name, new, file) {
                    tracing::error!(plugin = name, "{why}");
                }
                self.go_back(name, &old, &seen, &plan.reloads);
                PluginError::Invalid(format!("not replaced: {why}. {} goes on serving.", short(before)))
            });
            self.0.stays_parked.lock().clear();
            reloaded.map(|()| (plan, pinned))
        });
        self.metrics(name).replaced(put.is_ok());
        let (plan, pinned) = put.inspect_err(|why| PluginChange::new(what, name, by).refused(before, after, why))?;
        // Nothing can fail after this point.
        for (place, version) in plan.in_place {
            place.take_over(version, requested_by != RequestedBy::Folder);
        }
        // A load may have started with the old version after `seen` was taken.
        for (place, why) in self.catch_up_unseen(name, &seen) {
            tracing::error!(plugin = name, model = place.model(), "the version before goes on: {why}");
        }
        PluginChange::new(what, name, by).record(before, after);
        for PinnedFile { model, .. } in &pinned {
            PluginChange::new("save", name, by).at(model).record(before, after);
        }
        Ok(())
    }

    /// Checks that no model's file names another hash than the changed file of the plug-in folder. An operator's change always fits,
    /// because the models' files will be rewritten.
    fn fits(&self, name: &str, sha256: &str, requested_by: RequestedBy) -> Result<(), PluginError> {
        if requested_by != RequestedBy::Folder {
            return Ok(());
        }
        let other = self.other_pin(name, sha256);
        self.0.versions.set_awaits(name, other.as_ref().map(|_| sha256.to_owned()));
        let Some((file, pinned)) = other else { return Ok(()) };
        let (is, pinned, file) = (short(sha256), short(&pinned), file.display());
        Err(PluginError::Conflict(format!(
            "not replaced: {file} names the hash {pinned} of {name}, and {name}.wasm of plugins.dir is {is}. Change the hash there, or use  \
             sequor plugin replace {name} --from FILE  which writes it"
        )))
    }

    /// Writes an operator's version to the plug-in folder and its hash to the models' files, for restarts and later loads. If a write fails,
    /// all keep their old content.
    fn set_down(
        &self,
        requested_by: RequestedBy,
        name: &str,
        old: &Version<Component<P::World>>,
        new: &Version<Component<P::World>>,
    ) -> Result<(FileBefore, Vec<PinnedFile>), String> {
        let RequestedBy::Operator(seen) = requested_by else { return Ok((FileBefore::Same, Vec::new())) };
        let versions = &self.0.versions;
        // Without a folder there is no file.
        let file = self.0.rules.dir.as_ref().map(|_| versions.write_file(name, new, old, seen));
        let file = file.transpose()?.unwrap_or(FileBefore::Same);
        let Some(models) = self.0.models.get() else { return Ok((file, Vec::new())) };
        match models.pin(name, new.source.sha256()) {
            Ok(pinned) => Ok((file, pinned)),
            Err(why) => {
                if let Err(why) = versions.restore_file(name, new, file) {
                    tracing::error!(plugin = name, "{why}");
                }
                Err(why)
            }
        }
    }

    /// Restores the models' files from before a failed change.
    fn restore_files(&self, files: &[PinnedFile]) {
        if let Some(models) = self.0.models.get() {
            models.restore_files(files);
        }
    }

    fn reload_all(&self, models: &BTreeSet<String>) -> Result<(), String> {
        let Some(reach) = self.0.models.get() else { return Ok(()) };
        models.iter().try_for_each(|model| reach.reload(model).map_err(|why| format!("{model} does not load: {why}")))
    }

    /// Switches the places that a change has not seen to the current version. Returns those that it does not fit.
    fn catch_up_unseen(&self, name: &str, seen: &[Arc<P>]) -> Vec<(Arc<P>, String)> {
        let is_seen = |place: &Arc<P>| seen.iter().any(|seen| Arc::ptr_eq(seen, place));
        let unseen = self.places(name).into_iter().filter(|place| !is_seen(place));
        let misfit = |place: Arc<P>| Some((self.catch_up(&place).err().filter(|_| !place.is_retired())?, place));
        unseen.filter_map(misfit).map(|(why, place)| (place, why)).collect()
    }

    /// Restores the old version, which is the current one again, at models that were loaded with another one: those that were `reloaded`, and
    /// those that were loaded for other reasons meanwhile.
    fn go_back(&self, name: &str, old: &Version<Component<P::World>>, seen: &[Arc<P>], reloaded: &BTreeSet<String>) {
        let is_changed = |place: &&Arc<P>| !place.is_retired() && place.sha256() != old.source.sha256();
        let places = self.places(name);
        let changed = places.iter().filter(is_changed).map(|place| place.model().to_owned());
        let mut changed: BTreeSet<String> = changed.filter(|model| reloaded.contains(model)).collect();
        // A place where the old version cannot take over needs a new load.
        changed.extend(self.catch_up_unseen(name, seen).into_iter().map(|(place, _)| place.model().to_owned()));
        let restored = changed.iter().map(|model| self.reload_all(&BTreeSet::from([model.clone()])));
        for why in restored.filter_map(Result::err) {
            tracing::error!(plugin = name, "the version before does not serve everywhere: {why}");
        }
    }

    pub(super) fn current(&self, name: &str) -> Result<Arc<Component<P::World>>, PluginError> {
        let current = self.0.versions.with(name, |plugin| Arc::clone(&plugin.current.source));
        current.ok_or_else(|| self.0.versions.absent(name))
    }

    /// The places where a plug-in serves.
    pub(super) fn places(&self, name: &str) -> Vec<Arc<P>> {
        let mut places = self.0.places.lock();
        places.retain(|place| place.strong_count() > 0);
        places.iter().filter_map(Weak::upgrade).filter(|place| place.name() == name).collect()
    }
}

/// How a version replaces another.
struct ReplacementPlan<P: PluginPlace> {
    in_place: Vec<(Arc<P>, Arc<P::Version>)>,
    /// Models to load again.
    reloads: BTreeSet<String>,
}

/// Configures a version for each place, without any other change. The error names the model that it does not fit.
fn try_all<P: PluginPlace>(
    places: &[Arc<P>],
    new: &Arc<Component<P::World>>,
) -> Result<ReplacementPlan<P>, (String, Misfit)> {
    let mut plan = ReplacementPlan { in_place: Vec::new(), reloads: BTreeSet::new() };
    for place in places {
        match place.try_version(new) {
            Ok(Replacement::InPlace(version)) => plan.in_place.push((Arc::clone(place), version)),
            // Its sequences finish on the version with which they began.
            Ok(Replacement::NewLoad) if place.is_retired() => {}
            Ok(Replacement::NewLoad) => drop(plan.reloads.insert(place.model().to_owned())),
            Err(_) if place.is_retired() => {}
            Err(why) => return Err((place.model().to_owned(), why)),
        }
    }
    Ok(plan)
}

/// The places that are parked and not retired.
fn parked<P: PluginPlace>(places: &[Arc<P>]) -> Vec<ParkedPlace> {
    let parked = |place: &Arc<P>| {
        let why = place.health().parked().filter(|_| !place.is_retired())?;
        Some(ParkedPlace { plugin: place.name().to_owned(), model: place.model().to_owned(), why })
    };
    places.iter().filter_map(parked).collect()
}

/// The short form of a hash, for people.
pub(super) fn short(sha256: &str) -> &str {
    sha256.get(..7).unwrap_or(sha256)
}
