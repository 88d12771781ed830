//! A sequence's states as a `.safetensors` file, which any Python user can open; and back.

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use sequor_core::{DataType, Shape};

use super::error::StateError;
use super::spec::StateSpec;

/// Why a snapshot is not made or not taken.
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
    #[error("state \"{state}\" differs: the snapshot has {got}, the model wants {want}")]
    Differs { state: String, got: String, want: String },
}

/// The key under which the shape of a BYTES state is kept: its tensor holds the wire form, as bytes.
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
        let (dtype, dims) = match stored(spec.dtype) {
            Some(dtype) => (dtype, shape.0.iter().filter_map(|d| usize::try_from(*d).ok()).collect()),
            None => {
                header.insert(format!("{SHAPE_OF}{}", spec.input), shape.to_string());
                (Dtype::U8, vec![bytes.len()])
            }
        };
        views.push((spec.input.clone(), TensorView::new(dtype, dims, bytes)?));
    }
    Ok(serialize(views, Some(header))?)
}

/// The header of a snapshot, if it fits these states.
pub fn check(specs: &[StateSpec], file: &[u8]) -> Result<BTreeMap<String, String>, SnapshotError> {
    read(specs.iter(), file)?;
    let (_, header) = SafeTensors::read_metadata(file)?;
    Ok(header.metadata().clone().unwrap_or_default().into_iter().collect())
}

/// The values of a snapshot in the order of these states.
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
        values.push((shape, view.data().to_vec()));
    }
    Ok(values)
}

fn differs(spec: &StateSpec, got: String) -> SnapshotError {
    SnapshotError::Differs { state: spec.input.clone(), got, want: format!("{} {}", spec.dtype, spec.dims) }
}

/// Reads a shape as it is written: `[1,2]`.
pub(super) fn parse(text: &str) -> Option<Shape> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let parts = inner.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>().map(Shape)
}

/// The file's type for an element type; `None` for BYTES.
pub(super) fn stored(dtype: DataType) -> Option<Dtype> {
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
