//! A processor's component: checked against the contract, configured in front of a stand-in for its model, and called.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_core::Time;
use sequor_wasm::counter::CounterName;
use sequor_wasm::instances::ReplacedGuests;
use sequor_wasm::journal::Journal;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::Services;

use super::case::ProcessorCase;
use crate::author::trial::{TrialOptions, compile};
use crate::author::{AuthorError, Machine};
use crate::config::model::LoadFacts;
use crate::processing::health::ProcessorTime;
use crate::processing::{
    CallFacts, Chain, OnFailure, Plan, PortTensors, ProcessorComponent, ProcessorOptions, ProcessorRefusal,
    ProcessorSource, SequenceScratch, TensorSignature, files,
};
use crate::telemetry::Metrics;

/// A component that passes a server's checks.
#[derive(Debug)]
pub struct ProcessorTrial {
    pub component: Arc<ProcessorComponent>,
    options: TrialOptions,
    file: PathBuf,
    /// Time to compile it, or to load the cached code.
    pub loading: Duration,
}

/// A configured processor in front of a stand-in.
#[derive(Debug)]
pub struct TrialChain {
    chain: Chain,
    features: usize,
    pub starting: Duration,
}

/// One sequence of a running processor.
#[derive(Debug)]
pub struct TrialSequence<'a> {
    running: &'a TrialChain,
    id: u64,
    step: u64,
    scratch: SequenceScratch,
}

/// The result of one request.
#[derive(Debug)]
pub struct TrialAnswer {
    /// The inputs of each run of the model.
    pub runs: Vec<PortTensors>,
    pub outputs: PortTensors,
    pub pre: Duration,
    pub post: Duration,
}

impl ProcessorTrial {
    /// Checks a file against the contract.
    pub fn new(
        file: &Path,
        bytes: &[u8],
        machine: &Machine,
        options: TrialOptions,
    ) -> Result<ProcessorTrial, AuthorError> {
        let (component, loading) = compile(file, machine, |engine, name, cache| {
            ProcessorComponent::new(engine, name, bytes, options.grants, cache)
        })?;
        Ok(ProcessorTrial { component: Arc::new(component), options, file: file.to_owned(), loading })
    }

    /// Configures it in front of the model of a case.
    pub fn start(&self, case: &ProcessorCase) -> Result<TrialChain, AuthorError> {
        let wrong =
            |what: String| AuthorError::Component { path: self.file.clone(), what: format!("configure: {what}") };
        let files = files::read(case.folder(), &case.files).map_err(|what| AuthorError::file(&case.path, what))?;
        // The model decides a feature's type, so each feature is present as both types.
        let features: Vec<String> = self.component.declared().manifest.features.iter().take(4).cloned().collect();
        let count = features.len();
        let facts = LoadFacts {
            name: "model".to_owned(),
            version: 1,
            strategy: "oldest",
            max_batch: 1,
            instances: 1,
            slots: 64,
            numbers: features.clone(),
            keys: features,
        };
        let config = self.options.config_or(&case.config);
        let options = ProcessorOptions {
            config,
            limits: self.options.limits,
            on_failure: OnFailure::Fail,
            files,
            strikes: u32::MAX,
            calls: None,
            is_model: false,
            instances: None,
        };
        let name = self.component.declared().name.clone();
        let metrics = Metrics::new(false).processor(&name);
        let component = Arc::clone(&self.component);
        let source = ProcessorSource {
            journal: Arc::new(Journal::new(&name)),
            name,
            component,
            options,
            services: Arc::new(TrialServices),
            metrics,
            clock: Arc::new(TrialClock),
            purpose: RoomPurpose::New,
        };
        let began = Instant::now();
        let chain = Chain::new(vec![source], &facts, case.model.clone(), 1).map_err(|(_, what)| wrong(what.into()))?;
        Ok(TrialChain { chain, features: count, starting: began.elapsed() })
    }
}

impl TrialChain {
    /// The inputs and outputs for clients.
    pub fn signature(&self) -> TensorSignature {
        self.chain.signature()
    }

    /// Instances that did not stay after a call.
    pub fn replaced(&self) -> ReplacedGuests {
        self.chain.replaced()
    }

    /// Creates a sequence that starts with its next request.
    pub fn sequence(&self, id: u64) -> TrialSequence<'_> {
        TrialSequence { running: self, id, step: 0, scratch: SequenceScratch::default() }
    }
}

impl TrialSequence<'_> {
    /// Sends a request. `answer` replaces the model.
    pub fn send(
        &mut self,
        inputs: PortTensors,
        is_end: bool,
        answer: &mut dyn FnMut(&PortTensors) -> PortTensors,
    ) -> Result<TrialAnswer, ProcessorRefusal> {
        let TrialChain { chain, features, .. } = self.running;
        self.step += 1;
        let outputs = u32::try_from(chain.signature().outputs.len()).unwrap_or(0);
        let facts = CallFacts {
            sequence: self.id,
            step: self.step,
            start: self.step == 1,
            end: is_end,
            numbers: vec![1.0; *features],
            keys: vec![1; *features],
            outputs: (0..outputs).collect(),
            calling: None,
        };
        let began = Instant::now();
        let prepared = chain.pre(&facts, &self.scratch, inputs)?;
        let pre = began.elapsed();
        let runs = match prepared.plan {
            Plan::Reply(outputs) => {
                self.scratch = prepared.pending.into_scratch();
                return Ok(TrialAnswer { runs: Vec::new(), outputs, pre, post: Duration::ZERO });
            }
            Plan::Run(runs) => runs,
        };
        // If no processor fills an END without inputs, the model does not run.
        let answers = runs.iter().map(|run| if run.is_empty() { PortTensors::new() } else { answer(run) }).collect();
        let began = Instant::now();
        match chain.post(&facts, prepared.pending, answers) {
            Ok((outputs, scratch)) => {
                self.scratch = scratch;
                let runs = runs.into_iter().filter(|run| !run.is_empty()).collect();
                Ok(TrialAnswer { runs, outputs, pre, post: began.elapsed() })
            }
            Err((refusal, scratch)) => {
                self.scratch = scratch;
                Err(refusal)
            }
        }
    }

    /// Bytes of the sequence's scratch.
    pub fn scratch(&self) -> u64 {
        self.scratch.size()
    }
}

/// A clock that stands still: a trial does not count strikes over time.
#[derive(Debug)]
pub(in crate::author) struct TrialClock;

impl ProcessorTime for TrialClock {
    fn now(&self) -> Time {
        Time(0)
    }
}

/// Host functions for a component on trial. Its errors and warnings go to standard error.
#[derive(Debug)]
struct TrialServices;

impl Services for TrialServices {
    fn log(&self, level: u32, message: &str) {
        if level < 2 {
            eprintln!("{message}");
        }
    }

    fn metric_add(&self, _: &CounterName, _: f64) {}

    fn key_text(&self, key: u64) -> Option<String> {
        Some(format!("text {key}"))
    }

    fn sequence_text(&self, sequence: u64) -> Option<String> {
        Some(sequence.to_string())
    }
}
