//! The file of a captured sequence: a snapshot, and the inputs and outputs of the steps that followed.

use std::collections::HashMap;

use safetensors::tensor::{SafeTensors, serialize};
use sequor_core::Id;
use serde_json::Value;

use crate::tensor::NamedTensor;

use super::answer::{notes, typed_tensor, typed_view};
use super::snapshot::SnapshotError;

/// Prefix of a step's tensors. The index of the step, `in` or `out`, and the name of the tensor follow.
const STEP: &str = "sequor.step.";
const INPUT: &str = "in";
const OUTPUT: &str = "out";
/// Keys of the header: the sequence's id as JSON, SHA-256 of the model's files, why the capture ended, and the steps with their flags.
const ID: &str = "sequor.capture.id";
const DIGEST: &str = "sequor.digest";
const ENDED: &str = "sequor.capture.ended";
const STEPS: &str = "sequor.capture.steps";
/// Flags of a step.
const START: char = 's';
const END: char = 'e';
const REFUSED: char = 'r';

/// A step of a captured sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct CapturedStep {
    /// The number of the step in its sequence.
    pub number: u64,
    pub start: bool,
    pub end: bool,
    /// Whether it has no outputs. Either a processor refused its answer after the run, and the state continues from that run. Or it is a
    /// START that failed, and the state continues from the first one.
    pub refused: bool,
    pub inputs: Vec<NamedTensor>,
    pub outputs: Vec<NamedTensor>,
}

impl CapturedStep {
    /// Bytes of its tensors.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().chain(&self.outputs).map(|of| of.tensor.data.len() as u64).sum()
    }

    /// The step in the header: the number, and the flags.
    fn note(&self) -> String {
        let flags = [(self.start, START), (self.end, END), (self.refused, REFUSED)];
        let flags: String = flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).collect();
        format!("{}{flags}", self.number)
    }

    fn parse(note: &str) -> Option<CapturedStep> {
        let number = note.trim_end_matches([START, END, REFUSED]).parse().ok()?;
        let [start, end, refused] = [START, END, REFUSED].map(|flag| note.contains(flag));
        Some(CapturedStep { number, start, end, refused, inputs: Vec::new(), outputs: Vec::new() })
    }
}

/// The contents of a captured file besides the states. The file itself is the snapshot from which the steps continue.
#[derive(Debug, Clone, PartialEq)]
pub struct Capture {
    /// The id of the sequence.
    pub id: Id,
    /// SHA-256 of the files of the model's version, as hexadecimal digits.
    pub digest: String,
    /// Why the capture ended.
    pub ended: String,
    pub steps: Vec<CapturedStep>,
    header: HashMap<String, String>,
}

impl Capture {
    /// Parses a file of [`with_steps`].
    pub fn parse(file: &[u8]) -> Result<Capture, SnapshotError> {
        let header = notes(file)?;
        let note = |key: &'static str| header.get(key).cloned().ok_or(SnapshotError::NoCapture(key));
        let (digest, ended, all) = (note(DIGEST)?, note(ENDED)?, note(STEPS)?);
        let id = id_of(&note(ID)?).ok_or(SnapshotError::NoCapture(ID))?;
        let steps = all.split_ascii_whitespace().map(CapturedStep::parse);
        let mut steps = steps.collect::<Option<Vec<_>>>().ok_or(SnapshotError::NoCapture(STEPS))?;
        for (name, view) in SafeTensors::deserialize(file)?.tensors() {
            let Some((place, way, output)) = placed(&name) else { continue };
            let Some(step) = steps.get_mut(place) else { continue };
            let tensor = typed_tensor(&header, &name, &view).ok_or(SnapshotError::NoCapture(STEP))?;
            let of = if way == INPUT { &mut step.inputs } else { &mut step.outputs };
            of.push(NamedTensor { name: output.to_owned(), tensor });
        }
        Ok(Capture { id, digest, ended, steps, header })
    }

    /// The value of a key in the header; empty if the header does not have it.
    pub fn note(&self, key: &str) -> &str {
        self.header.get(key).map_or("", String::as_str)
    }
}

/// Parses the name of a step's tensor: the index of the step, `in` or `out`, and the name of the input or output.
fn placed(name: &str) -> Option<(usize, &str, &str)> {
    let (place, rest) = name.strip_prefix(STEP)?.split_once('.')?;
    let (way, name) = rest.split_once('.')?;
    Some((place.parse().ok()?, way, name))
}

