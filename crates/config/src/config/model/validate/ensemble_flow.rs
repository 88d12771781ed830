//! Checks the flow of tensors of an ensemble: every tensor is written before it is read, and every input and tensor is used. The sentences
//! are Triton's; behind each stands the step that is concerned, and the nearest name.
//!
//! Each mistake is one fault. A tensor is no fault of its own if its step only waits for a tensor that is one, or if another fault offers
//! its name.

use std::collections::{BTreeMap, BTreeSet};

use sequor_proto::{ModelConfig, ModelEnsembling, model_ensembling::Step};

use crate::config::fault::{code, did_you_mean};
use crate::config::model::report::Report;

const FIELD: &str = "ensemble_scheduling";

/// Checks an ensemble whose steps are complete, and whose tensors each have at most one writer.
pub(super) fn check(report: &mut Report<'_>, written: &ModelConfig, ensemble: &ModelEnsembling) {
    let flow = TensorUses::new(written, ensemble);
    let mut circles = BTreeSet::new();
    let (inputs, outputs) = (flow.unused_inputs(), flow.unwritten_outputs(&mut circles));
    let tensors = flow.unused_tensors(&mut circles);
    for (field, what) in inputs.into_iter().chain(outputs).chain(tensors) {
        report.fault(&field, code::ENSEMBLE, what);
    }
}

/// A field of config.pbtxt, and what is wrong there.
type TensorFault = (String, String);

/// Which steps read and write which tensor.
struct TensorUses<'a> {
    name: &'a str,
    written: &'a ModelConfig,
    steps: &'a [Step],
    /// The first step that reads each tensor, and its input.
    readers: BTreeMap<&'a str, (usize, &'a str)>,
    writers: BTreeMap<&'a str, usize>,
    /// The tensors that the steps compute from a request's inputs, and these inputs.
    ready: BTreeSet<&'a str>,
}

