//! Tests the replacement of processors' versions: everywhere or nowhere.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sequor_wasm::changes::{NamingFiles, PinnedFile};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::ServiceLog;

use crate::config::model::LoadFacts;
use crate::processing::link::ChainLink;
use crate::processing::registry::MakePlaced;
use crate::processing::wat_fixture::{COUNT, ProcessorWat, SERVING, StillClock, model, step, tensor};
use crate::processing::{
    Chain, OnFailure, PlaceModels, PlaceRules, PluginOperations, PluginPlace as _, PortTensors, ProcessorComponent,
    ProcessorOptions, ProcessorRegistry, ProcessorSource, SequenceScratch,
};
use crate::telemetry::Metrics;

/// Records which models are loaded again.
#[derive(Debug, Default)]
struct NotedModels {
    reloaded: Arc<Mutex<Vec<String>>>,
    pins: Arc<Mutex<Vec<(PathBuf, String)>>>,
    fails: bool,
}

impl NamingFiles for NotedModels {
    fn pins(&self, _: &str) -> Vec<(PathBuf, String)> {
        self.pins.lock().clone()
    }

    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<PinnedFile>, String> {
        let mut pins = self.pins.lock();
        if pins.iter().any(|(file, _)| file.starts_with("read-only")) {
            return Err("the file of m cannot be written".to_owned());
        }
        let written = |(file, pinned): &mut (PathBuf, String)| {
            let before = std::mem::replace(pinned, sha256.to_owned());
            PinnedFile { model: plugin.to_owned(), directory: file.clone(), before }
        };
        Ok(pins.iter_mut().map(written).collect())
    }

    fn restore_files(&self, files: &[PinnedFile]) {
        *self.pins.lock() = files.iter().map(|file| (file.directory.clone(), file.before.clone())).collect();
    }
}

impl PlaceModels for NotedModels {
    fn reload(&self, model: &str) -> Result<(), String> {
        self.reloaded.lock().push(model.to_owned());
        if self.fails { Err("no graph".to_owned()) } else { Ok(()) }
    }
}

/// Loads models again. A test can make loads fail.
#[derive(Debug, Default)]
struct LoadedModels {
    registry: OnceLock<ProcessorRegistry>,
    chains: Mutex<Vec<Chain>>,
    /// Whether the next loads succeed, in order. Loads after these succeed.
    succeed: Mutex<VecDeque<bool>>,
    /// A model that another thread loads for the first time during the next load.
    beside: Mutex<Option<&'static str>>,
    /// What another thread does during the next change: before the new version is the current one, and before the next load.
    in_trial: Mutex<Option<Meanwhile>>,
    in_reload: Mutex<Option<Meanwhile>>,
}

#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Parks,
    Loads(&'static str),
}

/// The models, in the form that the registry takes.
#[derive(Debug)]
struct LoadedModelsOf(Arc<LoadedModels>);

impl NamingFiles for LoadedModelsOf {
    fn pins(&self, _: &str) -> Vec<(PathBuf, String)> {
        Vec::new()
    }

    fn pin(&self, _: &str, _: &str) -> Result<Vec<PinnedFile>, String> {
        self.0.acts(&self.0.in_trial);
        Ok(Vec::new())
    }

    fn restore_files(&self, _: &[PinnedFile]) {}
}

impl PlaceModels for LoadedModelsOf {
    fn reload(&self, model: &str) -> Result<(), String> {
        if let Some(beside) = self.0.beside.lock().take() {
            self.0.load(beside);
        }
        self.0.acts(&self.0.in_reload);
        if !self.0.succeed.lock().pop_front().unwrap_or(true) {
            return Err("no graph".to_owned());
        }
        self.0.load(model);
        Ok(())
    }
}

impl LoadedModels {
    fn new(rules: PlaceRules) -> Arc<LoadedModels> {
        let models = Arc::new(LoadedModels::default());
        let registry = ProcessorRegistry::new(rules, make(), Arc::new(StillClock), Metrics::new(false));
        registry.reach_models(Box::new(LoadedModelsOf(Arc::clone(&models))));
        models.registry.set(registry).unwrap();
        models
    }

    fn registry(&self) -> &ProcessorRegistry {
        self.registry.get().unwrap()
    }

