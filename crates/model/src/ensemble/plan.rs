//! The plan of an ensemble: its steps with the numbers of their tensors, in the order of the configuration. Built once a load.

use std::collections::BTreeMap;
use std::time::Duration;

use sequor_core::{DataType, Dim, Dims};

use crate::config::fault::did_you_mean;
use crate::config::model::settings::{EnsembleSettings, EnsembleStep, Input, ModelSettings, Output};

/// A model's inputs and outputs as its clients, and thus ensembles, see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberSignature {
    pub(crate) name: String,
    /// 0 if the first dimension is not a batch dimension.
    pub(crate) max_batch_size: u32,
    pub(crate) inputs: Vec<MemberPort>,
    pub(crate) outputs: Vec<MemberPort>,
    /// For a member with sequences: the idle time of a sequence, if it has one.
    pub(crate) sequences: Option<Option<Duration>>,
    pub(crate) is_ensemble: bool,
}

/// An input or output. The dimensions exclude the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberPort {
    pub(crate) name: String,
    pub(crate) dtype: DataType,
    pub(crate) dims: Dims,
    pub(crate) optional: bool,
}

/// Why an ensemble cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnsembleFault {
    /// The step with the fault, if the fault is about one step.
    pub(crate) step: Option<usize>,
    pub(crate) what: String,
}

/// How requests go through an ensemble.
#[derive(Debug, Clone)]
pub(crate) struct EnsemblePlan {
    pub(crate) steps: Vec<MemberStep>,
    /// Number of the ensemble's tensors.
    pub(crate) tensors: usize,
    /// The tensor of each input and of each output, in the order of the settings.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// The steps whose members have sequences, ordered by the members' names. A START takes its slots in this order.
    pub(crate) stateful: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct MemberStep {
    pub(crate) model: String,
    /// `None` means the latest version.
    pub(crate) version: Option<u64>,
    pub(crate) is_stateful: bool,
    /// Each input of the member, with the number of its tensor.
    pub(crate) inputs: Vec<(String, usize)>,
    /// Each output of the member, with the number of the tensor that it becomes.
    pub(crate) outputs: Vec<(String, usize)>,
}

impl MemberSignature {
    /// The signature of a model with these settings, as its clients see them.
    pub(crate) fn new(settings: &ModelSettings, sequences: Option<Option<Duration>>) -> MemberSignature {
        let input =
            |i: &Input| MemberPort { name: i.name.clone(), dtype: i.dtype, dims: i.dims.clone(), optional: i.optional };
        let output =
            |o: &Output| MemberPort { name: o.name.clone(), dtype: o.dtype, dims: o.dims.clone(), optional: true };
        MemberSignature {
            name: settings.name.clone(),
            max_batch_size: settings.max_batch_size,
            inputs: settings.inputs.iter().map(input).collect(),
            outputs: settings.outputs.iter().map(output).collect(),
            sequences,
            is_ensemble: settings.ensemble.is_some(),
        }
    }
}

/// A tensor as the first model that uses it declares it.
struct InferredTensor<'a> {
    model: &'a str,
    batches: bool,
    dtype: DataType,
    dims: &'a Dims,
}

impl EnsemblePlan {
    /// Builds the plan of an ensemble from the signature of each step's member. On error returns every mismatch.
    pub(crate) fn new(
        settings: &ModelSettings,
        ensemble: &EnsembleSettings,
        members: &[MemberSignature],
    ) -> Result<EnsemblePlan, Vec<EnsembleFault>> {
        let mut faults = Vec::new();
        let mut known = own_tensors(settings);
        for (n, (step, member)) in ensemble.steps.iter().zip(members).enumerate() {
            let mut fault = |what: String| faults.push(EnsembleFault { step: Some(n), what });
            batch_sizes(settings, member, &mut fault);
            ports(&settings.name, step, member, &mut known, &mut fault);
        }
        sequences(&settings.name, members, &mut faults);
        if faults.is_empty() { Ok(EnsemblePlan::numbered(settings, ensemble, members)) } else { Err(faults) }
    }

    fn numbered(settings: &ModelSettings, ensemble: &EnsembleSettings, members: &[MemberSignature]) -> EnsemblePlan {
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        let number = |tensor: &String, of: &mut BTreeMap<String, usize>| {
            let next = of.len();
            *of.entry(tensor.clone()).or_insert(next)
        };
        let inputs = settings.inputs.iter().map(|input| number(&input.name, &mut of)).collect();
        let steps: Vec<MemberStep> = ensemble
            .steps
            .iter()
            .zip(members)
            .map(|(step, member)| MemberStep {
                model: step.model.clone(),
                version: step.version,
                is_stateful: member.sequences.is_some(),
                inputs: step.inputs.iter().map(|(port, tensor)| (port.clone(), number(tensor, &mut of))).collect(),
                outputs: step.outputs.iter().map(|(port, tensor)| (port.clone(), number(tensor, &mut of))).collect(),
            })
            .collect();
        let outputs = settings.outputs.iter().map(|output| number(&output.name, &mut of)).collect();
        let mut stateful: Vec<usize> =
            (0..steps.len()).filter(|n| steps.get(*n).is_some_and(|s| s.is_stateful)).collect();
        stateful.sort_by_key(|n| steps.get(*n).map(|step| step.model.clone()));
        EnsemblePlan { steps, tensors: of.len(), inputs, outputs, stateful }
    }
}

