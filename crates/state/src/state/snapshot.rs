//! Converts a sequence's states to a `.safetensors` file, which any Python user can open, and back.

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use sequor_core::{DataType, Shape};

use super::error::StateError;
use super::spec::StateSpec;
use crate::tensor::rows::texts_len;

/// Why a snapshot cannot be made or is refused.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("not a safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the snapshot has no state \"{0}\"")]
    Missing(String),
    #[error("not a capture of a sequence: it has no \"{0}\"")]
    NoCapture(&'static str),
    #[error("its last step is not answered yet")]
    Unanswered,
    #[error("a request of its sequence has run in part")]
    InPart,
    #[error("state \"{state}\" differs: the snapshot has {got}, the model wants {want}")]
    Differs { state: String, got: String, want: String },
}

/// The prefix of the key with the shape of a BYTES state. The state's tensor contains the wire form, as bytes.
pub(super) const SHAPE_OF: &str = "sequor.shape.";

/// The file of these values, each as one row in the graph's own type.
pub(super) fn file<'a>(
    specs: impl Iterator<Item = &'a StateSpec>,
    values: &[(Shape, Vec<u8>)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, SnapshotError> {
    let mut header: HashMap<String, String> = metadata.clone().into_iter().collect();
    let mut views = Vec::with_capacity(values.len());
    for (spec, (shape, bytes)) in specs.zip(values) {
        views.push((spec.input.clone(), view(&mut header, &spec.input, (spec.dtype, shape), bytes)?));
    }
    Ok(serialize(views, Some(header))?)
}

/// A tensor of a file. A tensor of BYTES is in wire form there, and the header has its shape.
pub(super) fn view<'a>(
    header: &mut HashMap<String, String>,
    name: &str,
    (dtype, shape): (DataType, &Shape),
    bytes: &'a [u8],
) -> Result<TensorView<'a>, SnapshotError> {
    let (dtype, dims) = match stored(dtype) {
        Some(dtype) => (dtype, shape.0.iter().filter_map(|d| usize::try_from(*d).ok()).collect()),
        None => {
            header.insert(format!("{SHAPE_OF}{name}"), shape.to_string());
            (Dtype::U8, vec![bytes.len()])
        }
    };
    Ok(TensorView::new(dtype, dims, bytes)?)
}

/// The header of a snapshot, if it fits these states.
pub fn check(specs: &[StateSpec], file: &[u8]) -> Result<BTreeMap<String, String>, SnapshotError> {
    read(specs.iter(), file)?;
    let (_, header) = SafeTensors::read_metadata(file)?;
    Ok(header.metadata().clone().unwrap_or_default().into_iter().collect())
}

/// The same snapshot, without tensors and notes that belong to none of these states.
pub fn states_alone(specs: &[StateSpec], file: &[u8]) -> Result<Vec<u8>, SnapshotError> {
    let values = read(specs.iter(), file)?;
    self::file(specs.iter(), &values, &BTreeMap::new())
}

/// The values of a snapshot, in the order of these states.
pub(super) fn read<'a>(
    specs: impl Iterator<Item = &'a StateSpec>,
    file: &[u8],
) -> Result<Vec<(Shape, Vec<u8>)>, SnapshotError> {
    let (_, header) = SafeTensors::read_metadata(file)?;
    let notes = header.metadata().clone().unwrap_or_default();
    let tensors = SafeTensors::deserialize(file)?;
    let mut values = Vec::new();
    for spec in specs {
        let view = tensors.tensor(&spec.input).map_err(|_| SnapshotError::Missing(spec.input.clone()))?;
        let shape = match stored(spec.dtype) {
            Some(dtype) if dtype == view.dtype() => Shape(view.shape().iter().map(|d| *d as u64).collect()),
            Some(_) => return Err(differs(spec, format!("{:?}", view.dtype()))),
            None => notes.get(&format!("{SHAPE_OF}{}", spec.input)).and_then(|s| parse(s)).unwrap_or_default(),
        };
        if !spec.dims.matches(&shape) {
            return Err(differs(spec, shape.to_string()));
        }
        if spec.dtype == DataType::Bytes {
            check_texts(spec, &shape, view.data())?;
        }
        values.push((shape, view.data().to_vec()));
    }
    Ok(values)
}

