//! Converts between rows of different lengths and one tensor with every row padded to the same length. The batch dimension and the padded
//! one may be on any axis.

use std::ops::Range;

use sequor_core::{PaddingSide, Shape};

/// The tensor of a batch of padded rows.
#[derive(Debug, Clone, Copy)]
pub struct PaddedRows<'a> {
    /// A row's shape in the tensor, without the batch dimension.
    pub row: &'a Shape,
    /// The padded dimension of that row.
    pub axis: usize,
    /// The axis at which the batch dimension is inserted.
    pub batch_axis: usize,
    pub side: PaddingSide,
    /// Bytes of an element.
    pub element: usize,
}

/// A piece of the tensor that belongs to one row, and the places that it covers along the padded dimension.
struct Stretch {
    row: usize,
    places: Range<u64>,
}

impl PaddedRows<'_> {
    /// Joins rows with these lengths. A row with less data than its length is padded at its end.
    pub fn join(&self, rows: &[(u64, &[u8])], value: &[u8]) -> Vec<u8> {
        let unit = self.unit();
        let mut out = Vec::with_capacity(self.bytes(rows.len()).unwrap_or(0));
        let mut rest: Vec<&[u8]> = rows.iter().map(|(_, data)| *data).collect();
        self.walk(rows.len(), |Stretch { row, places }| {
            let (Some((length, _)), Some(data)) = (rows.get(row), rest.get_mut(row)) else { return };
            let end = out.len() + span(&places) * unit;
            let kept = self.kept(&places, *length);
            pad(&mut out, value, span(&(places.start..kept.start)) * unit);
            let (part, left) = data.split_at(data.len().min(span(&kept) * unit));
            out.extend_from_slice(part);
            *data = left;
            let missing = end.saturating_sub(out.len());
            pad(&mut out, value, missing);
        });
        out
    }

    /// Splits the tensor into rows of these lengths, without their padding. `None` if the data's size does not match.
    pub fn split(&self, data: &[u8], lengths: &[u64]) -> Option<Vec<Vec<u8>>> {
        self.bytes(lengths.len()).filter(|bytes| *bytes == data.len())?;
        let whole = self.whole().max(1);
        let row = self.bytes(1)? as u64;
        let size = |length: &u64| usize::try_from(row / whole * (*length).min(whole)).unwrap_or(0);
        let mut out: Vec<Vec<u8>> = lengths.iter().map(|length| Vec::with_capacity(size(length))).collect();
        self.pieces(data, lengths, |row, piece| {
            if let Some(out) = out.get_mut(row) {
                out.extend_from_slice(piece);
            }
        })?;
        Some(out)
    }

    /// Visits the tensor's pieces in order, each with its row, without the padding of rows of these lengths. `None` if the data's size does
    /// not match.
    pub fn pieces(&self, data: &[u8], lengths: &[u64], mut visit: impl FnMut(usize, &[u8])) -> Option<()> {
        if self.bytes(lengths.len())? != data.len() {
            return None;
        }
        let (unit, mut rest) = (self.unit(), data);
        self.walk(lengths.len(), |Stretch { row, places }| {
            let (piece, behind) = rest.split_at(rest.len().min(span(&places) * unit));
            rest = behind;
            let Some(length) = lengths.get(row) else { return };
            let kept = self.kept(&places, *length);
            let at = |place: u64| usize::try_from(place - places.start).unwrap_or(0) * unit;
            visit(row, piece.get(at(kept.start)..at(kept.end)).unwrap_or_default());
        });
        Some(())
    }

    /// Visits every stretch in the tensor's order, which is also the order within each row.
    fn walk(&self, count: usize, mut visit: impl FnMut(Stretch)) {
        let whole = self.whole();
        let dims = |range: Range<usize>| product(self.row.0.get(range).unwrap_or_default());
        if self.batch_axis <= self.axis {
            for _ in 0..dims(0..self.batch_axis) {
                for row in 0..count {
                    (0..dims(self.batch_axis..self.axis)).for_each(|_| visit(Stretch { row, places: 0..whole }));
                }
            }
            return;
        }
        for _ in 0..dims(0..self.axis) {
            for place in 0..whole {
                for _ in 0..dims(self.axis + 1..self.batch_axis) {
                    (0..count).for_each(|row| visit(Stretch { row, places: place..place + 1 }));
                }
            }
        }
    }

    /// The part of these places that belongs to a row of this length.
    fn kept(&self, places: &Range<u64>, length: u64) -> Range<u64> {
        let own = self.side.places(length, self.whole());
        let start = own.start.clamp(places.start, places.end);
        start..own.end.clamp(start, places.end)
    }

    /// Number of places of each row along the padded dimension.
    fn whole(&self) -> u64 {
        self.row.0.get(self.axis).copied().unwrap_or(0)
    }

    /// Bytes of one place of a stretch: of all dimensions behind the batch dimension and the padded one.
    fn unit(&self) -> usize {
        let behind = (self.axis + 1).max(self.batch_axis);
        product(self.row.0.get(behind..).unwrap_or_default()).saturating_mul(self.element)
    }

    /// Bytes of a tensor of `count` rows.
    fn bytes(&self, count: usize) -> Option<usize> {
        let row = usize::try_from(self.row.elements()?).ok()?.checked_mul(self.element)?;
        row.checked_mul(count)
    }
}