fn own_tensors(settings: &ModelSettings) -> BTreeMap<&str, InferredTensor<'_>> {
    let (model, batches) = (settings.name.as_str(), settings.max_batch_size > 0);
    let of = |dtype, dims| InferredTensor { model, batches, dtype, dims };
    let inputs = settings.inputs.iter().map(|i| (i.name.as_str(), of(i.dtype, &i.dims)));
    inputs.chain(settings.outputs.iter().map(|o| (o.name.as_str(), of(o.dtype, &o.dims)))).collect()
}

fn batch_sizes(settings: &ModelSettings, member: &MemberSignature, fault: &mut dyn FnMut(String)) {
    let (own, of_member) = (settings.max_batch_size, member.max_batch_size);
    // A member without a batch dimension gets whole shapes.
    if of_member != 0 && of_member < own {
        let (ensemble, name) = (&settings.name, &member.name);
        fault(format!(
            "ensemble {ensemble} allows maximum batch size {own}, but it contains model {name} which only allows maximum batch size to be {of_member}"
        ));
    }
}

/// Checks that every input of a member gets one tensor, that every mapped output exists, and that types and shapes agree.
fn ports<'a>(
    ensemble: &str,
    step: &'a EnsembleStep,
    member: &'a MemberSignature,
    known: &mut BTreeMap<&'a str, InferredTensor<'a>>,
    fault: &mut dyn FnMut(String),
) {
    let model = member.name.as_str();
    let is_mapped = |input: &&MemberPort| step.inputs.iter().any(|(port, _)| *port == input.name);
    let free: Vec<&str> = member.inputs.iter().filter(|input| !is_mapped(input)).map(|input| &*input.name).collect();
    let mut offers = Vec::new();
    for (port, tensor) in &step.inputs {
        match member.inputs.iter().find(|input| input.name == *port) {
            Some(input) => agree(ensemble, tensor, member, input, known, fault),
            None => {
                let near = did_you_mean(port, free.iter().copied());
                fault(format!(
                    "in ensemble {ensemble}, ensemble tensor {tensor} is mapping to non-existing input {port} in model {model}{near}"
                ));
                offers.push((port, near));
            }
        }
    }
    // An input that another fault offers as the right name is no fault of its own.
    let is_offered = |input: &&MemberPort| {
        offers.iter().any(|(port, near)| !near.is_empty() && *near == did_you_mean(port, [&*input.name]))
    };
    let unmapped = member.inputs.iter().filter(|input| !input.optional && !is_mapped(input) && !is_offered(input));
    for input in unmapped {
        let name = &input.name;
        fault(format!("in ensemble {ensemble}, input {name} in model {model} is not mapped to any ensemble tensors"));
    }
    for (port, tensor) in &step.outputs {
        match member.outputs.iter().find(|output| output.name == *port) {
            Some(output) => agree(ensemble, tensor, member, output, known, fault),
            None => {
                let near = did_you_mean(port, member.outputs.iter().map(|output| &*output.name));
                fault(format!(
                    "in ensemble {ensemble}, ensemble tensor {tensor} is mapped from non-existing output {port} in model {model}{near}"
                ));
            }
        }
    }
}

/// Checks a member's declaration of a tensor against the earlier ones.
fn agree<'a>(
    ensemble: &str,
    tensor: &'a str,
    member: &'a MemberSignature,
    port: &'a MemberPort,
    known: &mut BTreeMap<&'a str, InferredTensor<'a>>,
    fault: &mut dyn FnMut(String),
) {
    let here =
        InferredTensor { model: &member.name, batches: member.max_batch_size > 0, dtype: port.dtype, dims: &port.dims };
    let Some(there) = known.get(tensor) else {
        known.insert(tensor, here);
        return;
    };
    let head = format!("in ensemble {ensemble}, ensemble tensor {tensor}: ");
    let (one, other) = (there.model, here.model);
    if there.dtype != here.dtype {
        let (a, b) = (there.dtype.config_name(), here.dtype.config_name());
        fault(format!(
            "{head}inconsistent data type: {a} is inferred from model {one} while {b} is inferred from model {other}"
        ));
    } else if !same(there.dims, here.dims) && !same(&there.whole(), &here.whole()) {
        let (a, b) = (there.whole(), here.whole());
        fault(format!(
            "{head}inconsistent shape: {a} is inferred from model {one} while {b} is inferred from model {other}"
        ));
    }
}

impl InferredTensor<'_> {
    /// The dimensions including the batch dimension.
    fn whole(&self) -> Dims {
        if self.batches { self.dims.with(0, Dim::Any) } else { self.dims.clone() }
    }
}

/// Whether a shape can match both.
fn same(one: &Dims, other: &Dims) -> bool {
    let fits = |(a, b): (&Dim, &Dim)| a.fixed().zip(b.fixed()).is_none_or(|(a, b)| a == b);
    one.rank() == other.rank() && one.0.iter().zip(&other.0).all(fits)
}

/// Checks that no member with sequences has two steps: a sequence has one request at a time in each member.
fn sequences(ensemble: &str, members: &[MemberSignature], faults: &mut Vec<EnsembleFault>) {
    for (n, member) in members.iter().enumerate().filter(|(_, member)| member.sequences.is_some()) {
        let name = &member.name;
        if members.iter().take(n).any(|earlier| earlier.name == *name) {
            let what = format!(
                "ensemble {ensemble} has model {name} in two steps; a model with sequence_batching can have one, \
                 since one step of a sequence is one request"
            );
            faults.push(EnsembleFault { step: Some(n), what });
        }
        if member.is_ensemble {
            let what = format!(
                "ensemble {ensemble} contains ensemble {name}, whose members have sequences; list the steps of {name} here instead, \
                 so that a sequence can take all its slots before its first step"
            );
            faults.push(EnsembleFault { step: Some(n), what });
        }
    }
}
