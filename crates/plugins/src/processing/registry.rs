//! The plug-ins of one world that models name, with their versions ([`sequor_wasm::changes`]) and the places where they serve.
//!
//! If a new version does not fit a model's present load, the model is loaded again. The operations for operators are in `operators`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sequor_wasm::changes::{NamingFiles, VersionChange, VersionChanges, VersionPlaces, short};
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
type PlacedChanges<P> = VersionChanges<Component<<P as PluginPlace>::World>, Arc<PluginMetrics>>;

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
    /// The change that loads models again, while it does.
    reloading: Mutex<Option<ReloadingChange<P>>>,
    models: OnceLock<Box<dyn PlaceModels>>,
}

/// A change that loads models again. It decides where the plug-in stays parked.
struct ReloadingChange<P> {
    plugin: String,
    /// Whether strikes before the new load count: a plug-in that they have parked stays parked.
    keeps_strikes: bool,
    /// The number of parkings by operators at each place when the change began. The plug-in stays parked where operators have parked it since.
    began: Vec<(Arc<P>, u64)>,
}

impl<P: PluginPlace> ReloadingChange<P> {
    /// Why the new load in place of this one is parked from its beginning.
    fn parks_after(&self, before: &Arc<P>) -> Option<String> {
        let began =
            self.began.iter().find(|(place, _)| Arc::ptr_eq(place, before)).map_or(0, |(_, parkings)| *parkings);
        let health = before.health();
        health.parked().filter(|_| self.keeps_strikes || health.parkings() > began)
    }
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
        let changes = VersionChanges::new(VersionRegistry::new(make, folders));
        PlaceRegistry(Arc::new(PlaceRegistryState {
            rules,
            clock,
            metrics,
            changes,
            places: Mutex::default(),
            reloading: Mutex::default(),
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

    /// Registers the places of a load. If the version changed while they were configured, they get the current one. If a change of versions
    /// caused the load, places may stay parked.
    pub fn attach(&self, places: &[Arc<P>]) -> Result<(), String> {
        let mut all = self.0.places.lock();
        for place in places {
            if let Some(why) = self.stays_parked(&all, place) {
                place.health().park(why);
            }
        }
        all.extend(places.iter().map(Arc::downgrade));
        drop(all);
        places.iter().try_for_each(|place| self.catch_up(place))
    }

    /// Why a place of a new load is parked from the beginning, if a change of versions causes the load.
    fn stays_parked(&self, all: &[Weak<P>], place: &P) -> Option<String> {
        let reloading = self.0.reloading.lock();
        let reloading = reloading.as_ref().filter(|change| change.plugin == place.name())?;
        let is_before =
            |other: &Arc<P>| other.name() == place.name() && other.model() == place.model() && !other.is_retired();
        all.iter().filter_map(Weak::upgrade).filter(is_before).find_map(|before| reloading.parks_after(&before))
    }

    /// Parks a plug-in wherever it serves.
    pub(super) fn park_places(&self, name: &str, why: &str) {
        // Under this lock. Otherwise a load that registers now might neither be parked here nor see that its predecessor is.
        let all = self.0.places.lock();
        let places = all.iter().filter_map(Weak::upgrade).filter(|place| place.name() == name);
        places.for_each(|place| place.health().park(why.to_owned()));
    }

    /// Switches a place to the current version, if it was made for another one.
    fn catch_up(&self, place: &Arc<P>) -> Result<(), String> {
        // Until they agree: a version may have replaced the one that this place was tried with.
        loop {
            let current = self.find(place.name()).map_err(|error| error.to_string())?;
            if current.sha256() == place.sha256() {
                return Ok(());
            }
            match place.try_version(&current)? {
                Replacement::InPlace(version) => place.take_over(version),
                Replacement::NewLoad => return Err(format!("{} was replaced meanwhile", place.name())),
            }
        }
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

    fn reload_model(&self, model: &str) -> Result<(), String> {
        let Some(reach) = self.0.models.get() else { return Ok(()) };
        reach.reload(model).map_err(|why| format!("{model} does not load: {why}"))
    }

    /// Switches these places to the current version. Models where it cannot take over are loaded again. What fails is logged.
    fn catch_up_all(&self, name: &str, places: impl Iterator<Item = Arc<P>>) {
        let misfits = places.filter(|place| !place.is_retired() && self.catch_up(place).is_err());
        let models: BTreeSet<String> = misfits.map(|place| place.model().to_owned()).collect();
        for model in &models {
            if let Err(why) = self.reload_model(model) {
                let serves = self.find(name).map(|current| short(current.sha256()).to_owned()).unwrap_or_default();
                tracing::error!(plugin = name, model, "{serves} serves at all models but this one: {why}");
            }
        }
    }

    /// The places where a plug-in serves.
    pub(super) fn places(&self, name: &str) -> Vec<Arc<P>> {
        let mut places = self.0.places.lock();
        places.retain(|place| place.strong_count() > 0);
        places.iter().filter_map(Weak::upgrade).filter(|place| place.name() == name).collect()
    }
}

impl<P: PluginPlace> VersionPlaces<Component<P::World>> for PlaceRegistry<P> {
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

    fn prepare(&self, change: &VersionChange<'_, Component<P::World>>) -> Result<ReplacementPlan<P>, PluginError> {
        let new = &change.new.source;
        let parkings = |place: Arc<P>| (Arc::clone(&place), place.health().parkings());
        let mut seen: Vec<_> = self.places(change.name).into_iter().map(parkings).collect();
        let mut plan = ReplacementPlan { in_place: Vec::new(), reloads: BTreeSet::new(), seen: Vec::new() };
        for (place, parkings) in &seen {
            match place.try_version(new) {
                Ok(Replacement::InPlace(version)) => plan.in_place.push((Arc::clone(place), version, *parkings)),
                // Its sequences finish on the version with which they began.
                Ok(Replacement::NewLoad) | Err(_) if place.is_retired() => {}
                Ok(Replacement::NewLoad) => drop(plan.reloads.insert(place.model().to_owned())),
                Err(why) => {
                    let version = format!("{} ({})", change.name, short(new.sha256()));
                    return Err(why.refusal(why.describe(&version, place.model())));
                }
            }
        }
        seen.retain(|(place, _)| !place.is_retired());
        plan.seen = seen;
        Ok(plan)
    }

    fn reload(&self, change: &VersionChange<'_, Component<P::World>>, plan: &ReplacementPlan<P>) -> Result<(), String> {
        let (plugin, keeps_strikes) = (change.name.to_owned(), !change.origin.is_operator());
        *self.0.reloading.lock() = Some(ReloadingChange { plugin, keeps_strikes, began: plan.seen.clone() });
        plan.reloads.iter().try_for_each(|model| self.reload_model(model))
    }

    /// Restores the old version at all places that have another one by now: those that were loaded again, and those that took it over
    /// meanwhile for other reasons.
    fn go_back(&self, change: &VersionChange<'_, Component<P::World>>, plan: ReplacementPlan<P>) {
        let (name, plugin) = (change.name, change.name.to_owned());
        *self.0.reloading.lock() = Some(ReloadingChange { plugin, keeps_strikes: false, began: Vec::new() });
        // The change has unparked loads that took the place of parked ones.
        let places = self.places(name);
        for (seen, _) in &plan.seen {
            let Some(why) = seen.health().parked() else { continue };
            let after = places.iter().filter(|place| place.model() == seen.model() && !place.is_retired());
            after.for_each(|place| place.health().park(why.clone()));
        }
        self.catch_up_all(name, places.into_iter());
        *self.0.reloading.lock() = None;
    }

    fn take_over(&self, change: &VersionChange<'_, Component<P::World>>, plan: ReplacementPlan<P>) {
        for (place, version, parkings) in plan.in_place {
            place.take_over(version);
            if change.origin.is_operator() {
                place.health().unpark(parkings);
            }
        }
        // A load may have started with the old version after `seen` was taken.
        let is_new = |place: &Arc<P>| !plan.seen.iter().any(|(seen, _)| Arc::ptr_eq(seen, place));
        self.catch_up_all(change.name, self.places(change.name).into_iter().filter(is_new));
        *self.0.reloading.lock() = None;
    }
}

/// How a version replaces another.
pub struct ReplacementPlan<P: PluginPlace> {
    /// Each with the number of its parkings when the change began.
    in_place: Vec<(Arc<P>, Arc<P::Version>, u64)>,
    /// Models to load again.
    reloads: BTreeSet<String>,
    /// The places that take new sequences, with the same numbers.
    seen: Vec<(Arc<P>, u64)>,
}

impl<P: PluginPlace> fmt::Debug for ReplacementPlan<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacementPlan").field("reloads", &self.reloads).finish_non_exhaustive()
    }
}
