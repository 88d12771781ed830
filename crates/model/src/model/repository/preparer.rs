//! Makes a load of one version of a model: reads the configuration, places the graph, warms it up, and adds plug-ins, cache and durability.
//! No load is in service here; `loader` takes prepared loads into service.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sequor_core::LoadLimits;

use crate::backend::LoadOptions;
use crate::config::fault::{Fault, code};
use crate::config::model::draft::{ConfigSource, Sources};
use crate::config::model::place::Auto;
use crate::config::model::settings::{BackendKind, DurabilityWhen, ModelSettings};
use crate::config::model::{Draft, versions};
use crate::config::toml_file;
use crate::error::LoadError;
use crate::model::catalog::{Catalog, model_digest};
use crate::model::decide::Deciders;
use crate::model::execute::{Placement, warm_up};
use crate::model::instance::Runner;
use crate::model::load::{LoadCache, LoadDurability, LoadParts, LoadedModel, Processors, StateTier};
use crate::model::runtime::LoadRates;
use crate::model::sequences::ModelScheduler;

use super::caches::cache_of;
use super::control::RepositorySource;
use super::ensembles::BoundMembers;
use super::initializers::initializer_of;
use super::missing_file;
use super::placer::Placer;
use super::rates::rates_of;
use super::resources::Resources;

pub(super) type Faults = Vec<LoadError>;

/// A load that can be taken into service.
pub(super) struct Prepared {
    pub(super) load: Arc<LoadedModel>,
    pub(super) runners: Vec<Runner>,
    /// The models of its steps, if it is an ensemble.
    pub(super) members: Vec<Arc<ModelScheduler>>,
}

/// Prepares versions of models with the server's resources.
#[derive(Debug)]
pub(super) struct VersionPreparer {
    resources: Arc<Resources>,
    catalog: Arc<Catalog>,
    deciders: Arc<Deciders>,
    placer: Placer,
    /// The source of the folders, if they are made from one.
    source: OnceLock<Arc<dyn RepositorySource>>,
}

impl VersionPreparer {
    pub(super) fn new(resources: &Arc<Resources>, catalog: &Arc<Catalog>, deciders: &Arc<Deciders>) -> VersionPreparer {
        VersionPreparer {
            resources: Arc::clone(resources),
            catalog: Arc::clone(catalog),
            deciders: Arc::clone(deciders),
            placer: Placer::new(resources),
            source: OnceLock::new(),
        }
    }

    /// Sets the source of the folders. Only the first call has an effect.
    pub(super) fn follow(&self, source: Arc<dyn RepositorySource>) {
        let _ = self.source.set(source);
    }

    /// Updates the gauges of the GPUs in use.
    pub(super) fn observe_gpus(&self) {
        self.placer.observe();
    }

    /// Reads the configuration of the model in this directory. `config` replaces that of its files.
    pub(super) fn draft(&self, directory: &Path, config: Option<&str>) -> Result<Draft, Faults> {
        let mut sources = Sources::read(directory).map_err(faults)?;
        if let Some(json) = config {
            sources.config = ConfigSource::Json(json.to_owned());
        }
        sources.config_path = self.source.get().and_then(|source| source.original(&directory.join("config.pbtxt")));
        Draft::parse(sources, &self.resources.live.draft()).map_err(faults)
    }

    /// Chooses between GPU and CPU for instances that may run on either.
    pub(super) fn place(&self, draft: &mut Draft) -> Result<Auto, Faults> {
        if draft.backend == BackendKind::OnnxRuntime { self.placer.place(draft) } else { Ok(Auto::NotAsked) }
    }

    /// Prepares one version: its graph or its plan, and its instances. It does not serve yet.
    pub(super) fn prepare(
        &self,
        model: &Arc<ModelScheduler>,
        draft: &Draft,
        version: u64,
        auto: &Auto,
    ) -> Result<Prepared, Faults> {
        if draft.is_ensemble() {
            return self.prepare_ensemble(model, draft, version);
        }
        let options = self.load_options(draft)?;
        let placements = match draft.backend {
            BackendKind::Plugin => vec![self.placer.without_graph()],
            BackendKind::OnnxRuntime | BackendKind::Ensemble => {
                let placements = self.placer.placements(&draft.file(version), &draft.processors(), &options);
                let folder = draft.directory.join(version.to_string());
                placements.map_err(|faults| missing_file::explained(faults, &folder, draft.file_key()))?
            }
        };
        let Some(first) = placements.first() else { return Err(vec![LoadError::Runtime("no instances".to_owned())]) };
        let mut settings = draft.resolve(first.graph.signature()).map_err(faults)?;
        let cache = cache_of(&self.resources, draft, &mut settings);
        let rates = rates_of(&self.resources, draft, &mut settings).map_err(|fault| vec![fault])?;
        for placement in &placements {
            warm_up(placement, &settings).map_err(|failed| {
                let (at, what) = (draft.warmup_at(failed.sample), failed.what);
                vec![LoadError::Config { at, code: code::RUN, what }]
            })?;
        }
        self.prepare_load(model, version, settings, placements, (auto.clone(), cache, rates)).map_err(|e| vec![e])
    }