fn product(dims: &[u64]) -> usize {
    dims.iter().try_fold(1usize, |n, dim| n.checked_mul(usize::try_from(*dim).ok()?)).unwrap_or(0)
}

fn span(places: &Range<u64>) -> usize {
    usize::try_from(places.end.saturating_sub(places.start)).unwrap_or(0)
}

/// Appends `bytes` bytes of padding.
fn pad(out: &mut Vec<u8>, value: &[u8], bytes: usize) {
    let to = out.len().saturating_add(bytes);
    if value.iter().all(|byte| *byte == 0) {
        return out.resize(to, 0);
    }
    while out.len() < to {
        out.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tensor::rows;
    use sequor_core::DataType;

    /// Pads one row element by element: the simplest reference for the expected tensor.
    fn padded_alone(row: &Shape, axis: usize, side: PaddingSide, length: u64, data: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (whole, places) = (row.0[axis], side.places(length, row.0[axis]));
        let (before, behind) = (product(&row.0[..axis]), product(&row.0[axis + 1..]));
        let size = behind * value.len();
        for outer in 0..before {
            for place in 0..whole {
                if places.contains(&place) {
                    let at = (outer * length as usize + (place - places.start) as usize) * size;
                    out.extend_from_slice(&data[at..at + size]);
                } else {
                    out.extend(value.repeat(behind));
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn padded_rows_match_rows_padded_alone_and_are_cut_back(
            dims in proptest::collection::vec(0u64..4, 1..4), axis in 0usize..3, batch_axis in 0usize..4,
            lengths in proptest::collection::vec(0u64..5, 1..5), left in any::<bool>(), more in 0u64..3, zero in any::<bool>(), seed in any::<u8>(),
        ) {
            let (axis, batch_axis) = (axis.min(dims.len() - 1), batch_axis.min(dims.len()));
            let mut row = Shape(dims);
            row.0[axis] = lengths.iter().max().unwrap() + more;
            let side = if left { PaddingSide::Left } else { PaddingSide::Right };
            let value: &[u8] = if zero { &[0, 0] } else { &[9, 250] };
            let data: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(n, length)| {
                let elements = row.without(axis).elements().unwrap() * length;
                (0..elements * 2).map(|e| seed.wrapping_add((n as u64 * 31 + e * 7) as u8)).collect()
            }).collect();
            let rows: Vec<(u64, &[u8])> = lengths.iter().copied().zip(data.iter().map(Vec::as_slice)).collect();
            let tensor = PaddedRows { row: &row, axis, batch_axis, side, element: 2 };
            let joined = tensor.join(&rows, value);
            let alone: Vec<Vec<u8>> = rows.iter().map(|(length, data)| padded_alone(&row, axis, side, *length, data, value)).collect();
            let alone: Vec<&[u8]> = alone.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(&joined, &rows::join(DataType::Int16, &row, batch_axis, &alone));
            prop_assert_eq!(tensor.split(&joined, &lengths), Some(data));
            prop_assert_eq!(tensor.split(&[joined.as_slice(), &[0]].concat(), &lengths), None);
        }
    }

    #[test]
    fn padding_is_added_on_the_configured_side() {
        let row = Shape::new(&[3]);
        let of = |side| PaddedRows { row: &row, axis: 0, batch_axis: 0, side, element: 1 };
        let rows: [(u64, &[u8]); 2] = [(3, &[1, 2, 3]), (1, &[4])];
        assert_eq!(of(PaddingSide::Left).join(&rows, &[7]), [1, 2, 3, 7, 7, 4]);
        assert_eq!(of(PaddingSide::Right).join(&rows, &[7]), [1, 2, 3, 4, 7, 7]);
    }
}
