//! Checks one tensor against the input that it is for, and gives it the graph's shape.

use sequor_core::{DataType, Dim, Dims, Shape};

use crate::config::model::settings::{Input, ModelSettings, reshaped};
use crate::error::Invalid;
use crate::tensor::{NamedTensor, Tensor, rows};

/// The number of rows: the first dimension, which must be the same in all inputs.
pub(super) fn batch_size(given: &[NamedTensor]) -> Result<u64, Invalid> {
    let mut size = None;
    for named in given {
        let Some(first) = named.tensor.shape.0.first().copied() else {
            return Err(Invalid::NoBatchDim { input: named.name.clone() });
        };
        if *size.get_or_insert(first) != first {
            return Err(Invalid::BatchSizes { input: named.name.clone() });
        }
    }
    Ok(size.unwrap_or(1))
}

pub(super) fn check_shape(input: &Input, tensor: &Tensor, batching: bool) -> Result<(), Invalid> {
    check_type_and_shape(input, tensor.dtype, &tensor.shape, batching)
}

pub(super) fn check_type_and_shape(
    input: &Input,
    dtype: DataType,
    shape: &Shape,
    batching: bool,
) -> Result<(), Invalid> {
    let name = || input.name.clone();
    if dtype != input.dtype {
        return Err(Invalid::DataType { input: name(), got: dtype, want: input.dtype });
    }
    if batching && shape.rank() == 0 {
        return Err(Invalid::NoBatchDim { input: name() });
    }
    let row = row_of(shape, batching);
    if let Some(axis) = input.batch_dim.filter(|axis| row.get(*axis).is_some_and(|n| *n != 1)) {
        // Requests of a sequence have one row.
        let want = input.dims.with(0, Dim::Any);
        let one = |(n, dim): (usize, &Dim)| if n == axis + 1 { Dim::Fixed(1) } else { *dim };
        let want = Dims(want.0.iter().enumerate().map(one).collect());
        return Err(Invalid::Shape { input: name(), want, got: shape.clone(), batching });
    }
    if !fits(&input.dims, row) {
        let want = if batching { input.dims.with(0, Dim::Any) } else { input.dims.clone() };
        return Err(Invalid::Shape { input: name(), want, got: shape.clone(), batching });
    }
    Ok(())
}

/// Checks the number of bytes of an input, and gives it the graph's shape.
pub(super) fn take_input(input: &Input, named: NamedTensor, batching: bool) -> Result<Tensor, Invalid> {
    let NamedTensor { name, mut tensor } = named;
    check_size(&name, &tensor, batching)?;
    if let Some(to) = &input.reshape {
        let row = if batching { tensor.shape.without(0) } else { tensor.shape.clone() };
        let shape = reshaped(&input.dims, to, &row).unwrap_or(row);
        tensor.shape = match tensor.shape.0.first() {
            Some(rows) if batching => shape.with(0, *rows),
            _ => shape,
        };
    }
    Ok(tensor)
}

/// Converts checked inputs back to the client's names and shapes. `None` if a shape cannot be converted back.
pub(in crate::model) fn as_given(settings: &ModelSettings, inputs: Vec<Option<Tensor>>) -> Option<Vec<NamedTensor>> {
    let batching = settings.max_batch_size > 0;
    let given = |(input, tensor): (&Input, Option<Tensor>)| {
        let Some(mut tensor) = tensor else { return Some(None) };
        if let Some(to) = &input.reshape {
            let row = Shape(row_of(&tensor.shape, batching).into());
            let shape = reshaped(to, &input.dims, &row)?;
            tensor.shape = match tensor.shape.0.first() {
                Some(rows) if batching => shape.with(0, *rows),
                _ => shape,
            };
        }
        Some(Some(NamedTensor { name: input.name.clone(), tensor }))
    };
    let given: Option<Vec<Option<NamedTensor>>> = settings.inputs.iter().zip(inputs).map(given).collect();
    Some(given?.into_iter().flatten().collect())
}

/// The dimensions of a row.
fn row_of(shape: &Shape, batching: bool) -> &[u64] {
    shape.0.get(usize::from(batching)..).unwrap_or_default()
}

/// Whether a row of this shape fits the declared dimensions.
fn fits(dims: &Dims, row: &[u64]) -> bool {
    dims.rank() == row.len() && dims.0.iter().zip(row).all(|(dim, n)| dim.fixed().is_none_or(|d| d == *n))
}

fn check_size(name: &str, tensor: &Tensor, batching: bool) -> Result<(), Invalid> {
    let got = tensor.data.len() as u64;
    let input = || name.to_owned();
    let Some(size) = tensor.dtype.size() else { return check_texts(input(), &tensor.shape, &tensor.data) };
    match tensor.shape.bytes(size) {
        // A batch of no rows has no bytes; Triton calls that a mismatch with one row.
        Some(0) if batching && tensor.shape.0.first() == Some(&0) => {
            let want = tensor.shape.without(0).bytes(size).unwrap_or(u64::MAX);
            Err(Invalid::ByteSize { input: input(), want, got })
        }
        Some(want) if want == got => Ok(()),
        want => Err(Invalid::ByteSize { input: input(), want: want.unwrap_or(u64::MAX), got }),
    }
}

/// Checks that BYTES parse into exactly as many elements as the shape has.
fn check_texts(input: String, shape: &Shape, data: &[u8]) -> Result<(), Invalid> {
    let mut texts = rows::BytesElements(data);
    let got = texts.by_ref().count() as u64;
    let left = texts.0;
    let want = shape.elements().unwrap_or(u64::MAX);
    if !left.is_empty() {
        return match left.split_first_chunk::<4>() {
            None => Err(Invalid::StringLength { input }),
            Some((length, rest)) => {
                let want = u64::from(u32::from_le_bytes(*length));
                Err(Invalid::StringData { input, want, left: rest.len() as u64 })
            }
        };
    }
    if got == want { Ok(()) } else { Err(Invalid::StringCount { input, want, got }) }
}
