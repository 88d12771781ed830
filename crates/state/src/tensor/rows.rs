//! Converts between rows and tensors on host slices: a batch is seen as [outer, rows, inner], with the batch dimension on any axis. Also
//! the wire format of BYTES.

use sequor_core::{DataType, Shape};

/// Joins rows of one shape into a batch with the batch dimension at `axis`. BYTES rows are in wire format. Their elements differ in size,
/// so they are walked one by one.
pub fn join(dtype: DataType, row: &Shape, axis: usize, rows: &[&[u8]]) -> Vec<u8> {
    let outer = outer(row, axis);
    let mut out = Vec::with_capacity(rows.iter().map(|r| r.len()).sum());
    match dtype.size() {
        Some(_) => {
            for o in 0..outer {
                for data in rows {
                    let inner = data.len() / outer.max(1);
                    out.extend_from_slice(data.get(o * inner..(o + 1) * inner).unwrap_or_default());
                }
            }
        }
        None => {
            let elements: Vec<Vec<&[u8]>> = rows.iter().map(|data| BytesElements(data).collect()).collect();
            for o in 0..outer {
                for texts in &elements {
                    let inner = texts.len() / outer.max(1);
                    for text in texts.get(o * inner..(o + 1) * inner).unwrap_or_default() {
                        push_text(&mut out, text);
                    }
                }
            }
        }
    }
    out
}

/// Splits a batch of `count` rows of this shape. `None` if the data's size does not match.
pub fn split(dtype: DataType, row: &Shape, axis: usize, count: usize, data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let elements = usize::try_from(row.elements()?).ok()?;
    let outer = outer(row, axis);
    let inner = elements / outer.max(1);
    let mut out = vec![Vec::new(); count];
    match dtype.size() {
        Some(size) => {
            if data.len() != elements.checked_mul(count)?.checked_mul(size)? {
                return None;
            }
            for (piece, n) in data.chunks_exact((inner * size).max(1)).zip((0..count).cycle()) {
                out.get_mut(n)?.extend_from_slice(piece);
            }
        }
        None => {
            let texts: Vec<&[u8]> = BytesElements(data).collect();
            if texts.len() != elements.checked_mul(count)? {
                return None;
            }
            for (piece, n) in texts.chunks_exact(inner.max(1)).zip((0..count).cycle()) {
                for text in piece {
                    push_text(out.get_mut(n)?, text);
                }
            }
        }
    }
    Some(out)
}

/// Number of pieces of a row when the batch dimension is inserted at `axis`.
fn outer(row: &Shape, axis: usize) -> usize {
    let before = row.0.get(..axis).unwrap_or(&row.0);
    before.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?)).unwrap_or(0)
}

/// Appends one BYTES element in wire format.
pub fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(text);
}

/// Iterates over the elements of BYTES data in wire format, for as long as they parse.
#[derive(Debug, Clone)]
pub struct BytesElements<'a>(pub &'a [u8]);

impl<'a> Iterator for BytesElements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some(text)
    }
}

/// The number of bytes of the first `count` elements of BYTES data in wire format, or why there are fewer.
pub fn texts_len(data: &[u8], count: usize) -> Result<usize, TextsFault> {
    let (mut texts, mut n) = (BytesElements(data), 0);
    while n < count {
        let at = data.len() - texts.0.len();
        if texts.next().is_none() {
            return Err(TextsFault { count, element: n, at, len: data.len() });
        }
        n += 1;
    }
    Ok(data.len() - texts.0.len())
}

/// Data in which a BYTES element is missing or incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "element {element} of {count} at byte {at} needs a length of 4 bytes and as many bytes as that says, but the data ends at byte {len}"
)]
pub struct TextsFault {
    count: usize,
    element: usize,
    at: usize,
    len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joined_rows_split_back_into_the_same_rows(dims in proptest::collection::vec(0u64..4, 1..4), axis in 0usize..4, count in 1usize..5, texts in any::<bool>(), seed in any::<u8>()) {
            let axis = axis.min(dims.len());
            let row = Shape(dims);
            let elements = row.elements().unwrap() as usize;
            let dtype = if texts { DataType::Bytes } else { DataType::Int16 };
            let rows: Vec<Vec<u8>> = (0..count).map(|n| {
                let mut out = Vec::new();
                for e in 0..elements {
                    let byte = seed.wrapping_add((n * 31 + e * 7) as u8);
                    if texts { push_text(&mut out, &vec![byte; usize::from(byte % 3)]) } else { out.extend([byte, n as u8]) }
                }
                out
            }).collect();
            let parts: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let joined = join(dtype, &row, axis, &parts);
            prop_assert_eq!(split(dtype, &row, axis, count, &joined), Some(rows));
        }
    }

    #[test]
    fn on_axis_1_the_pieces_of_the_rows_alternate() {
        let row = Shape::new(&[2, 2]);
        let joined = join(DataType::Uint8, &row, 1, &[&[1, 2, 3, 4], &[5, 6, 7, 8]]);
        assert_eq!(joined, [1, 2, 5, 6, 3, 4, 7, 8]);
    }

    #[test]
    fn the_length_of_texts_is_measured_and_a_cut_element_is_named() {
        let data = b"\x01\0\0\0a\0\0\0\0\x05\0\0\0bc";
        assert_eq!([0, 1, 2].map(|count| texts_len(data, count).unwrap()), [0, 5, 9]);
        let fault = texts_len(data, 3).unwrap_err();
        assert_eq!((fault.element, fault.at), (2, 9));
        assert!(texts_len(b"abc", 1).is_err());
    }

    #[test]
    fn data_of_another_size_is_not_cut() {
        assert_eq!(split(DataType::Int16, &Shape::new(&[2]), 0, 2, &[0; 6]), None);
        assert_eq!(split(DataType::Bytes, &Shape::new(&[1]), 0, 2, &[0, 0, 0, 0]), None);
    }
}
