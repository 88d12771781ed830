//! Configures the processors that a model names.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::Seq;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;

use crate::config::fault::code;
use crate::config::model::LoadFacts;
use crate::config::model::settings::{ModelSettings, ProcessorPlugin};
use crate::error::LoadError;
use crate::model::load::Processors;
use crate::model::runtime::KeepsUnused;
use crate::model::sequences::ModelScheduler;
use crate::processing::link::ChainLink;
use crate::processing::place::Misfit;
use crate::processing::{Chain, OnFailure, ProcessorOptions, ProcessorSource, files};
use crate::scheduling::PluginServices;
use crate::scheduling::key_interner::KeyInterner;

use super::call_rights::call_rights;
use super::placed_component::named_component;
use super::processor_host::ProcessorHost;
use super::resources::Resources;

/// CPU time of a call without tensors, if the model names none.
pub(super) const TIME: Duration = Duration::from_millis(10);

impl Resources {
    /// The configured processors that a model names; `None` if it names none.
    pub(super) fn processors_of(
        &self,
        model: &Arc<ModelScheduler>,
        settings: &ModelSettings,
        version: u64,
        texts: &Arc<KeyInterner>,
    ) -> Result<Option<Processors>, LoadError> {
        let named = &settings.processor_plugins;
        let Some(first) = named.first() else { return Ok(None) };
        let fault = |at: &ProcessorPlugin, what: String| LoadError::Config {
            at: at.at.clone(),
            code: code::PLUGIN,
            what: format!("{}: {what}", at.name),
        };
        let host = self.processors.get().ok_or_else(|| fault(first, "this server runs no plug-ins".to_owned()))?;
        let mut sources = Vec::with_capacity(named.len());
        for says in named {
            let granted = host.registry.rules().grants.models(&says.name);
            host.check_circle(&settings.name, granted).map_err(|what| fault(says, what))?;
            sources.push(source(host, model, settings, says, texts).map_err(|what| fault(says, what))?);
        }
        let pool = host.pool().map_err(|what| fault(first, what))?;
        let graph = Processors::signature_of(settings);
        let chain = Chain::new(sources, &LoadFacts::new(settings, version), graph, pool.size());
        let chain = chain.map_err(|(n, misfit)| {
            let at = named.get(n).unwrap_or(first);
            match misfit {
                Misfit::Unfit(what) => fault(at, what),
                Misfit::NoRoom(what) => LoadError::Runtime(format!("{}: {what}", at.name)),
            }
        })?;
        // From here on, a replacement of a plug-in updates these links too.
        host.registry.attach(chain.links()).map_err(|what| fault(first, what))?;
        for link in chain.links() {
            let link: Arc<dyn KeepsUnused> = Arc::<ChainLink>::clone(link);
            self.owners.add(Arc::downgrade(&link));
        }
        Ok(Some(Processors { chain, pool }))
    }
}

impl KeepsUnused for ChainLink {
    fn release_unused(&self) {
        ChainLink::release_unused(self);
    }

    fn release_free(&self) {
        ChainLink::release_free(self);
    }
}

fn source(
    host: &ProcessorHost,
    model: &Arc<ModelScheduler>,
    settings: &ModelSettings,
    says: &ProcessorPlugin,
    texts: &Arc<KeyInterner>,
) -> Result<ProcessorSource, String> {
    let (registry, name) = (&host.registry, says.name.as_str());
    let component = named_component(registry, name, says.sha256.as_deref())?;
    let (journal, metrics) = (registry.journal(name).map_err(|error| error.to_string())?, registry.metrics(name));
    let weak = Arc::downgrade(model);
    let sequence_text = move |sequence| weak.upgrade()?.id_of(Seq::of_handle(sequence)?).map(|id| id.to_string());
    let services = PluginServices::new(&journal, &metrics, texts, Box::new(sequence_text));
    let rules = registry.rules();
    let calls = call_rights(&host.caller, rules.grants.models(name), &metrics, &settings.name);
    let options = ProcessorOptions {
        instances: calls.is_some().then_some(rules.instances),
        calls,
        config: component
            .declared()
            .settings
            .fill(&says.config, says.parameters.iter().map(|(name, text)| (name.as_str(), text.as_str())))?,
        is_model: says.is_model,
        limits: Limits { time: says.time.unwrap_or(TIME), memory: says.memory.or(rules.memory) },
        on_failure: if says.bypass { OnFailure::Bypass } else { OnFailure::Fail },
        files: files::read(&settings.directory, &says.files)?,
        strikes: rules.strikes,
    };
    let clock = Arc::clone(registry.clock());
    let (services, name, purpose) = (Arc::new(services), name.to_owned(), purpose_of(model));
    Ok(ProcessorSource { name, component, options, services, metrics, journal, clock, purpose })
}

/// The purpose of the room of a load's plug-ins. Those of a load that serves leave their room later.
pub(super) fn purpose_of(model: &ModelScheduler) -> RoomPurpose {
    let serves = model.loads().iter().any(|load| !load.is_retired());
    if serves { RoomPurpose::Replacement } else { RoomPurpose::New }
}
