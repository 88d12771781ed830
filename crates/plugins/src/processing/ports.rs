//! The inputs and outputs of a processor or a model, and the check of a tensor against them.

use sequor_core::{DataType, Dims};

use crate::tensor::Tensor;
use crate::tensor::rows::BytesElements;

/// Maximum number of inputs, and of outputs, of a signature.
const PORTS: usize = 256;

/// An input or an output. The shape is complete, including the batch axis if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPort {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// Whether a request may omit it. Only for inputs.
    pub optional: bool,
}

/// The inputs and outputs of a processor or a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorSignature {
    pub inputs: Vec<TensorPort>,
    pub outputs: Vec<TensorPort>,
}

/// Tensors by the index of their port. An END without inputs has an empty list.
pub type PortTensors = Vec<Option<Tensor>>;

impl TensorSignature {
    /// Checks that names are present and unique, and that there are not too many.
    pub fn check(&self) -> Result<(), String> {
        for (what, ports) in [("input", &self.inputs), ("output", &self.outputs)] {
            if ports.len() > PORTS {
                return Err(format!("{} {what}s; the maximum is {PORTS}", ports.len()));
            }
            for (n, port) in ports.iter().enumerate() {
                if port.name.is_empty() {
                    return Err(format!("{what} {n} has no name"));
                }
                if ports.iter().take(n).any(|before| before.name == port.name) {
                    return Err(format!("two {what}s are named \"{}\"", port.name));
                }
            }
        }
        Ok(())
    }

    /// Whether requests and answers of one signature fit the other: the names and types are the same.
    pub fn is_like(&self, other: &TensorSignature) -> bool {
        let all_in = |these: &[TensorPort], those: &[TensorPort]| {
            these.len() == those.len()
                && these.iter().all(|port| those.iter().any(|p| p.name == port.name && p.dtype == port.dtype))
        };
        all_in(&self.inputs, &other.inputs) && all_in(&self.outputs, &other.outputs)
    }
}

/// The index of the port with this name.
pub fn place(ports: &[TensorPort], name: &str) -> Option<usize> {
    ports.iter().position(|port| port.name == name)
}

impl TensorPort {
    /// Checks the type, shape and size of a tensor for this port. The error is a sentence about the fault.
    pub fn check(&self, tensor: &Tensor) -> Result<(), String> {
        let Tensor { dtype, shape, data } = tensor;
        if *dtype != self.dtype {
            return Err(format!("\"{}\" has the type {dtype}; {} is expected", self.name, self.dtype));
        }
        if !self.dims.matches(shape) {
            return Err(format!("\"{}\" has the shape {shape}; {} is expected", self.name, self.dims));
        }
        check_size(tensor).map_err(|what| format!("\"{}\" {shape} {what} ({} bytes)", self.name, data.len()))
    }
}

/// Checks that a tensor has the number of bytes that its type and shape require.
pub(super) fn check_size(tensor: &Tensor) -> Result<(), String> {
    let Tensor { dtype, shape, data } = tensor;
    let elements = shape.elements();
    if let Some(size) = dtype.size() {
        let want = elements.and_then(|n| n.checked_mul(size as u64));
        return match want {
            Some(want) if want == data.len() as u64 => Ok(()),
            Some(want) => Err(format!("must have {want} bytes")),
            None => Err("has too many elements".to_owned()),
        };
    }
    let mut texts = BytesElements(data);
    let found = texts.by_ref().count() as u64;
    if texts.0.is_empty() && Some(found) == elements { Ok(()) } else { Err("must be BYTES elements".to_owned()) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sequor_core::Shape;

    use super::*;

    fn port(name: &str, dtype: DataType, dims: &[i64]) -> TensorPort {
        TensorPort { name: name.to_owned(), dtype, dims: Dims::from_wire(dims), optional: false }
    }

    fn tensor(dtype: DataType, shape: &[u64], data: &'static [u8]) -> Tensor {
        Tensor { dtype, shape: Shape::new(shape), data: Bytes::from_static(data) }
    }

    #[test]
    fn a_tensor_fits_by_type_shape_and_size() {
        let x = port("x", DataType::Int16, &[-1, 2]);
        assert_eq!(x.check(&tensor(DataType::Int16, &[1, 2], b"abcd")), Ok(()));
        for (wrong, message) in [
            (tensor(DataType::Fp16, &[1, 2], b"abcd"), "\"x\" has the type FP16; INT16 is expected"),
            (tensor(DataType::Int16, &[2], b"abcd"), "\"x\" has the shape [2]; [-1,2] is expected"),
            (tensor(DataType::Int16, &[1, 2], b"abc"), "\"x\" [1,2] must have 4 bytes (3 bytes)"),
            (
                tensor(DataType::Int16, &[u64::MAX, 2], b""),
                "\"x\" [18446744073709551615,2] has too many elements (0 bytes)",
            ),
        ] {
            assert_eq!(x.check(&wrong), Err(message.to_owned()));
        }
        let texts = port("t", DataType::Bytes, &[2]);
        assert_eq!(texts.check(&tensor(DataType::Bytes, &[2], b"\x01\0\0\0a\0\0\0\0")), Ok(()));
        assert!(texts.check(&tensor(DataType::Bytes, &[2], b"\x01\0\0\0a")).is_err());
        assert!(texts.check(&tensor(DataType::Bytes, &[2], b"\x01\0\0\0a\0\0\0\0b")).is_err());
    }

    #[test]
    fn missing_duplicate_and_too_many_port_names_are_refused() {
        let of = |names: &[&str]| TensorSignature {
            inputs: names.iter().map(|name| port(name, DataType::Fp32, &[1])).collect(),
            outputs: Vec::new(),
        };
        assert_eq!(of(&["a", "b"]).check(), Ok(()));
        assert_eq!(of(&["a", ""]).check(), Err("input 1 has no name".to_owned()));
        assert_eq!(of(&["a", "a"]).check(), Err("two inputs are named \"a\"".to_owned()));
        assert_eq!(of(&["a"; 257]).check(), Err("257 inputs; the maximum is 256".to_owned()));
        assert!(of(&["a", "b"]).is_like(&of(&["b", "a"])) && !of(&["a"]).is_like(&of(&["a", "b"])));
    }
}