    fn acts(&self, does: &Mutex<Option<Meanwhile>>) {
        match does.lock().take() {
            None => {}
            Some(Meanwhile::Parks) => drop(self.registry().park("guest", "another").unwrap()),
            Some(Meanwhile::Loads(model)) => self.load(model),
        }
    }

    /// The models that take new sequences, each with the hash of its version.
    fn serving(&self) -> Vec<(String, String)> {
        let places = self.registry().places("guest");
        let serving = places.iter().filter(|place| !place.is_retired());
        serving.map(|place| (place.model().to_owned(), place.sha256())).collect()
    }

    /// Loads a model in place of its last load.
    fn load(&self, model: &str) {
        let chain = load(self.registry(), model);
        let mut chains = self.chains.lock();
        chains.iter().filter(|chain| chain.links()[0].model() == model).for_each(Chain::retire);
        chains.push(chain);
    }

    /// Why the last load is parked, if it is.
    fn parked(&self) -> Option<String> {
        self.chains.lock().last().unwrap().parked()
    }
}

struct RegistryRig {
    registry: ProcessorRegistry,
    reloaded: Arc<Mutex<Vec<String>>>,
    pins: Arc<Mutex<Vec<(PathBuf, String)>>>,
}

fn make() -> Box<MakePlaced<ChainLink>> {
    Box::new(|_: &str, bytes: &[u8]| {
        let made = ProcessorComponent::new(&SERVING, "guest.wasm", bytes, Grants::default(), None);
        made.map(Arc::new).map_err(|e| PluginError::Invalid(e.to_string()))
    })
}

fn rig(fails: bool) -> RegistryRig {
    let rules = PlaceRules { strikes: 3, ..PlaceRules::default() };
    let registry = ProcessorRegistry::new(rules, make(), Arc::new(StillClock), Metrics::new(false));
    let models = NotedModels { fails, ..NotedModels::default() };
    let (reloaded, pins) = (Arc::clone(&models.reloaded), Arc::clone(&models.pins));
    registry.reach_models(Box::new(models));
    RegistryRig { registry, reloaded, pins }
}

impl RegistryRig {
    /// The processors of a load of the model "m".
    fn chain(&self) -> Chain {
        load(&self.registry, "m")
    }
}

/// The processors of a load of this model.
fn load(registry: &ProcessorRegistry, name: &str) -> Chain {
    let source = ProcessorSource {
        name: "guest".to_owned(),
        component: registry.find("guest").unwrap(),
        options: ProcessorOptions {
            config: "{}".to_owned(),
            limits: Limits { time: std::time::Duration::from_secs(20), memory: None },
            on_failure: OnFailure::Fail,
            files: Vec::new(),
            strikes: 3,
            calls: None,
            is_model: false,
            instances: None,
        },
        services: Arc::new(ServiceLog::default()),
        metrics: registry.metrics("guest"),
        journal: registry.journal("guest").unwrap(),
        clock: Arc::clone(registry.clock()),
        purpose: RoomPurpose::New,
    };
    let facts = LoadFacts { name: name.to_owned(), version: 1, ..LoadFacts::default() };
    let chain = Chain::new(vec![source], &facts, model(), 2).unwrap();
    registry.attach(chain.links()).unwrap();
    chain
}

fn inputs(bytes: &[u8]) -> PortTensors {
    vec![Some(tensor(bytes))]
}

/// The scratch that a step leaves.
fn scratch_after(chain: &Chain, before: &SequenceScratch) -> SequenceScratch {
    let prepared = chain.pre(&step(), before, inputs(b"abc")).unwrap();
    chain.post(&step(), prepared.pending, vec![inputs(b"d")]).unwrap().1
}

fn component(guest: ProcessorWat<'_>) -> Vec<u8> {
    guest.component()
}

#[test]
fn a_new_processor_version_takes_over_the_scratch() {
    let rig = rig(false);
    let counts = component(ProcessorWat { post: COUNT, ..ProcessorWat::default() });
    rig.registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    let chain = rig.chain();
    assert_eq!(scratch_after(&chain, &SequenceScratch::default()), SequenceScratch::default());
    let before = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    let first = rig.registry.show("guest").unwrap();
    let second = rig.registry.replace("guest", counts, "local").unwrap();
    assert_ne!(first.sha256, second.sha256);
    assert_eq!(second.attached[0].sha256, second.sha256);
    let scratch = scratch_after(&chain, &SequenceScratch::default());
    assert_eq!(scratch.size(), 1);
    let (_, kept) = chain.post(&step(), before.pending, vec![inputs(b"d")]).unwrap();
    assert_eq!(kept, SequenceScratch::default(), "the version that prepared a request finishes it");
    assert_eq!(rig.registry.rollback("guest", "local").unwrap().sha256, first.sha256);
    assert_eq!(scratch_after(&chain, &scratch), scratch, "the scratch stays");
    assert!(rig.reloaded.lock().is_empty());
    assert!(matches!(rig.registry.unload("guest", "local"), Err(PluginError::Conflict(_))));
    drop(chain);
    rig.registry.unload("guest", "local").unwrap();
    assert!(!rig.registry.has("guest"));
}

