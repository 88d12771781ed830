//! Removes the padding from an output.

use bytes::Bytes;
use sequor_core::{DataType, PaddingSide};

use super::product;
use crate::tensor::Tensor;

/// Keeps the first `len` places along this axis that are not padding; the padding is on `side`. A tensor that is no longer than `len`, or
/// is of type BYTES, stays unchanged.
pub fn crop(tensor: Tensor, axis: usize, len: u64, side: PaddingSide) -> Tensor {
    let (Some(size), Some(there)) = (tensor.dtype.size(), tensor.shape.0.get(axis).copied()) else { return tensor };
    if there <= len {
        return tensor;
    }
    let inner = product(tensor.shape.0.get(axis + 1..).unwrap_or_default()).saturating_mul(size);
    let (stride, kept) = (product(&[there]).saturating_mul(inner), product(&[len]).saturating_mul(inner));
    let from = product(&[side.places(len, there).start]).saturating_mul(inner);
    let mut data = Vec::new();
    for part in tensor.data.chunks_exact(stride.max(1)) {
        data.extend_from_slice(part.get(from..from.saturating_add(kept)).unwrap_or_default());
    }
    let mut shape = tensor.shape;
    if let Some(dim) = shape.0.get_mut(axis) {
        *dim = len;
    }
    Tensor { dtype: tensor.dtype, shape, data: Bytes::from(data) }
}

/// The largest value of a tensor of lengths.
pub fn longest(tensor: &Tensor) -> Option<u64> {
    numbers(tensor.dtype, &tensor.data)?.into_iter().max().map(|n| u64::try_from(n).unwrap_or(0))
}

/// The values of a tensor of lengths; `None` if the type cannot hold lengths.
pub fn numbers(dtype: DataType, data: &[u8]) -> Option<Vec<i64>> {
    Some(match dtype {
        DataType::Int32 => data.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect(),
        DataType::Int64 => data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sequor_core::Shape;

    #[test]
    fn the_end_or_the_beginning_of_any_axis_is_taken_off() {
        let tensor = |dims: &[u64]| {
            let data = (0u8..).take(dims.iter().product::<u64>() as usize).collect::<Vec<_>>();
            Tensor { dtype: DataType::Uint8, shape: Shape::new(dims), data: Bytes::from(data) }
        };
        let rows = crop(tensor(&[2, 3, 2]), 1, 2, PaddingSide::Right);
        assert_eq!((rows.shape, &rows.data[..]), (Shape::new(&[2, 2, 2]), &[0, 1, 2, 3, 6, 7, 8, 9][..]));
        let one = |length, side| crop(tensor(&[1, 4]), 1, length, side);
        assert_eq!(
            (one(1, PaddingSide::Right).data[..].to_vec(), one(1, PaddingSide::Left).data[..].to_vec()),
            (vec![0], vec![3])
        );
        for side in [PaddingSide::Left, PaddingSide::Right] {
            assert_eq!(one(9, side).shape, Shape::new(&[1, 4]));
            assert_eq!(one(0, side).data.len(), 0);
        }
        for dims in [[0, 1 << 40, 1 << 40], [1 << 40, 1 << 40, 0]] {
            let empty = Tensor { dtype: DataType::Fp64, shape: Shape::new(&dims), data: Bytes::new() };
            assert_eq!(
                crop(empty, 1, 2, PaddingSide::Right).shape.0,
                [dims[0], 2, dims[2]],
                "beside a 0 the others may be of any size"
            );
        }
    }
}
