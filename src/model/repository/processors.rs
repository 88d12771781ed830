//! Configures the processors that a model names.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sequor_core::Seq;

use crate::config::fault::{code, did_you_mean};
use crate::config::model::settings::{ModelSettings, ProcessorPlugin};
use crate::error::LoadError;
use crate::model::load::{Processors, load_facts};
use crate::model::sequences::ModelScheduler;
use crate::processing::{Chain, OnFailure, ProcessorOptions, ProcessorSource, files};
use crate::scheduling::key_interner::KeyInterner;
use crate::telemetry::PluginMetrics;
use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::limits::Limits;
use sequor_wasm::line_budget::LineBudget;
use sequor_wasm::services::Services;

use super::processor_host::ProcessorHost;
use super::resources::Resources;

/// CPU time of a call without tensors, if the model names none.
const TIME: Duration = Duration::from_millis(10);

impl Resources {
    /// The processors that a model names, configured; none, if it names none.
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
        if self.options.tier.is_some() {
            return Err(fault(first, "processors are not served yet together with a durable tier".to_owned()));
        }
        let mut sources = Vec::with_capacity(named.len());
        for says in named {
            sources.push(self.source(host, model, settings, says, texts).map_err(|what| fault(says, what))?);
        }
        let pool = host.pool().map_err(|what| fault(first, what))?;
        let graph = Processors::signature_of(settings);
        let chain = Chain::new(sources, &load_facts(settings, version), graph, pool.size());
        let chain = chain.map_err(|(n, what)| fault(named.get(n).unwrap_or(first), what))?;
        Ok(Some(Processors { chain, pool }))
    }

    fn source(
        &self,
        host: &ProcessorHost,
        model: &Arc<ModelScheduler>,
        settings: &ModelSettings,
        says: &ProcessorPlugin,
        texts: &Arc<KeyInterner>,
    ) -> Result<ProcessorSource, String> {
        let component = Arc::new(host.component(says)?);
        let (numbers, keys) = settings.feature_names();
        for feature in &component.declared().manifest.features {
            if !numbers.contains(feature) && !keys.contains(feature) {
                let near = did_you_mean(feature, numbers.iter().chain(&keys).map(String::as_str));
                return Err(format!("it needs the feature \"{feature}\", which no [[feature]] names{near}"));
            }
        }
        let metrics = self.metrics.processor(&says.name);
        let services = ProcessorServices {
            journal: Journal::new(&says.name),
            metrics: Arc::clone(&metrics),
            texts: Arc::clone(texts),
            model: Arc::downgrade(model),
        };
        let options = ProcessorOptions {
            config: says.config.clone(),
            limits: Limits { time: says.time.unwrap_or(TIME), memory: says.memory.or(host.memory) },
            on_failure: if says.bypass { OnFailure::Bypass } else { OnFailure::Fail },
            files: files::read(&settings.directory, &says.files)?,
        };
        Ok(ProcessorSource { name: says.name.clone(), component, options, services: Arc::new(services), metrics })
    }
}

/// What the guests of a processor may ask the server for.
#[derive(Debug)]
struct ProcessorServices {
    journal: Journal,
    metrics: Arc<PluginMetrics>,
    texts: Arc<KeyInterner>,
    model: Weak<ModelScheduler>,
}

impl Services for ProcessorServices {
    fn line_budget(&self) -> Arc<LineBudget> {
        Arc::clone(self.journal.line_budget())
    }

    fn log(&self, level: u32, message: &str) {
        self.journal.write(Level::of(level), message);
    }

    fn metric_add(&self, name: &str, value: f64) {
        if self.journal.count(name, value) {
            self.metrics.count(name, value);
        }
    }

    fn key_text(&self, key: u64) -> Option<String> {
        self.texts.text(key)
    }

    fn sequence_text(&self, sequence: u64) -> Option<String> {
        self.model.upgrade()?.id_of(Seq::of_handle(sequence)?).map(|id| id.to_string())
    }
}
