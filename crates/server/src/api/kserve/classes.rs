//! The classification extension: the highest scores of an output, as texts `value:index:label`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use half::{bf16, f16};
use sequor_core::{DataType, Shape};

use crate::api::{Code, Status};
use crate::model::Tensor;

/// Checks that the scores are numbers.
pub(crate) fn check(output: &str, dtype: DataType) -> Result<(), Status> {
    if !matches!(dtype, DataType::Bytes | DataType::Bool) {
        return Ok(());
    }
    let text = format!("class result not available for output '{output}' due to unsupported type '{dtype}'");
    Err(Status::new(Code::InvalidArgument, "bad_input", text))
}

/// Maximum classes of one output, all rows together. Each is a text of about 20 bytes, for a score of 1 to 8 bytes.
const MAX_CLASSES: u64 = 1 << 20;

/// Checks that an answer of `count` classes for each of `rows` rows is not too large. `row` is the number of scores in a row, if known.
pub(crate) fn check_count(output: &str, count: usize, rows: u64, row: Option<u64>) -> Result<(), Status> {
    let of_row = row.map_or(count as u64, |row| row.min(count as u64));
    let wanted = of_row.saturating_mul(rows.max(1));
    if wanted <= MAX_CLASSES {
        return Ok(());
    }
    let text = format!("output '{output}' would have {wanted} classes, the maximum is {MAX_CLASSES}; ask for fewer");
    Err(Status::new(Code::InvalidArgument, "bad_input", text))
}

/// The `count` highest scores of each row, highest first. Of equal scores, the first comes first.
pub(crate) fn classify(tensor: &Tensor, count: usize, batching: bool, labels: &[String]) -> Tensor {
    let rows = if batching { tensor.shape.0.first().copied().unwrap_or(1) } else { 1 };
    let size = tensor.dtype.size().unwrap_or(1);
    let row_bytes = usize::try_from(rows).ok().and_then(|rows| tensor.data.len().checked_div(rows)).unwrap_or(0);
    let count = count.min(row_bytes / size.max(1));
    let mut data = BytesMut::new();
    for row in tensor.data.chunks(row_bytes.max(1)) {
        for (index, value) in top(tensor.dtype, row, count) {
            let label = labels.get(index).map_or(String::new(), |label| format!(":{label}"));
            let text = format!("{value}:{index}{label}");
            data.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
            data.put_slice(text.as_bytes());
        }
    }
    let mut shape = Shape::new(&[count as u64]);
    if batching {
        shape = shape.with(0, rows);
    }
    Tensor { dtype: DataType::Bytes, shape, data: Bytes::from(data) }
}

/// Indices and values of the highest scores.
fn top(dtype: DataType, row: &[u8], count: usize) -> Vec<(usize, Score)> {
    let float = Score::Float;
    match dtype {
        DataType::Fp16 => pick(row, count, |b| float(f16::from_le_bytes(b).to_f64())),
        DataType::Bf16 => pick(row, count, |b| float(bf16::from_le_bytes(b).to_f64())),
        DataType::Fp32 => pick(row, count, |b| float(f32::from_le_bytes(b).into())),
        DataType::Fp64 => pick(row, count, |b| float(f64::from_le_bytes(b))),
        DataType::Int8 => pick(row, count, |b| Score::Int(i8::from_le_bytes(b).into())),
        DataType::Int16 => pick(row, count, |b| Score::Int(i16::from_le_bytes(b).into())),
        DataType::Int32 => pick(row, count, |b| Score::Int(i32::from_le_bytes(b).into())),
        DataType::Int64 => pick(row, count, |b| Score::Int(i64::from_le_bytes(b))),
        DataType::Uint8 => pick(row, count, |b| Score::Unsigned(u8::from_le_bytes(b).into())),
        DataType::Uint16 => pick(row, count, |b| Score::Unsigned(u16::from_le_bytes(b).into())),
        DataType::Uint32 => pick(row, count, |b| Score::Unsigned(u32::from_le_bytes(b).into())),
        DataType::Uint64 => pick(row, count, |b| Score::Unsigned(u64::from_le_bytes(b))),
        DataType::Bool | DataType::Bytes => Vec::new(),
    }
}

#[derive(Clone, Copy)]
enum Score {
    Int(i64),
    Unsigned(u64),
    Float(f64),
}

impl Score {
    fn compare(&self, other: &Score) -> Ordering {
        match (self, other) {
            (Score::Int(a), Score::Int(b)) => a.cmp(b),
            (Score::Unsigned(a), Score::Unsigned(b)) => a.cmp(b),
            (Score::Float(a), Score::Float(b)) => a.total_cmp(b),
            // Cannot happen: a tensor has one type.
            _ => Ordering::Equal,
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Score::Int(n) => write!(f, "{n}"),
            Score::Unsigned(n) => write!(f, "{n}"),
            Score::Float(x) => write!(f, "{x:.6}"),
        }
    }
}

