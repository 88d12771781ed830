//! Padding of rows of different lengths, so that they fit one tensor.

use std::ops::Range;

/// How rows that differ in one dimension are padded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padding {
    /// The variable dimension, without the batch dimension.
    pub axis: usize,
    pub side: PaddingSide,
    /// The bytes of one padding element.
    pub value: Vec<u8>,
    pub multiple_of: u64,
    /// Lengths to pad to, in ascending order. If empty, rows are padded to the longest of the batch.
    pub buckets: Vec<u64>,
}

/// The side of a row that is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PaddingSide {
    /// Padding in front: the row's data is at the end.
    Left,
    /// Padding behind: the row's data is at the beginning.
    #[default]
    Right,
}

impl Padding {
    /// The padded length of a batch whose longest item has this length.
    pub fn padded(&self, longest: u64) -> u64 {
        let bucket = self.buckets.iter().find(|bucket| **bucket >= longest);
        bucket.copied().unwrap_or(longest).next_multiple_of(self.multiple_of.max(1))
    }
}

impl PaddingSide {
    /// The positions of a row's own data when all rows are padded to `whole`. The other positions are padding.
    pub fn places(self, length: u64, whole: u64) -> Range<u64> {
        let length = length.min(whole);
        match self {
            PaddingSide::Left => whole - length..whole,
            PaddingSide::Right => 0..length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_rounded_to_its_bucket_and_multiple() {
        let padding = |multiple_of, buckets: &[u64]| Padding {
            axis: 0,
            side: PaddingSide::Right,
            value: vec![0],
            multiple_of,
            buckets: buckets.to_vec(),
        };
        assert_eq!(padding(16, &[]).padded(17), 32);
        assert_eq!(padding(1, &[64, 128]).padded(65), 128);
        assert_eq!(padding(1, &[64, 128]).padded(129), 129, "longer than every bucket");
        assert_eq!(padding(16, &[60]).padded(1), 64);
    }

    #[test]
    fn a_padded_row_is_placed_at_the_end_or_at_the_beginning() {
        assert_eq!((PaddingSide::Left.places(2, 5), PaddingSide::Right.places(2, 5)), (3..5, 0..2));
        assert_eq!((PaddingSide::Left.places(9, 5), PaddingSide::Right.places(0, 5)), (0..5, 0..0));
    }
}
