//! A processor in the contract's functions, over plain data. The component and the test bench are thin layers over this.

use super::Processor;
use super::call::{Call, CallFacts};
use super::files::Files;
use super::prepared::{Prepared, RUNS};
use super::refusal::{Refusal, code, refuse};
use super::scratch::Scratch;
use super::signature::{Port, Signature};
use super::tensor::Tensor;
use super::tensors::Tensors;
use crate::config::Config;
use crate::model::Model;

/// A tensor for the port of this index.
pub type Value = (u32, Tensor);

/// The new scratch after a call; `None` leaves it unchanged.
pub type NewScratch = Option<Vec<u8>>;

/// The server's next action for a prepared request, by the indices of ports.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Run(Vec<Vec<Value>>),
    Reply(Vec<Value>),
}

/// One instance: the author's type, the model, and the signatures on both sides.
#[derive(Debug, Default)]
pub struct Instance<P> {
    pub plugin: P,
    model: Model,
    inner: Signature,
    outer: Signature,
}

impl<P: Processor> Instance<P> {
    pub fn configure(
        &mut self,
        config: &str,
        model: Model,
        inner: Signature,
        files: &Files,
    ) -> Result<Signature, String> {
        self.model = model;
        self.outer = self.plugin.configure(&Config::from_json(config)?, &self.model, &inner, files)?;
        self.inner = inner;
        Ok(self.outer.clone())
    }

    pub fn pre(
        &mut self,
        facts: &CallFacts,
        scratch: &[u8],
        inputs: Vec<Value>,
    ) -> Result<(Action, NewScratch), Refusal> {
        let mut kept = load::<P>(scratch);
        let call = Call { facts, model: &self.model, outer: &self.outer };
        let inputs = named(&self.outer.inputs, inputs);
        let action = match self.plugin.pre(&call, inputs, &mut kept)? {
            Prepared::Run(runs) if runs.len() > RUNS => {
                let text = format!("the request needs more than {RUNS} runs of the model. Send less in one request");
                return Err(refuse(code::WRONG_REQUEST, text));
            }
            Prepared::Run(runs) => Action::Run(
                runs.into_iter().map(|run| placed(&self.inner.inputs, run, "the model has no input")).collect(),
            ),
            Prepared::Reply(outputs) => {
                Action::Reply(placed(&self.outer.outputs, outputs, "clients do not see an output"))
            }
        };
        Ok((action, changed(&kept, scratch)))
    }

    pub fn post(
        &mut self,
        facts: &CallFacts,
        scratch: &[u8],
        runs: Vec<Vec<Value>>,
    ) -> Result<(Vec<Value>, NewScratch), Refusal> {
        let mut kept = load::<P>(scratch);
        let call = Call { facts, model: &self.model, outer: &self.outer };
        let runs = runs.into_iter().map(|run| named(&self.inner.outputs, run)).collect();
        let outputs = self.plugin.post(&call, runs, &mut kept)?;
        let outputs = placed(&self.outer.outputs, outputs, "clients do not see an output");
        Ok((outputs, changed(&kept, scratch)))
    }
}

/// Loads the scratch. If the bytes cannot be parsed, the call traps, and the sequence keeps its scratch.
fn load<P: Processor>(bytes: &[u8]) -> P::Scratch {
    if bytes.is_empty() {
        return P::Scratch::default();
    }
    P::Scratch::load(bytes).unwrap_or_else(|what| panic!("{what}"))
}

fn changed<S: Scratch>(kept: &S, before: &[u8]) -> NewScratch {
    Some(kept.save()).filter(|now| now != before)
}

pub(crate) fn named(ports: &[Port], values: Vec<Value>) -> Tensors {
    let name = |port: u32| ports.get(port as usize).map_or_else(|| port.to_string(), |port| port.name.clone());
    values.into_iter().map(|(port, tensor)| (name(port), tensor)).collect()
}

/// Tensors by the indices of ports. An unknown name is an error of the plug-in, and traps.
pub(crate) fn placed(ports: &[Port], tensors: Tensors, missing: &str) -> Vec<Value> {
    let place = |name: &str| {
        let at = ports.iter().position(|port| port.name == name);
        at.and_then(|at| u32::try_from(at).ok()).unwrap_or_else(|| {
            let names = ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
            panic!("{missing} \"{name}\"; there are {names}")
        })
    };
    tensors.into_entries().map(|(name, tensor)| (place(&name), tensor)).collect()
}
