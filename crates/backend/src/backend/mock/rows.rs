//! The arithmetic of the mock graphs, on rows of host memory.

use sequor_core::{DataType, Shape};

use super::program::{Program, What};
use crate::backend::{BackendError, Feed, Port};

/// The checked inputs of one run: of the declared types and shapes, on the host, and all with the same number of rows.
pub(super) struct Inputs<'a>(Vec<(&'a str, &'a Shape, &'a [u8])>);

impl<'a> Inputs<'a> {
    pub(super) fn check(ports: &'a [Port], feeds: &[Feed<'a>]) -> Result<Inputs<'a>, BackendError> {
        if ports.len() != feeds.len() {
            return Err(BackendError(format!("{} inputs were given to a context of {}", feeds.len(), ports.len())));
        }
        let inputs = ports.iter().zip(feeds).map(|(port, feed)| check(port, feed)).collect::<Result<Vec<_>, _>>()?;
        let rows = inputs.first().and_then(|(_, shape, _)| shape.0.first());
        if inputs.iter().any(|(_, shape, _)| shape.0.first() != rows) {
            return Err(BackendError("the inputs differ in their number of rows".to_owned()));
        }
        Ok(Inputs(inputs))
    }

    pub(super) fn get(&self, name: &str) -> Result<(&'a Shape, &'a [u8]), BackendError> {
        self.find(name).ok_or_else(|| BackendError(format!("input '{name}' was not given")))
    }

    fn find(&self, name: &str) -> Option<(&'a Shape, &'a [u8])> {
        self.0.iter().find(|(port, ..)| *port == name).map(|(_, shape, bytes)| (*shape, *bytes))
    }

    /// Row by row, whether a control is set; `None` if the context does not have this control.
    fn control(&self, name: &str) -> Option<Vec<bool>> {
        let (_, bytes) = self.find(name)?;
        Some(bytes.chunks_exact(4).map(|element| element != [0; 4]).collect())
    }
}

fn check<'a>(port: &'a Port, feed: &Feed<'a>) -> Result<(&'a str, &'a Shape, &'a [u8]), BackendError> {
    let bytes = feed.data.as_host().ok_or_else(|| BackendError(format!("input '{}' is not on the host", port.name)))?;
    if feed.dtype != port.dtype || !port.dims.matches(feed.shape) {
        let (port, dims, got) = (&port.name, &port.dims, feed.shape);
        return Err(BackendError(format!("input '{port}' takes {dims}, but got {} {got}", feed.dtype)));
    }
    let want = feed.dtype.size().and_then(|size| feed.shape.bytes(size));
    if want.is_some_and(|want| want != bytes.len() as u64) {
        return Err(BackendError(format!(
            "input '{}' has {} bytes for the shape {}",
            port.name,
            bytes.len(),
            feed.shape
        )));
    }
    Ok((&port.name, feed.shape, bytes))
}

/// Fails if an element of `input` is the poison.
pub(super) fn check_poison(program: &Program, input: &[u8]) -> Result<(), BackendError> {
    let Some(poison) = program.poison else {
        return Ok(());
    };
    // The conversion to f64 keeps 32-bit numbers distinct.
    let number = |element: [u8; 4]| match program.dtype {
        DataType::Int32 => f64::from(i32::from_le_bytes(element)),
        _ => f64::from(f32::from_le_bytes(element)),
    };
    match elements(input).position(|element| number(element).to_bits() == poison.to_bits()) {
        Some(at) => Err(BackendError(format!("mock error: element {at} of INPUT is {poison}"))),
        None => Ok(()),
    }
}

/// The shape of the graph's outputs.
pub(super) fn shape(program: &Program, inputs: &Inputs<'_>) -> Result<Shape, BackendError> {
    let (shape, _) = inputs.get("INPUT")?;
    if program.what != What::Append {
        return Ok(shape.clone());
    }
    let (before, _) = inputs.get("INPUT_STATE")?;
    let last = |shape: &Shape| shape.0.last().copied().unwrap_or(0);
    Ok(Shape(vec![shape.0.first().copied().unwrap_or(0), last(before) + last(shape)]))
}

/// Computes the data of the graph's outputs, which are all the same.
pub(super) fn compute(program: &Program, inputs: &Inputs<'_>) -> Result<Vec<u8>, BackendError> {
    match program.what {
        What::Identity => Ok(inputs.get("INPUT")?.1.to_vec()),
        What::Accumulate => accumulate(program, inputs),
        What::Append => append(inputs),
    }
}

/// INPUT_STATE followed by INPUT, row by row.
fn append(inputs: &Inputs<'_>) -> Result<Vec<u8>, BackendError> {
    let ((shape, input), (_, state)) = (inputs.get("INPUT")?, inputs.get("INPUT_STATE")?);
    let rows = usize::try_from(shape.0.first().copied().unwrap_or(0)).unwrap_or(0);
    let row = |bytes: &'_ [u8], n: usize| {
        let len = bytes.len() / rows.max(1);
        bytes.get(n * len..(n + 1) * len).unwrap_or_default().to_vec()
    };
    Ok((0..rows).flat_map(|n| [row(state, n), row(input, n)].concat()).collect())
}

/// INPUT + INPUT_STATE. Only rows that are ready and not started add the state.
fn accumulate(program: &Program, inputs: &Inputs<'_>) -> Result<Vec<u8>, BackendError> {
    let (shape, input) = inputs.get("INPUT")?;
    let (before, state) = inputs.get("INPUT_STATE")?;
    if before != shape {
        return Err(BackendError(format!("INPUT is {shape}, but INPUT_STATE is {before}")));
    }
    let (start, ready) = (inputs.control("START"), inputs.control("READY"));
    let set = |control: &Option<Vec<bool>>, row: usize| control.as_ref().and_then(|rows| rows.get(row)).copied();
    let row_elements = usize::try_from(shape.without(0).elements().unwrap_or(1)).unwrap_or(1).max(1);
    let sum = elements(input).zip(elements(state)).enumerate().flat_map(|(index, (new, old))| {
        let row = index / row_elements;
        let keep = !set(&start, row).unwrap_or(false) && set(&ready, row).unwrap_or(true);
        if keep { add(program.dtype, new, old) } else { new }
    });
    Ok(sum.collect())
}

fn add(dtype: DataType, a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
    match dtype {
        DataType::Int32 => i32::from_le_bytes(a).wrapping_add(i32::from_le_bytes(b)).to_le_bytes(),
        _ => (f32::from_le_bytes(a) + f32::from_le_bytes(b)).to_le_bytes(),
    }
}

/// Adds `more` to INT32 elements.
pub(super) fn plus(bytes: &[u8], more: i32) -> Vec<u8> {
    if more == 0 {
        return bytes.to_vec();
    }
    elements(bytes).flat_map(|element| add(DataType::Int32, element, more.to_le_bytes())).collect()
}

fn elements(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> + '_ {
    bytes.as_chunks::<4>().0.iter().copied()
}
