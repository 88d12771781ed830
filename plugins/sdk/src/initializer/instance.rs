//! An initializer in the contract's functions, over plain data. The component and the test bench are thin layers over this.

use super::{FirstState, Initializer, Ports};
use crate::config::Config;
use crate::model::Model;
use crate::processor::instance::{named, placed};
use crate::processor::{Call, CallFacts, Files, Refusal, Signature, Value};

/// The first state of a sequence, by the indices of ports.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Default,
    States(Vec<Value>),
    CopyOf(String),
    Kept(String),
}

/// One instance: the author's type, and its model.
#[derive(Debug, Default)]
pub struct Instance<P> {
    pub plugin: P,
    model: Model,
    ports: Ports,
    /// The outputs of the call: a START has none for its initializer.
    none: Signature,
}

impl<P: Initializer> Instance<P> {
    pub fn configure(&mut self, config: &str, model: Model, ports: Ports, files: &Files) -> Result<(), String> {
        (self.model, self.ports) = (model, ports);
        self.plugin.configure(&Config::from_json(config)?, &self.model, &self.ports, files)
    }

    pub fn initialize(&mut self, facts: &CallFacts, inputs: Vec<Value>) -> Result<Answer, Refusal> {
        let call = Call { facts, model: &self.model, outer: &self.none };
        Ok(match self.plugin.initialize(&call, named(&self.ports.request, inputs))? {
            FirstState::Default => Answer::Default,
            FirstState::States(states) => Answer::States(placed(&self.ports.states, states, "the model has no state")),
            FirstState::CopyOf(id) => Answer::CopyOf(id),
            FirstState::Kept(name) => Answer::Kept(name),
        })
    }

    pub fn steps(&mut self, name: &str, facts: &CallFacts, inputs: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal> {
        let call = Call { facts, model: &self.model, outer: &self.none };
        let steps = self.plugin.steps(name, &call, named(&self.ports.request, inputs))?;
        Ok(steps.into_iter().map(|step| placed(&self.ports.step, step, "the model has no input")).collect())
    }
}
