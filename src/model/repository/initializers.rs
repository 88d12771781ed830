//! Configures the state initializer that a model names.

use std::sync::Arc;

use crate::batch::wiring::stateful;
use crate::config::fault::{code, did_you_mean};
use crate::config::model::settings::{InitializerPlugin, ModelSettings};
use crate::error::LoadError;
use crate::initializing::{Initializer, InitializerOptions, InitializerSource, KeptStates};
use crate::model::load::{LoadInitializer, Processors, load_facts};
use crate::model::sequences::ModelScheduler;
use crate::processing::files;
use crate::processing::health::ProcessorClock;
use crate::scheduling::PluginServices;
use crate::scheduling::key_interner::KeyInterner;
use sequor_core::Seq;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;

use super::initializer_host::InitializerHost;
use super::processors::TIME;
use super::resources::Resources;

/// The initializer that a model names, configured; `None`, if it names none.
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
    let host = resources.initializers.get().ok_or_else(no_plugins)?;
    if resources.options.tier.is_some() {
        return Err(fault("initializers are not served yet together with a durable tier".to_owned()));
    }
    let source = initializer_source(resources, host, model, settings, named, texts).map_err(fault)?;
    let pool = threads.pool().map_err(fault)?;
    let ports = LoadInitializer::ports(settings, processors);
    let initializer = Initializer::new(source, &load_facts(settings, version), ports, pool.size());
    let initializer = initializer.map_err(fault)?;
    let kept = KeptStates::new(named.keep, resources.budget.clone(), resources.metrics.kept(&settings.name, version));
    let (_, keys) = settings.feature_names();
    let column = |name: &String| keys.iter().position(|key| key == name);
    let copy_if_same = named.copy_if_same.iter().filter_map(column).collect();
    Ok(Some(LoadInitializer { initializer, kept, pool, copy_if_same }))
}

fn initializer_source(
    resources: &Resources,
    host: &InitializerHost,
    model: &Arc<ModelScheduler>,
    settings: &ModelSettings,
    says: &InitializerPlugin,
    texts: &Arc<KeyInterner>,
) -> Result<InitializerSource, String> {
    let component = Arc::new(host.component(&says.name, says.sha256.as_deref())?);
    check_features(settings, &component.declared().manifest.features)?;
    let clock: ProcessorClock = Arc::new(resources.clock.clone());
    let (metrics, journal) = (resources.metrics.initializer(&says.name), Arc::new(Journal::new(&says.name)));
    let weak = Arc::downgrade(model);
    let sequence_text = move |sequence| weak.upgrade()?.id_of(Seq::of_handle(sequence)?).map(|id| id.to_string());
    let services = PluginServices::new(&journal, &metrics, texts, Box::new(sequence_text));
    let options = InitializerOptions {
        config: says.config.clone(),
        limits: Limits { time: says.time.unwrap_or(TIME), memory: says.memory.or(host.rules.memory) },
        files: files::read(&settings.directory, &says.files)?,
        strikes: host.rules.strikes,
    };
    Ok(InitializerSource { name: says.name.clone(), component, options, services: Arc::new(services), metrics, clock })
}

/// Whether the model has the features that a plug-in needs.
fn check_features(settings: &ModelSettings, needed: &[String]) -> Result<(), String> {
    let (numbers, keys) = settings.feature_names();
    for feature in needed {
        if !numbers.contains(feature) && !keys.contains(feature) {
            let near = did_you_mean(feature, numbers.iter().chain(&keys).map(String::as_str));
            return Err(format!("it needs the feature \"{feature}\", which no [[feature]] names{near}"));
        }
    }
    Ok(())
}
