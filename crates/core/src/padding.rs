//! How rows of different lengths are padded to one, so that they fit one tensor.

use std::ops::Range;

/// How rows that differ in one dimension are padded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padding {
    /// The variable dimension, without the batch dimension.
    pub axis: usize,
    pub side: PaddingSide,
    /// One element.
    pub value: Vec<u8>,
    pub multiple_of: u64,
    /// Lengths to pad to, in ascending order; empty for the longest of the batch.
    pub buckets: Vec<u64>,
}

/// Where the padding lies in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PaddingSide {
    /// In front: a row lies at the end.
    Left,
    /// Behind: a row lies at the beginning.
    #[default]
    Right,
}

impl Padding {
    /// The length that a batch has whose longest item has this one.
    pub fn padded(&self, longest: u64) -> u64 {
        let bucket = self.buckets.iter().find(|bucket| **bucket >= longest);
        bucket.copied().unwrap_or(longest).next_multiple_of(self.multiple_of.max(1))
    }
}

impl PaddingSide {
    /// The places of a row of this length where all rows have `whole` places. The others are padding.
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
    fn a_row_lies_at_the_end_or_at_the_beginning() {
        assert_eq!((PaddingSide::Left.places(2, 5), PaddingSide::Right.places(2, 5)), (3..5, 0..2));
        assert_eq!((PaddingSide::Left.places(9, 5), PaddingSide::Right.places(0, 5)), (0..5, 0..0));
    }
}