impl<'a> TensorUses<'a> {
    fn new(written: &'a ModelConfig, ensemble: &'a ModelEnsembling) -> TensorUses<'a> {
        let (mut readers, mut writers) = (BTreeMap::new(), BTreeMap::new());
        for (n, step) in ensemble.step.iter().enumerate() {
            // Maps have no order of their own, and a message must not change from load to load.
            for (input, tensor) in step.input_map.iter().collect::<BTreeMap<_, _>>() {
                readers.entry(tensor.as_str()).or_insert((n, input.as_str()));
            }
            writers.extend(step.output_map.values().map(|tensor| (tensor.as_str(), n)));
        }
        let ready = ready_tensors(written, ensemble);
        TensorUses { name: &written.name, written, steps: &ensemble.step, readers, writers, ready }
    }

    fn is_input(&self, tensor: &str) -> bool {
        self.written.input.iter().any(|input| input.name == tensor)
    }

    fn is_output(&self, tensor: &str) -> bool {
        self.written.output.iter().any(|output| output.name == tensor)
    }

    /// Whether a step or a request gives this tensor.
    fn has_source(&self, tensor: &str) -> bool {
        self.is_input(tensor) || self.writers.contains_key(tensor)
    }

    /// `step 1 ('decoder')`.
    fn step(&self, n: usize) -> String {
        let model = self.steps.get(n).map(|step| step.model_name.as_str()).unwrap_or_default();
        format!("step {n} ('{model}')")
    }

    /// The nearest name of a tensor that a step or a request gives.
    fn near_source(&self, tensor: &str) -> String {
        let inputs = self.written.input.iter().map(|input| input.name.as_str());
        did_you_mean(tensor, inputs.chain(self.writers.keys().copied()))
    }

    /// The nearest name of a tensor that is wanted, but that no step and no request gives.
    fn near_wanted(&self, tensor: &str) -> String {
        let outputs = self.written.output.iter().map(|output| output.name.as_str());
        did_you_mean(tensor, outputs.chain(self.readers.keys().copied()).filter(|wanted| !self.has_source(wanted)))
    }

    /// Whether the fault of a tensor that is wanted offers this name, and this tensor's fault would offer that one.
    fn is_offered(&self, tensor: &str) -> bool {
        let outputs = self.written.output.iter().map(|output| output.name.as_str());
        let mut wanted = outputs.chain(self.readers.keys().copied()).filter(|wanted| !self.has_source(wanted));
        let is_offer = |offer: String, to: &str, name: &str| !offer.is_empty() && offer == did_you_mean(to, [name]);
        wanted.any(|wanted| {
            is_offer(self.near_wanted(tensor), tensor, wanted) && is_offer(self.near_source(wanted), wanted, tensor)
        })
    }

    fn unused_inputs(&self) -> Vec<TensorFault> {
        let is_unused = |input: &str| !self.readers.contains_key(input) && !self.is_offered(input);
        let unused = self.written.input.iter().enumerate().filter(|(_, input)| is_unused(&input.name));
        let fault = |(n, input): (usize, &sequor_proto::ModelInput)| {
            let (tensor, name) = (&input.name, self.name);
            let near = self.near_wanted(tensor);
            (
                format!("input[{n}]"),
                format!("ensemble input '{tensor}' for ensemble {name}' is not used (no step reads it{near})"),
            )
        };
        unused.map(fault).collect()
    }

    fn unwritten_outputs(&self, circles: &mut BTreeSet<usize>) -> Vec<TensorFault> {
        let fault = |(n, output): (usize, &sequor_proto::ModelOutput)| {
            let (tensor, name) = (output.name.as_str(), self.name);
            let what = match self.readers.contains_key(tensor) || self.writers.contains_key(tensor) {
                false => {
                    let near = self.near_source(tensor);
                    format!("ensemble output '{tensor}' for ensemble {name}' is not used (no step writes it{near})")
                }
                true if self.ready.contains(tensor) || self.follows(tensor, circles) => return None,
                true => {
                    format!("output '{tensor}' for ensemble '{name}' is not written ({})", self.why_unwritten(tensor))
                }
            };
            Some((format!("output[{n}]"), what))
        };
        self.written.output.iter().enumerate().filter_map(fault).collect()
    }

    /// Faults of tensors that are read and not written, or written and not read.
    fn unused_tensors(&self, circles: &mut BTreeSet<usize>) -> Vec<TensorFault> {
        let all: BTreeSet<&str> = self.writers.keys().chain(self.readers.keys()).copied().collect();
        let is_used = |tensor: &str| self.ready.contains(tensor) && self.readers.contains_key(tensor);
        let unused = all.into_iter().filter(|tensor| !self.is_output(tensor) && !is_used(tensor));
        let is_fault = |tensor: &&str| match self.readers.contains_key(tensor) {
            true => !self.follows(tensor, circles),
            false => !self.is_offered(tensor),
        };
        unused
            .filter(is_fault)
            .map(|tensor| {
                let (field, why) = match (self.readers.get(tensor), self.writers.get(tensor)) {
                    (None, Some(n)) => (
                        format!("{FIELD}.step[{n}].output_map"),
                        format!(
                            "{} writes it, but no step reads it and it is no output of the ensemble{}",
                            self.step(*n),
                            self.near_wanted(tensor)
                        ),
                    ),
                    (Some((n, _)), _) => (format!("{FIELD}.step[{n}].input_map"), self.why_unwritten(tensor)),
                    (None, None) => (FIELD.to_owned(), "no step reads or writes it".to_owned()),
                };
                (field, format!("ensemble tensor '{tensor}' is unused in ensemble '{}' ({why})", self.name))
            })
            .collect()
    }

    /// Whether the fault of this tensor, which is not ready, follows from another one: its step waits for a tensor that no step writes, or for a
    /// circle of steps that is reported already. `circles` are the steps of these.
    fn follows(&self, tensor: &str, circles: &mut BTreeSet<usize>) -> bool {
        let Some(writer) = self.writers.get(tensor) else { return false };
        let (missing, waiting) = self.first_missing(*writer);
        let is_reported = !waiting.is_disjoint(circles);
        if missing.is_none() {
            circles.extend(waiting);
        }
        missing.is_some() || is_reported
    }

    /// Why no run computes this tensor, which is not ready.
    fn why_unwritten(&self, tensor: &str) -> String {
        let Some(writer) = self.writers.get(tensor) else {
            let near = self.near_source(tensor);
            let reader = self.readers.get(tensor);
            let reads = reader.map(|(n, input)| format!("{} reads it as its input '{input}', but ", self.step(*n)));
            return format!("{}no step writes it and it is no input of the ensemble{near}", reads.unwrap_or_default());
        };
        let step = self.step(*writer);
        match self.first_missing(*writer).0 {
            Some(missing) => {
                format!("{step} writes it, but cannot run: no step writes '{missing}'{}", self.near_source(missing))
            }
            None => format!("{step} writes it, but cannot run: it waits for a tensor that needs its own outputs first"),
        }
    }

    /// The first tensor without a writer that keeps this step from running, directly or through steps before it, and the steps on the way.
    /// No tensor if steps wait for each other in a circle.
    fn first_missing(&self, step: usize) -> (Option<&'a str>, BTreeSet<usize>) {
        let (mut waiting, mut seen) = (vec![step], BTreeSet::new());
        while let Some(n) = waiting.pop() {
            if !seen.insert(n) {
                continue;
            }
            let inputs: BTreeSet<&str> =
                self.steps.get(n).into_iter().flat_map(|step| step.input_map.values()).map(String::as_str).collect();
            for tensor in inputs.into_iter().filter(|tensor| !self.ready.contains(tensor)) {
                match self.writers.get(tensor) {
                    None => return (Some(tensor), seen),
                    Some(writer) => waiting.push(*writer),
                }
            }
        }
        (None, seen)
    }
}

fn ready_tensors<'a>(written: &'a ModelConfig, ensemble: &'a ModelEnsembling) -> BTreeSet<&'a str> {
    let mut ready: BTreeSet<&str> = written.input.iter().map(|input| input.name.as_str()).collect();
    loop {
        let can_run = |step: &&Step| step.input_map.values().all(|t| ready.contains(t.as_str()));
        let more: Vec<&str> = ensemble
            .step
            .iter()
            .filter(can_run)
            .flat_map(|step| step.output_map.values())
            .map(String::as_str)
            .filter(|tensor| !ready.contains(tensor))
            .collect();
        if more.is_empty() {
            return ready;
        }
        ready.extend(more);
    }
}
