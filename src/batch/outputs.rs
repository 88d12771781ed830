//! What a run gives, cut into the answers of its rows. Large outputs are slices of one shared buffer; small ones are copied together, so
//! that a slow reader does not hold a large buffer for a few bytes.

use bytes::Bytes;
use sequor_core::{DataType, Shape};

use crate::device::{Owned, Pooled};
use crate::tensor::{Tensor, rows};

use super::BatchError;

/// Up to this many bytes a batch's output is copied out of the memory it was written to.
const SMALL: usize = 16 * 1024;

/// An output's data in whatever memory the run put it.
#[derive(Debug)]
pub enum Written {
    Pooled(Pooled),
    Owned(Owned),
    Copied(Bytes),
}

impl Written {
    fn into_bytes(self) -> Bytes {
        match self {
            Written::Pooled(pooled) if pooled.as_ref().len() > SMALL => Bytes::from_owner(pooled),
            Written::Pooled(pooled) => Bytes::copy_from_slice(pooled.as_ref()),
            Written::Owned(owned) if owned.len() > SMALL => Bytes::from_owner(owned),
            Written::Owned(owned) => Bytes::copy_from_slice(owned.as_ref()),
            Written::Copied(bytes) => bytes,
        }
    }
}

/// Cuts an output into parts of so many rows each, along its first dimension. Rows beyond the last part are dropped.
pub fn split(
    name: &str,
    dtype: DataType,
    shape: &Shape,
    data: Written,
    parts: &[u64],
) -> Result<Vec<Tensor>, BatchError> {
    let want: u64 = parts.iter().sum();
    let got = shape.0.first().copied().unwrap_or(0);
    if got < want {
        return Err(BatchError::TooFewRows { output: name.to_owned(), want, got });
    }
    let row = shape.without(0);
    let data = data.into_bytes();
    let cuts = cuts(dtype, &row, &data, parts);
    let mut at = 0usize;
    let mut out = Vec::with_capacity(parts.len());
    for (count, end) in parts.iter().zip(cuts) {
        if end < at || end > data.len() {
            return Err(BatchError::Missing { output: name.to_owned() });
        }
        out.push(Tensor { dtype, shape: row.with(0, *count), data: data.slice(at..end) });
        at = end;
    }
    Ok(out)
}

/// Where each part ends.
fn cuts(dtype: DataType, row: &Shape, data: &[u8], parts: &[u64]) -> Vec<usize> {
    let elements = row.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let upto = parts.iter().scan(0usize, |sum, n| {
        *sum = sum.saturating_add(usize::try_from(*n).unwrap_or(usize::MAX));
        Some(*sum)
    });
    match dtype.size() {
        Some(size) => upto.map(|rows| rows.saturating_mul(elements).saturating_mul(size)).collect(),
        None => {
            let ends: Vec<usize> = std::iter::once(0)
                .chain(rows::Texts(data).scan(0usize, |end, text| {
                    *end += 4 + text.len();
                    Some(*end)
                }))
                .collect();
            upto.map(|rows| ends.get(rows.saturating_mul(elements)).copied().unwrap_or(usize::MAX)).collect()
        }
    }
}

/// An output that goes to the one request of a run, whole.
pub fn whole(dtype: DataType, shape: Shape, data: Written) -> Tensor {
    Tensor { dtype, shape, data: data.into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_get_their_rows_and_padding_is_dropped() {
        let data = Written::Copied(Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8]));
        let parts = split("o", DataType::Uint8, &Shape::of(&[4, 2]), data, &[1, 2]).unwrap();
        assert_eq!((parts[0].shape.clone(), &parts[0].data[..]), (Shape::of(&[1, 2]), &[1, 2][..]));
        assert_eq!((parts[1].shape.clone(), &parts[1].data[..]), (Shape::of(&[2, 2]), &[3, 4, 5, 6][..]));
    }

    #[test]
    fn texts_are_cut_between_elements() {
        let data = Written::Copied(Bytes::from_static(b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc"));
        let parts = split("o", DataType::Bytes, &Shape::of(&[3, 1]), data, &[1, 1, 1]).unwrap();
        let sizes: Vec<usize> = parts.iter().map(|p| p.data.len()).collect();
        assert_eq!(sizes, [5, 4, 6]);
    }

    #[test]
    fn too_few_rows_are_told_in_tritons_words() {
        let data = Written::Copied(Bytes::from_static(&[1]));
        let error = split("o", DataType::Uint8, &Shape::of(&[1, 1]), data, &[1, 1]).unwrap_err();
        let text = "failed to split the output tensor 'o' in responses: expected batch size of at least 2 in model output, got 1";
        assert_eq!(error.to_string(), text);
    }
}