/// A score that is kept. The greatest is the first to be dropped: the lowest score, and of equal ones the last.
struct RankedScore {
    index: usize,
    score: Score,
}

impl Ord for RankedScore {
    fn cmp(&self, other: &RankedScore) -> Ordering {
        other.score.compare(&self.score).then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for RankedScore {
    fn partial_cmp(&self, other: &RankedScore) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedScore {
    fn eq(&self, other: &RankedScore) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RankedScore {}

/// The highest scores so far. It keeps no more than `count` of them, however long the row is.
struct HighestScores {
    count: usize,
    kept: BinaryHeap<RankedScore>,
}

impl HighestScores {
    fn new(count: usize) -> HighestScores {
        HighestScores { count, kept: BinaryHeap::with_capacity(count) }
    }

    fn add(&mut self, index: usize, score: Score) {
        let next = RankedScore { index, score };
        if self.kept.len() < self.count {
            self.kept.push(next);
        } else if let Some(mut worst) = self.kept.peek_mut()
            && next < *worst
        {
            *worst = next;
        }
    }
}

fn pick<const N: usize>(row: &[u8], count: usize, read: impl Fn([u8; N]) -> Score) -> Vec<(usize, Score)> {
    let mut highest = HighestScores::new(count);
    for (index, bytes) in row.as_chunks::<N>().0.iter().enumerate() {
        highest.add(index, read(*bytes));
    }
    highest.kept.into_sorted_vec().into_iter().map(|RankedScore { index, score }| (index, score)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tensor: &Tensor) -> Vec<String> {
        let texts = crate::model::BytesElements(&tensor.data);
        texts.map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
    }

    #[test]
    fn classification_lists_the_highest_scores_first_with_their_labels() {
        let data: Vec<u8> = [0.1f32, 0.7, 0.2, 0.5, 0.5, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let tensor = Tensor { dtype: DataType::Fp32, shape: Shape::new(&[2, 3]), data: data.into() };
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let top = classify(&tensor, 2, true, &labels);
        assert_eq!((top.dtype, &top.shape), (DataType::Bytes, &Shape::new(&[2, 2])));
        assert_eq!(texts(&top), ["0.700000:1:dog", "0.200000:2", "0.500000:0:cat", "0.500000:1:dog"]);
        let flat = classify(&tensor, 99, false, &[]);
        assert_eq!((flat.shape.clone(), texts(&flat)[0].as_str()), (Shape::new(&[6]), "0.700000:1"));
    }

    #[test]
    fn a_few_classes_of_many_are_those_of_a_stable_sort() {
        let mut seed = 1_u32;
        for rows in 1..40 {
            let scores: Vec<u8> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 28) as u8
            })
            .take(rows)
            .collect();
            let mut sorted: Vec<(usize, u8)> = scores.iter().copied().enumerate().collect();
            sorted.sort_by_key(|(_, score)| std::cmp::Reverse(*score));
            for count in [0, 1, rows / 2, rows] {
                let want: Vec<String> = sorted[..count].iter().map(|(i, score)| format!("{score}:{i}")).collect();
                let shape = Shape::new(&[rows as u64]);
                let tensor = Tensor { dtype: DataType::Uint8, shape, data: scores.clone().into() };
                assert_eq!(texts(&classify(&tensor, count, false, &[])), want, "{scores:?}");
            }
        }
    }

    #[test]
    fn memory_is_taken_for_the_classes_that_are_asked_for_alone() {
        let mut highest = HighestScores::new(3);
        for n in 0..10_000_i64 {
            highest.add(n as usize, Score::Int(n * 7919 % 10_007));
        }
        assert!(highest.kept.len() == 3 && highest.kept.capacity() < 100, "{}", highest.kept.capacity());
    }

    #[test]
    fn the_number_of_classes_is_bounded_and_all_classes_of_a_small_output_are_allowed() {
        let error = check_count("y", usize::MAX, 1, None).unwrap_err();
        assert!(error.message.starts_with("output 'y' would have"), "{error:?}");
        assert!(check_count("y", usize::MAX, 64, Some(1000)).is_ok());
        assert!(check_count("y", 1000, 1 << 20, Some(1000)).is_err());
    }

    #[test]
    fn integer_scores_are_compared_as_integers() {
        let data: Vec<u8> = [i64::MAX - 1, i64::MAX, -1].iter().flat_map(|n| n.to_le_bytes()).collect();
        let tensor = Tensor { dtype: DataType::Int64, shape: Shape::new(&[1, 3]), data: data.into() };
        assert_eq!(texts(&classify(&tensor, 1, true, &[])), [format!("{}:1", i64::MAX)]);
        assert!(check("y", DataType::Bytes).is_err() && check("y", DataType::Fp16).is_ok());
    }
}
