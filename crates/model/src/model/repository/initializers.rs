//! Configures the state initializer that a model names.

use std::sync::Arc;

use crate::batch::wiring::stateful;
use crate::config::fault::code;
use crate::config::model::LoadFacts;
use crate::config::model::settings::{InitializerPlugin, ModelSettings};
use crate::error::LoadError;
use crate::initializing::{Initializer, InitializerOptions, InitializerRegistry, InitializerSource, KeptStates};
use crate::model::load::{LoadInitializer, Processors};
use crate::model::runtime::KeepsUnused;
use crate::model::sequences::ModelScheduler;
use crate::processing::files;
use crate::processing::place::Misfit;
use crate::scheduling::PluginServices;
use crate::scheduling::key_interner::KeyInterner;
use sequor_core::Seq;
use sequor_wasm::limits::Limits;

use super::placed_component::named_component;
use super::processors::{TIME, purpose_of};
use super::resources::Resources;

/// The configured initializer that a model names; `None` if it names none.
pub(super) fn initializer_of(
    resources: &Resources,
    model: &Arc<ModelScheduler>,
    settings: &ModelSettings,
    version: u64,
    texts: &Arc<KeyInterner>,
    processors: Option<&Processors>,
) -> Result<Option<LoadInitializer>, LoadError> {
    let Some(named) = &settings.initializer else { return Ok(None) };
    let fault = |what: String| LoadError::Config {
        at: named.at.clone(),
        code: code::PLUGIN,
        what: format!("{}: {what}", named.name),
    };
    if stateful(settings).1.is_empty() {
        return Err(fault("the model has no states to initialize".to_owned()));
    }
    let no_plugins = || fault("this server runs no plug-ins".to_owned());
    let threads = resources.processors.get().ok_or_else(no_plugins)?;
    let registry = resources.initializers.get().ok_or_else(no_plugins)?;
    let kept = KeptStates::new(named.keep, resources.budget.clone(), resources.metrics.kept(&settings.name, version));
    let source = initializer_source(registry, model, settings, (named, kept), texts).map_err(fault)?;
    let pool = threads.pool().map_err(fault)?;
    let ports = LoadInitializer::ports(settings, processors);
    let initializer = Initializer::new(source, &LoadFacts::new(settings, version), ports, pool.size());
    let initializer = Arc::new(initializer.map_err(|misfit| match misfit {
        Misfit::Unfit(what) => fault(what),
        Misfit::NoRoom(what) => LoadError::Runtime(format!("{}: {what}", named.name)),
    })?);
    // From here on, a replacement of the plug-in updates this initializer too.
    registry.attach(std::slice::from_ref(&initializer)).map_err(fault)?;
    let owner: Arc<dyn KeepsUnused> = Arc::<Initializer>::clone(&initializer);
    resources.owners.add(Arc::downgrade(&owner));
    let (_, keys) = settings.feature_names();
    let column = |name: &String| keys.iter().position(|key| key == name);
    let copy_if_same = named.copy_if_same.iter().filter_map(column).collect();
    Ok(Some(LoadInitializer { initializer, pool, copy_if_same }))
}

impl KeepsUnused for Initializer {
    fn release_unused(&self) {
        Initializer::release_unused(self);
    }

    fn release_free(&self) {
        Initializer::release_free(self);
    }
}

fn initializer_source(
    registry: &InitializerRegistry,
    model: &Arc<ModelScheduler>,
    settings: &ModelSettings,
    (says, kept): (&InitializerPlugin, Arc<KeptStates>),
    texts: &Arc<KeyInterner>,
) -> Result<InitializerSource, String> {
    let name = says.name.as_str();
    let component = named_component(registry, name, says.sha256.as_deref())?;
    let (journal, metrics) = (registry.journal(name).map_err(|error| error.to_string())?, registry.metrics(name));
    let weak = Arc::downgrade(model);
    let sequence_text = move |sequence| weak.upgrade()?.id_of(Seq::of_handle(sequence)?).map(|id| id.to_string());
    let services = Arc::new(PluginServices::new(&journal, &metrics, texts, Box::new(sequence_text)));
    let rules = registry.rules();
    let options = InitializerOptions {
        config: says.config.clone(),
        limits: Limits { time: says.time.unwrap_or(TIME), memory: says.memory.or(rules.memory) },
        files: files::read(&settings.directory, &says.files)?,
        strikes: rules.strikes,
    };
    let (clock, name, purpose) = (Arc::clone(registry.clock()), name.to_owned(), purpose_of(model));
    Ok(InitializerSource { name, component, options, services, metrics, journal, clock, kept, purpose })
}