#[test]
fn a_version_that_cannot_serve_changes_nothing() {
    let rig = rig(false);
    rig.registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    let chain = rig.chain();
    let first = rig.registry.show("guest").unwrap().sha256;
    let bad = component(ProcessorWat { configure: "unreachable", ..ProcessorWat::default() });
    let refused = rig.registry.replace("guest", bad, "local").unwrap_err().to_string();
    assert!(refused.contains("does not fit m: it gave up (unreachable), in configure"), "{refused}");
    assert!(rig.registry.replace("guest", b"nothing".to_vec(), "local").is_err());
    rig.pins.lock().push(("read-only/sequor.toml".into(), first.clone()));
    let other = component(ProcessorWat { post: COUNT, ..ProcessorWat::default() });
    let refused = rig.registry.replace("guest", other, "local").unwrap_err();
    assert!(
        matches!(&refused, PluginError::Denied(what) if what.contains("the file of m cannot be written")),
        "{refused}"
    );
    assert_eq!(rig.registry.show("guest").unwrap().sha256, first);
    assert!(chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).is_ok());
}

#[test]
fn a_version_with_another_scratch_size_needs_a_new_load() {
    for fails in [false, true] {
        let rig = rig(fails);
        rig.registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
        let chain = rig.chain();
        let first = rig.registry.show("guest").unwrap().sha256;
        let wider = component(ProcessorWat { manifest: "scratch = \"16B\"\n", ..ProcessorWat::default() });
        rig.pins.lock().push(("m/sequor.toml".into(), first.clone()));
        let replaced = rig.registry.replace("guest", wider, "local");
        assert_eq!(rig.reloaded.lock()[..], ["m".to_owned()]);
        assert_eq!(rig.pins.lock()[0].1 == first, fails, "the file names the version that serves");
        let shown = rig.registry.show("guest").unwrap();
        assert_eq!(shown.attached[0].sha256, first, "live sequences keep their version");
        assert_eq!((replaced.is_err(), shown.sha256 == first), (fails, fails));
        // A retired load does not cause a new load.
        chain.retire();
        rig.reloaded.lock().clear();
        let wider = component(ProcessorWat { manifest: "scratch = \"24B\"\n", ..ProcessorWat::default() });
        assert!(rig.registry.replace("guest", wider, "local").is_ok());
        assert!(rig.reloaded.lock().is_empty());
    }
}

#[test]
fn operators_park_and_unpark_and_a_replacement_unparks() {
    let rig = rig(false);
    rig.registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    let chain = rig.chain();
    rig.registry.park("guest", "local").unwrap();
    assert_eq!(chain.parked().as_deref(), Some("an operator has parked guest"));
    rig.registry.unpark("guest", "local").unwrap();
    assert_eq!(chain.parked(), None);
    rig.registry.park("guest", "local").unwrap();
    rig.registry.replace("guest", component(ProcessorWat { post: COUNT, ..ProcessorWat::default() }), "local").unwrap();
    assert_eq!(chain.parked(), None);
}

/// A version with another size of scratch, which therefore needs a new load.
fn wider(scratch: &str) -> Vec<u8> {
    component(ProcessorWat { manifest: &format!("scratch = \"{scratch}\"\n"), ..ProcessorWat::default() })
}