fn differs(spec: &StateSpec, got: String) -> SnapshotError {
    SnapshotError::Differs { state: spec.input.clone(), got, want: format!("{} {}", spec.dtype, spec.dims) }
}

/// Checks that the number of texts in wire form fits the shape.
fn check_texts(spec: &StateSpec, shape: &Shape, data: &[u8]) -> Result<(), SnapshotError> {
    let count = shape.elements().and_then(|n| usize::try_from(n).ok());
    let fits = count.is_some_and(|count| texts_len(data, count).is_ok_and(|len| len == data.len()));
    if fits { Ok(()) } else { Err(differs(spec, format!("{} bytes that are no texts of {shape}", data.len()))) }
}

/// Parses a shape of the form `[1,2]`.
pub(super) fn parse(text: &str) -> Option<Shape> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let parts = inner.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>().map(Shape)
}

/// The file's type for an element type; `None` for BYTES.
fn stored(dtype: DataType) -> Option<Dtype> {
    Some(match dtype {
        DataType::Bool => Dtype::BOOL,
        DataType::Uint8 => Dtype::U8,
        DataType::Uint16 => Dtype::U16,
        DataType::Uint32 => Dtype::U32,
        DataType::Uint64 => Dtype::U64,
        DataType::Int8 => Dtype::I8,
        DataType::Int16 => Dtype::I16,
        DataType::Int32 => Dtype::I32,
        DataType::Int64 => Dtype::I64,
        DataType::Fp16 => Dtype::F16,
        DataType::Fp32 => Dtype::F32,
        DataType::Fp64 => Dtype::F64,
        DataType::Bf16 => Dtype::BF16,
        DataType::Bytes => return None,
    })
}

#[cfg(test)]
mod tests {
    use sequor_core::Dims;

    use super::*;
    use crate::state::spec::InitialValue;

    fn state(dtype: DataType, dims: &[i64]) -> StateSpec {
        let initial = InitialValue { shape: Shape::default(), data: None };
        let (input, output) = ("s".to_owned(), "t".to_owned());
        let dims = Dims::from_wire(dims);
        StateSpec {
            input,
            output,
            dtype,
            dims,
            batch_axis: None,
            storage: dtype,
            initial,
            same_buffer: false,
            padding: None,
        }
    }

    fn notes(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn tensors_and_notes_other_than_states_are_removed_from_a_snapshot() {
        let (one, other) = (state(DataType::Uint8, &[2]), state(DataType::Bytes, &[-1]));
        let other = StateSpec { input: "texts".to_owned(), ..other };
        let values = [(Shape::new(&[2]), vec![1, 2]), (Shape::new(&[1]), vec![1, 0, 0, 0, b'a'])];
        let more = StateSpec { input: "more".to_owned(), ..one.clone() };
        let (with, values_with) = ([&one, &other, &more], [&values[..], &[(Shape::new(&[2]), vec![0; 2])]].concat());
        let whole = file(with.into_iter(), &values_with, &notes(&[("note", "of some length")])).unwrap();
        let specs = [one, other];
        let alone = states_alone(&specs, &whole).unwrap();
        assert_eq!(read(specs.iter(), &alone).unwrap(), values);
        assert_eq!(SafeTensors::deserialize(&alone).unwrap().names().len(), 2);
        assert_eq!(check(&specs, &alone).unwrap().get("note"), None);
        assert!(alone.len() < whole.len());
    }

    #[test]
    fn texts_that_do_not_match_their_shape_are_refused() {
        let texts = state(DataType::Bytes, &[-1]);
        let of = |count: u64, data: &[u8]| {
            let file = file([&texts].into_iter(), &[(Shape::new(&[count]), data.to_vec())], &BTreeMap::new()).unwrap();
            check(std::slice::from_ref(&texts), &file).map(drop)
        };
        let two = [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0];
        assert!(of(2, &two).is_ok() && of(0, &[]).is_ok());
        for (count, data) in [(1, &two[..]), (3, &two), (2, &two[..9]), (u64::MAX, &two)] {
            assert!(matches!(of(count, data), Err(SnapshotError::Differs { .. })), "{count}: {data:?}");
        }
    }
}