    /// The server's options with those of the model.
    fn load_options(&self, draft: &Draft) -> Result<LoadOptions, Faults> {
        let tuning = draft.tuning().clone();
        if tuning.openvino.is_some()
            && let Err(error) = self.resources.backend.has_openvino()
        {
            return Err(vec![LoadError::Config { at: draft.accelerator_at(), code: code::RUNTIME, what: error.0 }]);
        }
        Ok(LoadOptions { tuning, ..self.resources.options.load.clone() })
    }

    fn prepare_load(
        &self,
        model: &Arc<ModelScheduler>,
        version: u64,
        settings: ModelSettings,
        placements: Vec<Placement>,
        (auto, cache, rates): (Auto, Option<LoadCache>, Option<LoadRates>),
    ) -> Result<Prepared, LoadError> {
        let Resources { options, metrics, .. } = &*self.resources;
        let metrics = metrics.tagged_model(&settings.name, version, &metric_tags(&settings));
        let registry = self.deciders.registry();
        let texts = registry.map(|r| Arc::clone(r.texts())).unwrap_or_default();
        let candidates = registry.map_or(LoadLimits::default().candidates, |r| r.rules().max_candidates);
        let processors = self.resources.processors_of(model, &settings, version, &texts)?;
        let durable = self.durable(&settings, version, processors.as_ref())?;
        let sealing = durable.as_ref().filter(|durable| durable.is_continual());
        let sealing = sealing.map(|durable| Arc::clone(&durable.store) as Arc<dyn StateTier>);
        let initializer = initializer_of(&self.resources, model, &settings, version, &texts, processors.as_ref())?;
        let parts = LoadParts {
            hold: options.hold,
            candidates,
            texts,
            depth: options.depth,
            auto,
            tier: options.tier.clone().or(sealing),
            durable,
            processors,
            initializer,
            cache,
            rates,
            answers: self.resources.answers.clone(),
            ..LoadParts::new(metrics)
        };
        let load = LoadedModel::new(model.reserve_load(), version, settings, parts)?;
        let load = Arc::new(load);
        let runners = placements.into_iter().map(|placement| Runner::new(&load, placement)).collect::<Result<_, _>>();
        let runners = runners.map_err(|e| LoadError::Runtime(format!("{}: {e}", load.settings.name)))?;
        Ok(Prepared { load, runners, members: Vec::new() })
    }

    /// The durability of this version's sequences, if its file asks for it.
    fn durable(
        &self,
        settings: &ModelSettings,
        version: u64,
        processors: Option<&Processors>,
    ) -> Result<Option<LoadDurability>, LoadError> {
        let when = settings.durability;
        if when == DurabilityWhen::Never || !self.resources.options.keeps {
            return Ok(None);
        }
        let path = settings.directory.join("sequor.toml");
        let Some(store) = self.resources.options.store.clone() else {
            let what = "[durability] needs a place for states: set state.dir or state.url in the server's configuration, or --state-dir or --state-url";
            let text = fs_err::read_to_string(&path).unwrap_or_default();
            let at = toml_file::place(&text, &["durability", "when"]).at(&path);
            return Err(LoadError::Config { at, code: code::STORE, what: what.to_owned() });
        };
        let folder = settings.directory.join(version.to_string());
        // Stored states contain the scratch of these processors, so the digest includes their names.
        let owners = processors.map(Processors::names).unwrap_or_default();
        let digest =
            model_digest(&folder, &owners).map_err(|e| LoadError::File { path: folder, what: e.to_string() })?;
        Ok(Some(LoadDurability { when, store, digest }))
    }

    fn prepare_ensemble(&self, model: &Arc<ModelScheduler>, draft: &Draft, version: u64) -> Result<Prepared, Faults> {
        let members = BoundMembers::find(&self.catalog, draft, None).map_err(|fault| vec![fault])?;
        let ensemble = members.plan(draft)?;
        let mut settings = draft.settle_ensemble(members.sequences());
        cache_of(&self.resources, draft, &mut settings);
        let Resources { options, metrics, .. } = &*self.resources;
        let metrics = metrics.tagged_model(&settings.name, version, &metric_tags(&settings));
        let parts = LoadParts { hold: options.hold, ensemble: Some(ensemble), ..LoadParts::new(metrics) };
        let load = LoadedModel::new(model.reserve_load(), version, settings, parts);
        let load = Arc::new(load.map_err(|fault| vec![fault])?);
        Ok(Prepared { load, runners: vec![Runner::for_ensemble()], members: members.models })
    }
}

fn faults(faults: Vec<Fault>) -> Faults {
    faults.into_iter().map(LoadError::from).collect()
}

fn metric_tags(settings: &ModelSettings) -> BTreeMap<String, String> {
    settings.proto.metric_tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The versions that the model's version policy chooses; at least one.
pub(super) fn chosen_versions(draft: &Draft, directory: &Path) -> Result<Vec<u64>, Faults> {
    let fault = |what: String| vec![LoadError::File { path: directory.to_owned(), what }];
    let mut there = versions::versions_in(directory).map_err(|e| fault(e.to_string()))?;
    if there.is_empty() && draft.backend == BackendKind::Plugin {
        // Such a model has no file that would need a version directory.
        there.push(1);
    }
    let wanted = draft.versions.choose(&there);
    if wanted.is_empty() {
        let what = "has no version to serve: a directory with a number for its name that the version policy chooses";
        return Err(fault(what.to_owned()));
    }
    Ok(wanted)
}