#[test]
fn a_changed_file_that_needs_a_new_load_leaves_a_parked_plug_in_parked() {
    let folder = tempfile::tempdir().unwrap();
    let rules = PlaceRules { dir: Some(folder.path().to_owned()), strikes: 3, ..PlaceRules::default() };
    let models = LoadedModels::new(rules);
    let registry = models.registry();
    registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    models.load("m");
    registry.park("guest", "local").unwrap();
    fs_err::write(folder.path().join("guest.wasm"), wider("16B")).unwrap();
    registry.look();
    assert_eq!(models.chains.lock().len(), 2);
    assert_eq!(models.parked().as_deref(), Some("an operator has parked guest"));
    // An operator's change unparks.
    registry.replace("guest", wider("24B"), "local").unwrap();
    assert_eq!(models.chains.lock().len(), 3);
    assert_eq!(models.parked(), None);
    // A failed change unparks nothing, even at a model that was loaded again before another one failed.
    models.load("n");
    registry.park("guest", "local").unwrap();
    models.succeed.lock().extend([true, false]);
    registry.replace("guest", wider("32B"), "local").unwrap_err();
    assert_eq!(models.parked().as_deref(), Some("an operator has parked guest"));
    // A model's own reload starts with a clean record.
    models.load("m");
    assert_eq!(models.parked(), None);
}

#[test]
fn the_previous_plug_in_file_is_restored_even_if_a_model_fails_to_reload() {
    let folder = tempfile::tempdir().unwrap();
    let models = LoadedModels::new(PlaceRules { dir: Some(folder.path().to_owned()), ..PlaceRules::default() });
    let (file, first) = (folder.path().join("guest.wasm"), component(ProcessorWat::default()));
    fs_err::write(&file, &first).unwrap();
    models.load("m");
    models.load("n");
    // "m" loads with the new version, "n" fails, and then "m" fails to return to the old version.
    models.succeed.lock().extend([true, false, false]);
    models.registry().replace("guest", wider("16B"), "local").unwrap_err();
    assert!(fs_err::read(&file).unwrap() == first);
}

#[test]
fn a_failed_version_is_taken_back_from_a_model_that_loaded_with_it_meanwhile() {
    let models = LoadedModels::new(PlaceRules { strikes: 3, ..PlaceRules::default() });
    let registry = models.registry();
    registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    models.load("m");
    let first = registry.show("guest").unwrap().sha256;
    *models.beside.lock() = Some("n");
    models.succeed.lock().push_back(false);
    registry.replace("guest", wider("16B"), "local").unwrap_err();
    assert_eq!(models.serving(), [("m".to_owned(), first.clone()), ("n".to_owned(), first)]);
}

#[test]
fn a_plug_in_that_is_parked_during_its_replacement_stays_parked() {
    let in_place = || component(ProcessorWat { post: COUNT, ..ProcessorWat::default() });
    for was_parked in [false, true] {
        for (new, in_trial) in [(in_place(), true), (wider("16B"), true), (wider("16B"), false)] {
            let models = LoadedModels::new(PlaceRules { strikes: 3, ..PlaceRules::default() });
            let registry = models.registry();
            registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
            models.load("m");
            if was_parked {
                registry.park("guest", "local").unwrap();
            }
            *if in_trial { &models.in_trial } else { &models.in_reload }.lock() = Some(Meanwhile::Parks);
            let shown = registry.replace("guest", new, "local").unwrap();
            assert_eq!(models.serving(), [("m".to_owned(), shown.sha256)]);
            assert_eq!(models.parked().as_deref(), Some("an operator has parked guest"), "{was_parked} {in_trial}");
        }
    }
}

#[test]
fn a_model_that_began_to_load_before_the_replacement_gets_the_new_version_too() {
    let models = LoadedModels::new(PlaceRules { strikes: 3, ..PlaceRules::default() });
    let registry = models.registry();
    registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    models.load("m");
    *models.in_trial.lock() = Some(Meanwhile::Loads("n"));
    let new = registry.replace("guest", wider("16B"), "local").unwrap().sha256;
    assert_eq!(models.serving(), [("m".to_owned(), new.clone()), ("n".to_owned(), new)]);
}

/// A registry over this folder. Versions that contain the marker wait for the test: it hears of each, and then lets it go on.
fn waiting_registry(folder: &Path, marker: &'static [u8]) -> (ProcessorRegistry, Receiver<()>, SyncSender<()>) {
    let ((begun, began), (go, goes)) = (sync_channel(1), sync_channel(1));
    let (inner, goes) = (make(), Mutex::new(goes));
    let make: Box<MakePlaced<ChainLink>> = Box::new(move |name: &str, bytes: &[u8]| {
        if bytes.windows(marker.len()).any(|part| part == marker) {
            begun.send(()).unwrap();
            goes.lock().recv().unwrap();
        }
        inner(name, bytes)
    });
    let rules = PlaceRules { dir: Some(folder.to_owned()), strikes: 3, ..PlaceRules::default() };
    (ProcessorRegistry::new(rules, make, Arc::new(StillClock), Metrics::new(false)), began, go)
}

