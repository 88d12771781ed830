//! The tensors of an initializer's model.

use crate::processor::{Dtype, Port};

/// The tensors of the model.
///
/// ```
/// use sequor_plugin::initializer::*;
///
/// let ports = Ports::new().state("h", Dtype::FP32, &[2, 128]).step("token", Dtype::INT64, &[1, -1]);
/// assert_eq!(ports.find_state("h").unwrap().shape, [2, 128]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports {
    /// The states. A state has the name of the graph's input. Its shape has no batch dimension.
    pub states: Vec<Port>,
    /// The inputs that clients send with a START.
    pub request: Vec<Port>,
    /// The inputs of a step of the model. A batch dimension in the shape is 1 for a step.
    pub step: Vec<Port>,
}

impl Ports {
    #[must_use]
    pub fn new() -> Ports {
        Ports::default()
    }

    /// The same ports with one more state.
    #[must_use]
    pub fn state(mut self, name: &str, dtype: Dtype, shape: &[i64]) -> Ports {
        self.states.push(Port { optional: true, ..port(name, dtype, shape) });
        self
    }

    /// The same ports with one more input that clients send.
    #[must_use]
    pub fn request(mut self, name: &str, dtype: Dtype, shape: &[i64]) -> Ports {
        self.request.push(port(name, dtype, shape));
        self
    }

    /// The same ports with one more input of a step.
    #[must_use]
    pub fn step(mut self, name: &str, dtype: Dtype, shape: &[i64]) -> Ports {
        self.step.push(port(name, dtype, shape));
        self
    }

    /// The state of this name. The error is a sentence for the operator.
    pub fn find_state(&self, name: &str) -> Result<&Port, String> {
        find(&self.states, name, "state")
    }

    /// The request input of this name. The error is a sentence for the operator.
    pub fn find_request(&self, name: &str) -> Result<&Port, String> {
        find(&self.request, name, "input of requests")
    }

    /// The step input of this name. The error is a sentence for the operator.
    pub fn find_step(&self, name: &str) -> Result<&Port, String> {
        find(&self.step, name, "input")
    }
}

fn port(name: &str, dtype: Dtype, shape: &[i64]) -> Port {
    Port { name: name.to_owned(), dtype, shape: shape.to_vec(), optional: false }
}

fn find<'a>(ports: &'a [Port], name: &str, what: &str) -> Result<&'a Port, String> {
    let names = || ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = ports.iter().find(|port| port.name == name);
    found.ok_or_else(|| format!("the model has no {what} \"{name}\"; it has {}", names()))
}
