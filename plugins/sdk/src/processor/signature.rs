//! Inputs and outputs of a model or a processor.

use super::dtype::Dtype;
use super::tensor::Tensor;

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub dtype: Dtype,
    /// The whole shape, including a batch dimension; -1 leaves a dimension open.
    pub shape: Vec<i64>,
    /// Whether a request may leave out this input.
    pub optional: bool,
}

/// The inputs and outputs of a model or a processor.
///
/// ```
/// use sequor_plugin::processor::*;
///
/// let model = Signature::new().input("input", Dtype::FP32, &[-1, 576]).output("output", Dtype::FP32, &[-1, 1]);
/// let mine = model.clone().hide_input("input").input("AUDIO", Dtype::INT16, &[-1]);
/// assert_eq!((mine.inputs[0].name.as_str(), mine.outputs), ("AUDIO", model.outputs));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signature {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
}

impl Signature {
    #[must_use]
    pub fn new() -> Signature {
        Signature::default()
    }

    /// The same signature with one more input.
    #[must_use]
    pub fn input(mut self, name: &str, dtype: Dtype, shape: &[i64]) -> Signature {
        self.inputs.push(Port { name: name.to_owned(), dtype, shape: shape.to_vec(), optional: false });
        self
    }

    /// The same signature with one more input that a request may leave out.
    #[must_use]
    pub fn optional_input(mut self, name: &str, dtype: Dtype, shape: &[i64]) -> Signature {
        self.inputs.push(Port { name: name.to_owned(), dtype, shape: shape.to_vec(), optional: true });
        self
    }

    /// The same signature with one more output.
    #[must_use]
    pub fn output(mut self, name: &str, dtype: Dtype, shape: &[i64]) -> Signature {
        self.outputs.push(Port { name: name.to_owned(), dtype, shape: shape.to_vec(), optional: false });
        self
    }

    /// The same signature without this input.
    #[must_use]
    pub fn hide_input(mut self, name: &str) -> Signature {
        self.inputs.retain(|port| port.name != name);
        self
    }

    /// The same signature without this output.
    #[must_use]
    pub fn hide_output(mut self, name: &str) -> Signature {
        self.outputs.retain(|port| port.name != name);
        self
    }

    /// The input of this name. The error is a sentence for the operator.
    pub fn find_input(&self, name: &str) -> Result<&Port, String> {
        find(&self.inputs, name, "input")
    }

    /// The output of this name. The error is a sentence for the operator.
    pub fn find_output(&self, name: &str) -> Result<&Port, String> {
        find(&self.outputs, name, "output")
    }
}

fn find<'a>(ports: &'a [Port], name: &str, what: &str) -> Result<&'a Port, String> {
    let names = || ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    ports
        .iter()
        .find(|port| port.name == name)
        .ok_or_else(|| format!("the model has no {what} \"{name}\"; it has {}", names()))
}

impl Port {
    /// Checks type, shape and size of a tensor for this port. The error names the difference.
    pub fn check(&self, tensor: &Tensor) -> Result<(), String> {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        if dtype != self.dtype {
            return Err(format!("\"{}\" is {}, not {dtype}", self.name, self.dtype));
        }
        let fits = |(want, is): (&i64, &u64)| u64::try_from(*want).map_or(true, |want| want == *is);
        if shape.len() != self.shape.len() || !self.shape.iter().zip(&shape).all(fits) {
            return Err(format!("\"{}\" is {:?}, not {shape:?}", self.name, self.shape));
        }
        let elements: u64 = shape.iter().product();
        match dtype.size() {
            Some(size) if elements * size as u64 != tensor.size() => {
                Err(format!("\"{}\" {shape:?} does not have {} bytes", self.name, tensor.size()))
            }
            _ => Ok(()),
        }
    }
}