/// The default version, with a custom section that contains this text.
fn with_section(text: &str) -> Vec<u8> {
    let mut bytes = component(ProcessorWat::default());
    let length = u8::try_from(text.len()).unwrap();
    bytes.extend([0, length + 2, 1, b'x']);
    bytes.extend(text.bytes());
    bytes
}

#[test]
fn a_file_that_is_written_while_its_predecessor_is_compiled_stays_and_serves_next() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("guest.wasm");
    let (second, third) = (with_section("second"), with_section("third"));
    fs_err::write(&file, component(ProcessorWat::default())).unwrap();
    let (registry, began, go) = waiting_registry(folder.path(), b"second");
    let chain = load(&registry, "m");
    registry.look();
    let first = registry.show("guest").unwrap().sha256;
    fs_err::write(&file, &second).unwrap();
    let looks = registry.clone();
    let look = std::thread::spawn(move || looks.look());
    began.recv().unwrap();
    fs_err::write(&file, &third).unwrap();
    go.send(()).unwrap();
    look.join().unwrap();
    assert!(fs_err::read(&file).unwrap() == third, "the newer file stays");
    assert_eq!(registry.show("guest").unwrap().sha256, first, "an older file does not come after a newer one");
    registry.look();
    let serves = registry.find("guest").unwrap().sha256().to_owned();
    assert_eq!(serves, make()("guest", &third).unwrap().sha256());
    assert!(fs_err::read(&file).unwrap() == third);
    drop(chain);
}

#[test]
fn a_changed_file_whose_models_do_not_load_stays_where_the_operator_put_it() {
    let folder = tempfile::tempdir().unwrap();
    let models = LoadedModels::new(PlaceRules { dir: Some(folder.path().to_owned()), ..PlaceRules::default() });
    let (file, first, second) = (folder.path().join("guest.wasm"), component(ProcessorWat::default()), wider("16B"));
    fs_err::write(&file, &first).unwrap();
    models.load("m");
    models.registry().look();
    let before = models.registry().show("guest").unwrap().sha256;
    fs_err::write(&file, &second).unwrap();
    models.succeed.lock().extend([false]);
    models.registry().look();
    assert!(fs_err::read(&file).unwrap() == second);
    assert_eq!(models.registry().show("guest").unwrap().sha256, before);
}

#[test]
fn a_file_that_is_written_during_an_operators_replacement_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("guest.wasm");
    fs_err::write(&file, component(ProcessorWat::default())).unwrap();
    let (registry, began, go) = waiting_registry(folder.path(), b"second");
    let _chain = load(&registry, "m");
    let first = registry.show("guest").unwrap().sha256;
    let replaces = registry.clone();
    let replace = std::thread::spawn(move || replaces.replace("guest", with_section("second"), "local"));
    began.recv().unwrap();
    fs_err::write(&file, with_section("third")).unwrap();
    go.send(()).unwrap();
    let refused = replace.join().unwrap().unwrap_err().to_string();
    assert!(refused.contains("guest.wasm was written meanwhile, and stays as it is"), "{refused}");
    assert!(fs_err::read(&file).unwrap() == with_section("third"));
    assert_eq!(registry.show("guest").unwrap().sha256, first);
}

#[test]
fn plug_ins_can_be_changed_while_another_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, began, go) = waiting_registry(folder.path(), b"second");
    registry.load("guest", component(ProcessorWat::default()), "local").unwrap();
    registry.load("other", component(ProcessorWat::default()), "local").unwrap();
    registry.replace("other", with_section("third"), "local").unwrap();
    let replaces = registry.clone();
    let replace = std::thread::spawn(move || replaces.replace("guest", with_section("second"), "local"));
    began.recv().unwrap();
    // These would wait for ever if the compilation held their lock.
    registry.rollback("other", "local").unwrap();
    registry.replace("guest", with_section("third"), "local").unwrap();
    go.send(()).unwrap();
    let refused = replace.join().unwrap().unwrap_err();
    assert!(matches!(&refused, PluginError::Conflict(what) if what.contains("has replaced")), "{refused}");
}
