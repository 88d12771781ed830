//! The plug-ins of one world that models name, with their versions ([`sequor_wasm::changes`]) and the places where they serve.
//!
//! If a new version does not fit a model's present load, the model is loaded again. The operations for operators are in `operators`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sequor_wasm::changes::{Change, Changes, NamingFiles, Places, short};
use sequor_wasm::component::Component;
use sequor_wasm::folder_watch;
use sequor_wasm::grants::GrantTable;
use sequor_wasm::journal::Journal;
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::versions::{MakeVersion, VersionFolders, VersionRegistry};

use super::health::ProcessorClock;
use super::link::ChainLink;
use super::place::{PluginPlace, Replacement};
use super::place_models::PlaceModels;
use crate::telemetry::{Metrics, PluginMetrics};

/// The processors of a server.
pub type ProcessorRegistry = PlaceRegistry<ChainLink>;

/// Makes a version of a plug-in of these places from the bytes of its component.
pub type MakePlaced<P> = MakeVersion<Component<<P as PluginPlace>::World>>;

/// The versions of the plug-ins of these places.
type PlacedChanges<P> = Changes<Component<<P as PluginPlace>::World>, Arc<PluginMetrics>>;

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
    changes: PlacedChanges<P>,
    places: Mutex<Vec<Weak<P>>>,
    /// Places that must stay parked when their models are loaded again.
    stays_parked: Mutex<Vec<ParkedPlace>>,
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
        f.debug_struct("PlaceRegistry").field("changes", &self.0.changes).finish_non_exhaustive()
    }
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
        let changes = Changes::new(VersionRegistry::new(make, folders));
        PlaceRegistry(Arc::new(PlaceRegistryState {
            rules,
            clock,
            metrics,
            changes,
            places: Mutex::default(),
            stays_parked: Mutex::default(),
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

    pub(super) fn changes(&self) -> &PlacedChanges<P> {
        &self.0.changes
    }

    // === models ===

    /// The current version, from the plug-in folder if it is not known yet.
    pub fn find(&self, name: &str) -> Result<Arc<Component<P::World>>, PluginError> {
        self.0.changes.find(name, || self.metrics(name))
    }

    /// The log and the counters of a plug-in.
    pub fn journal(&self, name: &str) -> Result<Arc<Journal>, PluginError> {
        let journal = self.0.changes.versions.with(name, |plugin| Arc::clone(&plugin.journal));
        journal.ok_or_else(|| self.0.changes.versions.absent(name))
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
        self.0.changes.look(self);
    }

    // === a change ===

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

    /// The places where a plug-in serves.
    pub(super) fn places(&self, name: &str) -> Vec<Arc<P>> {
        let mut places = self.0.places.lock();
        places.retain(|place| place.strong_count() > 0);
        places.iter().filter_map(Weak::upgrade).filter(|place| place.name() == name).collect()
    }
}

impl<P: PluginPlace> Places<Component<P::World>> for PlaceRegistry<P> {
    type Ready = ReplacementPlan<P>;

    fn files(&self) -> Option<&dyn NamingFiles> {
        Some(&**self.0.models.get()?)
    }

    fn is_named(&self, _: &str) -> bool {
        true
    }

    fn is_parked(&self, plugin: &str) -> bool {
        let places = self.places(plugin);
        !places.is_empty() && places.iter().all(|place| place.health().parked().is_some())
    }

    fn count(&self, plugin: &str, ok: bool) {
        self.metrics(plugin).replaced(ok);
    }

    fn prepare(&self, change: &Change<'_, Component<P::World>>) -> Result<ReplacementPlan<P>, PluginError> {
        let (seen, new) = (self.places(change.name), &change.new.source);
        let mut plan =
            ReplacementPlan { in_place: Vec::new(), reloads: BTreeSet::new(), parked: parked(&seen), seen: Vec::new() };
        for place in &seen {
            match place.try_version(new) {
                Ok(Replacement::InPlace(version)) => plan.in_place.push((Arc::clone(place), version)),
                // Its sequences finish on the version with which they began.
                Ok(Replacement::NewLoad) if place.is_retired() => {}
                Ok(Replacement::NewLoad) => drop(plan.reloads.insert(place.model().to_owned())),
                Err(_) if place.is_retired() => {}
                Err(why) => {
                    let (name, after, model) = (change.name, short(new.sha256()), place.model());
                    return Err(PluginError::Invalid(format!("{name} ({after}) does not fit {model}: {why}")));
                }
            }
        }
        plan.seen = seen;
        Ok(plan)
    }

    fn reload(&self, change: &Change<'_, Component<P::World>>, plan: &ReplacementPlan<P>) -> Result<(), String> {
        if !change.origin.is_operator() {
            self.0.stays_parked.lock().clone_from(&plan.parked);
        }
        self.reload_all(&plan.reloads)
    }

    /// Restores the old version at models that were loaded with another one: those that were reloaded, and those that were loaded for other
    /// reasons meanwhile.
    fn go_back(&self, change: &Change<'_, Component<P::World>>, plan: ReplacementPlan<P>) {
        *self.0.stays_parked.lock() = plan.parked;
        let name = change.name;
        let is_changed = |place: &&Arc<P>| !place.is_retired() && place.sha256() != change.old.source.sha256();
        let places = self.places(name);
        let changed = places.iter().filter(is_changed).map(|place| place.model().to_owned());
        let mut changed: BTreeSet<String> = changed.filter(|model| plan.reloads.contains(model)).collect();
        // A place where the old version cannot take over needs a new load.
        changed.extend(self.catch_up_unseen(name, &plan.seen).into_iter().map(|(place, _)| place.model().to_owned()));
        let restored = changed.iter().map(|model| self.reload_all(&BTreeSet::from([model.clone()])));
        for why in restored.filter_map(Result::err) {
            tracing::error!(plugin = name, "the version before does not serve everywhere: {why}");
        }
        self.0.stays_parked.lock().clear();
    }

    fn take_over(&self, change: &Change<'_, Component<P::World>>, plan: ReplacementPlan<P>) {
        self.0.stays_parked.lock().clear();
        for (place, version) in plan.in_place {
            place.take_over(version, change.origin.is_operator());
        }
        // A load may have started with the old version after `seen` was taken.
        for (place, why) in self.catch_up_unseen(change.name, &plan.seen) {
            tracing::error!(plugin = change.name, model = place.model(), "the version before goes on: {why}");
        }
    }
}

/// How a version replaces another.
pub struct ReplacementPlan<P: PluginPlace> {
    in_place: Vec<(Arc<P>, Arc<P::Version>)>,
    /// Models to load again.
    reloads: BTreeSet<String>,
    /// Where the plug-in was parked when the change began.
    parked: Vec<ParkedPlace>,
    /// The places for which it was made.
    seen: Vec<Arc<P>>,
}

impl<P: PluginPlace> fmt::Debug for ReplacementPlan<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacementPlan").field("reloads", &self.reloads).finish_non_exhaustive()
    }
}

/// The places that are parked and not retired.
fn parked<P: PluginPlace>(places: &[Arc<P>]) -> Vec<ParkedPlace> {
    let parked = |place: &Arc<P>| {
        let why = place.health().parked().filter(|_| !place.is_retired())?;
        Some(ParkedPlace { plugin: place.name().to_owned(), model: place.model().to_owned(), why })
    };
    places.iter().filter_map(parked).collect()
}
