//! The parts of a sequence's file beside its states. One is the answer of the last step, for a client that repeats that step after a
//! restart. The other is the scratch of processors.

use std::collections::HashMap;

use bytes::Bytes;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use sequor_core::{DataType, Shape};

use crate::tensor::{NamedTensor, Tensor};

use super::snapshot::{SHAPE_OF, SnapshotError, parse, view};

/// The prefix of outputs' names, so that they differ from those of states.
const ANSWER: &str = "sequor.answer.";
/// The prefix of scratch, followed by the place of the processor.
const SCRATCH: &str = "sequor.scratch.";
/// The key of the processors' names.
const PROCESSORS: &str = "sequor.processors";
/// The prefix of the key with the type of an input or output.
const TYPE_OF: &str = "sequor.type.";

/// The file of a state with this answer, which replaces any earlier one.
pub fn with_answer(file: &[u8], answer: &[NamedTensor]) -> Result<Vec<u8>, SnapshotError> {
    let mut notes = notes(file)?;
    let held = SafeTensors::deserialize(file)?;
    let mut views = held.tensors();
    views.retain(|(name, _)| !name.starts_with(ANSWER));
    for NamedTensor { name, tensor } in answer {
        let name = format!("{ANSWER}{name}");
        let view = typed_view(&mut notes, &name, tensor)?;
        views.push((name, view));
    }
    Ok(serialize(views, Some(notes))?)
}

/// The answer in the file of a state; empty if it has none.
pub fn answer_of(file: &[u8]) -> Result<Vec<NamedTensor>, SnapshotError> {
    let notes = notes(file)?;
    let held = SafeTensors::deserialize(file)?;
    let output = |(name, view): (String, TensorView<'_>)| {
        let tensor = typed_tensor(&notes, &name, &view)?;
        Some(NamedTensor { name: name.strip_prefix(ANSWER)?.to_owned(), tensor })
    };
    Ok(held.tensors().into_iter().filter_map(output).collect())
}

/// An input or output in a file. The header gets its type.
pub(super) fn typed_view<'a>(
    header: &mut HashMap<String, String>,
    name: &str,
    tensor: &'a Tensor,
) -> Result<TensorView<'a>, SnapshotError> {
    header.insert(format!("{TYPE_OF}{name}"), tensor.dtype.name().to_owned());
    view(header, name, (tensor.dtype, &tensor.shape), &tensor.data)
}

/// The input or output of such a view; `None` if the header does not have its type.
pub(super) fn typed_tensor(header: &HashMap<String, String>, name: &str, view: &TensorView<'_>) -> Option<Tensor> {
    let dtype = header.get(&format!("{TYPE_OF}{name}"))?;
    let dtype = DataType::ALL.into_iter().find(|of| of.name() == dtype)?;
    let shape = match header.get(&format!("{SHAPE_OF}{name}")) {
        Some(text) => parse(text)?,
        None => Shape(view.shape().iter().map(|d| *d as u64).collect()),
    };
    Some(Tensor { dtype, shape, data: Bytes::copy_from_slice(view.data()) })
}

/// The file of a state with this scratch of processors, which replaces any earlier one. `names` are the names of the processors.
pub fn with_scratch(file: &[u8], names: &str, scratch: &[Bytes]) -> Result<Vec<u8>, SnapshotError> {
    let mut notes = notes(file)?;
    notes.insert(PROCESSORS.to_owned(), names.to_owned());
    let held = SafeTensors::deserialize(file)?;
    let mut views = held.tensors();
    views.retain(|(name, _)| !name.starts_with(SCRATCH));
    for (n, bytes) in scratch.iter().enumerate() {
        views.push((format!("{SCRATCH}{n}"), TensorView::new(Dtype::U8, vec![bytes.len()], bytes)?));
    }
    Ok(serialize(views, Some(notes))?)
}

/// The names of the processors and their scratch in the file of a state; empty if it has none.
pub fn scratch_of(file: &[u8]) -> Result<(String, Vec<Bytes>), SnapshotError> {
    let names = notes(file)?.remove(PROCESSORS).unwrap_or_default();
    let held = SafeTensors::deserialize(file)?;
    let of = |n: usize| Some(Bytes::copy_from_slice(held.tensor(&format!("{SCRATCH}{n}")).ok()?.data()));
    Ok((names, (0..).map_while(of).collect()))
}

/// Whether the header of the file has this key.
pub fn has_note(file: &[u8], key: &str) -> Result<bool, SnapshotError> {
    Ok(notes(file)?.contains_key(key))
}

/// The header of the file.
pub(super) fn notes(file: &[u8]) -> Result<HashMap<String, String>, SnapshotError> {
    let (_, header) = SafeTensors::read_metadata(file)?;
    Ok(header.metadata().clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_answer_of_any_type_round_trips_and_replaces_the_answer_before() {
        let state = TensorView::new(Dtype::I32, vec![1], &[7, 0, 0, 0]).unwrap();
        let header: HashMap<String, String> = [("sequor.step".to_owned(), "3".to_owned())].into();
        let file = serialize([("STATE", state)], Some(header)).unwrap();
        assert_eq!(answer_of(&file).unwrap(), []);
        let named = |name: &str, dtype, shape: &[u64], data: &'static [u8]| NamedTensor {
            name: name.to_owned(),
            tensor: Tensor { dtype, shape: Shape::new(shape), data: Bytes::from_static(data) },
        };
        let first = [named("OLD", DataType::Int8, &[1, 2], &[1, 2])];
        let second = [
            named("OUTPUT", DataType::Fp16, &[1, 1], &[0, 60]),
            named("STATE", DataType::Bytes, &[1, 2], &[1, 0, 0, 0, 97, 0, 0, 0, 0]),
        ];
        let file = with_answer(&with_answer(&file, &first).unwrap(), &second).unwrap();
        let mut read = answer_of(&file).unwrap();
        read.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(read, second);
        assert_eq!(scratch_of(&file).unwrap(), (String::new(), vec![]));
        let scratch = |bytes: &'static [u8]| [Bytes::from_static(bytes), Bytes::new()];
        let file = with_scratch(&file, "a,b", &scratch(b"longer")).unwrap();
        let file = with_scratch(&file, "a,b", &scratch(b"new")).unwrap();
        assert_eq!(scratch_of(&file).unwrap(), ("a,b".to_owned(), scratch(b"new").to_vec()));
        assert_eq!(answer_of(&file).unwrap().len(), 2);
        let held = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(held.tensor("STATE").unwrap().data(), [7, 0, 0, 0]);
        assert_eq!(notes(&file).unwrap()["sequor.step"], "3");
    }
}