fn json_of(id: &Id) -> String {
    match id {
        Id::None => Value::Null,
        Id::Int(id) => Value::from(*id),
        Id::Str(id) => Value::from(&**id),
    }
    .to_string()
}

fn id_of(json: &str) -> Option<Id> {
    match serde_json::from_str(json).ok()? {
        Value::Number(id) => Some(Id::Int(id.as_u64()?)),
        Value::String(id) => Some(Id::Str(id.into())),
        _ => None,
    }
}

/// Adds the steps that followed to the file of a state. `ended`: why the capture ended.
pub fn with_steps(
    file: &[u8],
    id: &Id,
    (digest, ended): (&str, &str),
    steps: &[CapturedStep],
) -> Result<Vec<u8>, SnapshotError> {
    let mut header = notes(file)?;
    let all: Vec<String> = steps.iter().map(CapturedStep::note).collect();
    let notes = [(ID, json_of(id)), (DIGEST, digest.to_owned()), (ENDED, ended.to_owned()), (STEPS, all.join(" "))];
    for (key, value) in notes {
        header.insert(key.to_owned(), value);
    }
    let held = SafeTensors::deserialize(file)?;
    let mut views = held.tensors();
    for (place, step) in steps.iter().enumerate() {
        for (way, tensors) in [(INPUT, &step.inputs), (OUTPUT, &step.outputs)] {
            for NamedTensor { name, tensor } in tensors {
                let name = format!("{STEP}{place}.{way}.{name}");
                let view = typed_view(&mut header, &name, tensor)?;
                views.push((name, view));
            }
        }
    }
    Ok(serialize(views, Some(header))?)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use safetensors::tensor::{Dtype, TensorView};
    use sequor_core::{DataType, Shape};

    use super::*;
    use crate::tensor::Tensor;

    fn named(name: &str, dtype: DataType, shape: &[u64], data: &'static [u8]) -> NamedTensor {
        let tensor = Tensor { dtype, shape: Shape::new(shape), data: Bytes::from_static(data) };
        NamedTensor { name: name.to_owned(), tensor }
    }

    fn snapshot() -> Vec<u8> {
        let state = TensorView::new(Dtype::I32, vec![1], &[7, 0, 0, 0]).unwrap();
        let header: HashMap<String, String> = [("sequor.step".to_owned(), "3".to_owned())].into();
        serialize([("STATE", state)], Some(header)).unwrap()
    }

    #[test]
    fn steps_are_read_as_they_were_written_and_the_file_is_still_a_snapshot() {
        let steps = [
            CapturedStep {
                number: 4,
                start: false,
                end: false,
                refused: false,
                inputs: vec![named("IN.PUT", DataType::Fp16, &[1, 1], &[0, 60])],
                outputs: vec![named("OUT", DataType::Bytes, &[1, 2], &[1, 0, 0, 0, 97, 0, 0, 0, 0])],
            },
            CapturedStep { number: 5, start: true, end: true, refused: true, inputs: Vec::new(), outputs: Vec::new() },
        ];
        for id in [Id::from(u64::MAX), Id::Str("7".into())] {
            let file = with_steps(&snapshot(), &id, ("ab", "end"), &steps).unwrap();
            assert_eq!(Capture::parse(&file).unwrap().id, id);
        }
        let file = with_steps(&snapshot(), &Id::from(7), ("ab", "end"), &steps).unwrap();
        let read = Capture::parse(&file).unwrap();
        assert_eq!((read.digest.as_str(), read.ended.as_str(), &read.steps[..]), ("ab", "end", &steps[..]));
        assert_eq!((read.note("sequor.step"), read.note("absent")), ("3", ""));
        assert_eq!(steps[0].bytes(), 2 + 9);
        assert_eq!(SafeTensors::deserialize(&file).unwrap().tensor("STATE").unwrap().data(), [7, 0, 0, 0]);
    }

    #[test]
    fn a_snapshot_without_steps_is_no_capture() {
        assert!(matches!(Capture::parse(&snapshot()), Err(SnapshotError::NoCapture(DIGEST))));
        assert!(Capture::parse(b"no file").is_err());
    }
}
