//! An initializer's component: checked against the contract, configured for the model of a case, and called.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_wasm::counter::CounterName;
use sequor_wasm::instances::ReplacedGuests;
use sequor_wasm::journal::Journal;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::Services;

use super::case::{CaseStart, InitializerCase};
use crate::author::processor::trial::TrialClock;
use crate::author::trial::{TrialOptions, compile};
use crate::author::{AuthorError, Machine};
use crate::config::model::LoadFacts;
use crate::initializing::{
    FirstAnswer, Initializer, InitializerComponent, InitializerOptions, InitializerSource, KeptStates,
};
use crate::processing::{CallFacts, PortTensors, ProcessorRefusal, files};
use crate::scheduling::key_interner;
use crate::state::budget::Budget;
use crate::telemetry::{KeptMetrics, Metrics};

/// A component that passes a server's checks.
#[derive(Debug)]
pub struct InitializerTrial {
    pub component: Arc<InitializerComponent>,
    options: TrialOptions,
    file: PathBuf,
    /// Time to compile it, or to load the cached code.
    pub loading: Duration,
}

/// A configured initializer.
#[derive(Debug)]
pub struct RunningInitializer {
    initializer: Initializer,
    keys: Vec<String>,
    numbers: Vec<String>,
    pub starting: Duration,
}

/// The answer to a START.
#[derive(Debug)]
pub struct StartAnswer {
    pub first: FirstAnswer,
    /// The inputs of each step, if it asks for steps.
    pub steps: Vec<PortTensors>,
    pub initialize: Duration,
    /// Time to ask for the steps; zero without steps.
    pub asking: Duration,
}

impl InitializerTrial {
    /// Checks a file against the contract.
    pub fn new(
        file: &Path,
        bytes: &[u8],
        machine: &Machine,
        options: TrialOptions,
    ) -> Result<InitializerTrial, AuthorError> {
        let (component, loading) = compile(file, machine, |engine, name, cache| {
            InitializerComponent::new(engine, name, bytes, options.grants, cache)
        })?;
        Ok(InitializerTrial { component: Arc::new(component), options, file: file.to_owned(), loading })
    }

    /// Configures it for the model of a case.
    pub fn start(&self, case: &InitializerCase) -> Result<RunningInitializer, AuthorError> {
        let wrong =
            |what: String| AuthorError::Component { path: self.file.clone(), what: format!("configure: {what}") };
        let files = files::read(case.folder(), &case.files).map_err(|what| AuthorError::file(&case.path, what))?;
        let (keys, numbers) = (case.keys.clone(), case.numbers.clone());
        let facts = LoadFacts {
            name: "model".to_owned(),
            version: 1,
            strategy: "oldest",
            max_batch: 1,
            instances: 1,
            slots: 64,
            numbers: numbers.clone(),
            keys: keys.clone(),
        };
        let config = self.options.config_or(&case.config);
        let options = InitializerOptions { config, limits: self.options.limits, files, strikes: u32::MAX };
        let name = self.component.declared().name.clone();
        let source = InitializerSource {
            component: Arc::clone(&self.component),
            options,
            services: Arc::new(CaseServices::new(case)),
            metrics: Metrics::new(false).initializer(&name),
            journal: Arc::new(Journal::new(&name)),
            clock: Arc::new(TrialClock),
            purpose: RoomPurpose::New,
            kept: KeptStates::new(0, Budget::new(0), KeptMetrics::default()),
            name,
        };
        let began = Instant::now();
        let initializer = Initializer::new(source, &facts, case.ports.clone(), 1).map_err(|what| wrong(what.into()))?;
        Ok(RunningInitializer { initializer, keys, numbers, starting: began.elapsed() })
    }
}

impl RunningInitializer {
    /// Instances that did not stay after a call.
    pub fn replaced(&self) -> ReplacedGuests {
        self.initializer.replaced()
    }

    /// Asks for the first state of a START's sequence. If the answer needs steps, asks for them too.
    pub fn ask(&self, id: u64, start: &CaseStart, inputs: &PortTensors) -> Result<StartAnswer, ProcessorRefusal> {
        let key = |name: &String| start.keys.get(name).map_or(0, |text| key_interner::key(text));
        let facts = CallFacts {
            sequence: id,
            step: 1,
            start: true,
            numbers: self.numbers.iter().map(|name| start.numbers.get(name).copied().unwrap_or(0.0)).collect(),
            keys: self.keys.iter().map(key).collect(),
            ..CallFacts::default()
        };
        let began = Instant::now();
        let first = self.initializer.initialize(&facts, inputs)?;
        let initialize = began.elapsed();
        let FirstAnswer::Kept(name) = &first else {
            return Ok(StartAnswer { first, steps: Vec::new(), initialize, asking: Duration::ZERO });
        };
        let began = Instant::now();
        let steps = self.initializer.steps(name, &facts, inputs)?;
        Ok(StartAnswer { first, steps, initialize, asking: began.elapsed() })
    }
}

/// Host functions for a component on trial. Its errors and warnings go to standard error. Key texts are those of the case.
#[derive(Debug)]
struct CaseServices(BTreeMap<u64, String>);

impl CaseServices {
    fn new(case: &InitializerCase) -> CaseServices {
        let texts = case.starts.iter().flat_map(|start| start.keys.values());
        CaseServices(texts.map(|text| (key_interner::key(text), text.clone())).collect())
    }
}

impl Services for CaseServices {
    fn log(&self, level: u32, message: &str) {
        if level < 2 {
            eprintln!("{message}");
        }
    }

    fn metric_add(&self, _: &CounterName, _: f64) {}

    fn key_text(&self, key: u64) -> Option<String> {
        self.0.get(&key).cloned()
    }

    fn sequence_text(&self, sequence: u64) -> Option<String> {
        Some(sequence.to_string())
    }
}
