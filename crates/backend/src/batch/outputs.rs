//! Splits a run's outputs into the answers of its rows.
//!
//! A slow reader of one answer must not hold the memory of all answers of its batch. So a part is a slice of the run's memory only if it has
//! at least half of it, and is large. Other parts are copied.

use std::ops::Range;

use bytes::Bytes;
use sequor_core::{DataType, PaddingSide, Shape};

use crate::device::{Owned, Pool, Pooled};
use crate::tensor::{Tensor, rows};

use super::BatchError;
use super::crop::crop;

/// Maximum bytes of an output that are always copied out of the run's memory. Copies of larger ones are taken from the pool, whose pages are
/// there already.
const SMALL: usize = 16 * 1024;

/// An output's data, in the memory into which the run wrote it.
#[derive(Debug)]
pub enum OutputBuffer {
    Pooled(Pooled),
    Owned(Owned),
    Copied(Bytes),
}

impl OutputBuffer {
    fn len(&self) -> usize {
        match self {
            OutputBuffer::Pooled(pooled) => pooled.len(),
            OutputBuffer::Owned(owned) => owned.len(),
            OutputBuffer::Copied(bytes) => bytes.len(),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            OutputBuffer::Pooled(pooled) => pooled.as_ref(),
            OutputBuffer::Owned(owned) => owned.as_ref(),
            OutputBuffer::Copied(bytes) => bytes,
        }
    }

    /// Bytes that this memory takes.
    fn capacity(&self) -> usize {
        match self {
            OutputBuffer::Pooled(pooled) => pooled.capacity(),
            OutputBuffer::Owned(_) | OutputBuffer::Copied(_) => self.len(),
        }
    }

    fn pool(&self) -> Option<Pool> {
        match self {
            OutputBuffer::Pooled(pooled) => Some(pooled.pool()),
            OutputBuffer::Owned(_) | OutputBuffer::Copied(_) => None,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            OutputBuffer::Pooled(pooled) => Bytes::from_owner(pooled),
            OutputBuffer::Owned(owned) => Bytes::from_owner(owned),
            OutputBuffer::Copied(bytes) => bytes,
        }
    }
}

/// The memory of an output while its parts are taken out of it.
struct PartSource {
    bytes: Bytes,
    capacity: usize,
    /// Set if parts may be large and are copied.
    pool: Option<Pool>,
}

impl PartSource {
    fn new(data: OutputBuffer, parts: usize) -> PartSource {
        if parts == 1 && data.len() <= SMALL {
            let bytes = match data {
                OutputBuffer::Copied(bytes) => bytes,
                data => Bytes::copy_from_slice(data.as_bytes()),
            };
            return PartSource { capacity: bytes.len(), bytes, pool: None };
        }
        let pool = if data.len() > SMALL { data.pool() } else { None };
        PartSource { capacity: data.capacity(), bytes: data.into_bytes(), pool }
    }

    fn part(&self, range: Range<usize>) -> Bytes {
        let part = self.bytes.get(range.clone()).unwrap_or_default();
        if self.capacity <= part.len().saturating_mul(2) && (part.len() > SMALL || part.len() == self.capacity) {
            return self.bytes.slice(range);
        }
        let pooled = self.pool.as_ref().filter(|_| part.len() > SMALL).and_then(|pool| pool.copy(part).ok());
        pooled.map_or_else(|| Bytes::copy_from_slice(part), Bytes::from_owner)
    }
}

/// An output that can be split into its parts. Its errors are found before any output of the run is used. Its data need not be written yet,
/// unless it is of type BYTES.
#[derive(Debug)]
pub struct OutputSplit {
    dtype: DataType,
    data: OutputBuffer,
    /// The shape of each part, and the offset of its end.
    parts: Vec<(Shape, usize)>,
    /// If the output is padded: the padded axis, the side of the padding, and the length of each part along the axis.
    crop: Option<(usize, PaddingSide, Vec<u64>)>,
    /// If the batch axis is not the first: the shape of a row, and the batch axis. Each part is then a single row.
    on_axis: Option<(Shape, usize)>,
}

impl OutputSplit {
    /// Splits along the first dimension; `parts` has the number of rows of each part. Drops rows beyond the last part.
    pub fn rows(
        name: &str,
        dtype: DataType,
        shape: &Shape,
        data: OutputBuffer,
        parts: &[u64],
    ) -> Result<OutputSplit, BatchError> {
        let want: u64 = parts.iter().sum();
        let got = shape.0.first().copied().unwrap_or(0);
        if got < want {
            return Err(BatchError::TooFewRows { output: name.to_owned(), want, got });
        }
        let row = shape.without(0);
        let ends = ends(dtype, &row, &data, parts);
        // The ends only grow.
        if ends.last().is_some_and(|end| *end > data.len()) {
            return Err(BatchError::Missing { output: name.to_owned() });
        }
        let parts = parts.iter().zip(ends).map(|(count, end)| (row.with(0, *count), end)).collect();
        Ok(OutputSplit { dtype, data, parts, crop: None, on_axis: None })
    }

    /// Splits a list of elements into parts of these shapes, one after the other. Drops elements beyond the last part.
    pub fn shapes(
        name: &str,
        dtype: DataType,
        data: OutputBuffer,
        parts: Vec<Shape>,
    ) -> Result<OutputSplit, BatchError> {
        let counts: Vec<u64> = parts.iter().map(|shape| shape.elements().unwrap_or(0)).collect();
        let ends = ends(dtype, &Shape::default(), &data, &counts);
        if ends.last().is_some_and(|end| *end > data.len()) {
            let got =
                dtype.size().map_or_else(|| rows::BytesElements(data.as_bytes()).count(), |size| data.len() / size);
            let want = counts.iter().sum();
            return Err(BatchError::TooFewElements { output: name.to_owned(), want, got: got as u64 });
        }
        Ok(OutputSplit { dtype, data, parts: parts.into_iter().zip(ends).collect(), crop: None, on_axis: None })
    }

    /// Splits into parts of one row each; the batch dimension is at `axis`. A client gets a 1 there, and another 1 in front.
    pub fn on_axis(
        name: &str,
        dtype: DataType,
        shape: &Shape,
        data: OutputBuffer,
        (count, axis): (u64, usize),
    ) -> Result<OutputSplit, BatchError> {
        let got = shape.0.get(axis).copied().unwrap_or(0);
        if got != count {
            return Err(BatchError::TooFewRows { output: name.to_owned(), want: count, got });
        }
        let missing = || BatchError::Missing { output: name.to_owned() };
        let row = shape.without(axis);
        let part = row.with(axis, 1).with(0, 1);
        let counts = vec![1; usize::try_from(count).unwrap_or(0)];
        // The end of each BYTES row is known only after the elements are ordered by row. Such data is on the host already.
        let (data, on_axis) = match dtype.size() {
            Some(_) => (data, Some((row.clone(), axis))),
            None => {
                let split = rows::split(dtype, &row, axis, counts.len(), data.as_bytes()).ok_or_else(missing)?;
                (OutputBuffer::Copied(split.concat().into()), None)
            }
        };
        let ends = ends(dtype, &row, &data, &counts);
        if ends.last().is_some_and(|end| *end > data.len()) {
            return Err(missing());
        }
        let parts = ends.into_iter().map(|end| (part.clone(), end)).collect();
        Ok(OutputSplit { dtype, data, parts, crop: None, on_axis })
    }

    /// A single part: the output of a run with one request.
    pub fn whole(dtype: DataType, shape: Shape, data: OutputBuffer) -> OutputSplit {
        let end = data.len();
        OutputSplit { dtype, data, parts: vec![(shape, end)], crop: None, on_axis: None }
    }

    /// Marks the output as padded on this side: along this axis each part has its own length.
    pub fn cropped(self, axis: usize, side: PaddingSide, lengths: Vec<u64>) -> OutputSplit {
        OutputSplit { crop: Some((axis, side, lengths)), ..self }
    }

    /// The pooled memory of this output, if it has any. The run writes it before the output is split.
    pub fn room(&mut self) -> Option<&mut Pooled> {
        match &mut self.data {
            OutputBuffer::Pooled(pooled) => Some(pooled),
            OutputBuffer::Owned(_) | OutputBuffer::Copied(_) => None,
        }
    }

    /// Splits the data and returns the parts, in order. `None`: a part that is not `wanted`, for example a padding row. Parts beyond the end of
    /// `wanted` are.
    pub fn tensors<W: IntoIterator<Item = bool>>(self, wanted: W) -> impl Iterator<Item = Option<Tensor>> {
        let mut wanted = wanted.into_iter();
        let (dtype, count) = (self.dtype, self.parts.len());
        let data = match self.on_axis.filter(|(row, axis)| count > 1 && row.0.iter().take(*axis).any(|n| *n != 1)) {
            Some((row, axis)) => {
                let parts = rows::split(dtype, &row, axis, count, self.data.as_bytes()).unwrap_or_default();
                OutputBuffer::Copied(parts.concat().into())
            }
            None => self.data,
        };
        let source = PartSource::new(data, count);
        let (axis, side, lengths) = self.crop.unwrap_or_default();
        let mut lengths = lengths.into_iter();
        self.parts.into_iter().scan(0, move |at, (shape, end)| {
            let start = std::mem::replace(at, end.min(source.bytes.len()));
            let length = lengths.next();
            if !wanted.next().unwrap_or(true) {
                return Some(None);
            }
            let tensor = Tensor { dtype, shape, data: source.part(start..*at) };
            Some(Some(match length {
                Some(length) => crop(tensor, axis, length, side),
                None => tensor,
            }))
        })
    }
}

/// The offset of the end of each part.
fn ends(dtype: DataType, row: &Shape, data: &OutputBuffer, parts: &[u64]) -> Vec<usize> {
    let elements = row.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let upto = parts.iter().scan(0usize, |sum, n| {
        *sum = sum.saturating_add(usize::try_from(*n).unwrap_or(usize::MAX));
        Some(*sum)
    });
    match dtype.size() {
        Some(size) => upto.map(|rows| rows.saturating_mul(elements).saturating_mul(size)).collect(),
        None => {
            let ends: Vec<usize> = std::iter::once(0)
                .chain(rows::BytesElements(data.as_bytes()).scan(0usize, |end, text| {
                    *end += 4 + text.len();
                    Some(*end)
                }))
                .collect();
            upto.map(|rows| ends.get(rows.saturating_mul(elements)).copied().unwrap_or(usize::MAX)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Pool;

    fn all(cut: OutputSplit) -> Vec<Tensor> {
        cut.tensors([]).map(Option::unwrap).collect()
    }

    fn split(dtype: DataType, shape: &Shape, data: OutputBuffer, parts: &[u64]) -> Result<Vec<Tensor>, BatchError> {
        OutputSplit::rows("o", dtype, shape, data, parts).map(all)
    }

    #[test]
    fn parts_get_their_rows_and_padding_is_dropped() {
        let data = OutputBuffer::Copied(Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8]));
        let parts = split(DataType::Uint8, &Shape::new(&[4, 2]), data, &[1, 2]).unwrap();
        assert_eq!((parts[0].shape.clone(), &parts[0].data[..]), (Shape::new(&[1, 2]), &[1, 2][..]));
        assert_eq!((parts[1].shape.clone(), &parts[1].data[..]), (Shape::new(&[2, 2]), &[3, 4, 5, 6][..]));
    }

    #[test]
    fn a_list_of_elements_is_cut_by_shapes() {
        let data = || OutputBuffer::Copied(Bytes::from_static(&[1, 2, 3, 4, 5, 6]));
        let of = |dims: &[&[u64]]| {
            let shapes = dims.iter().map(|d| Shape::new(d)).collect();
            OutputSplit::shapes("o", DataType::Uint8, data(), shapes).map(all)
        };
        let parts = of(&[&[1, 2], &[2, 1, 2]]).unwrap();
        assert_eq!((&parts[0].data[..], &parts[1].data[..]), (&[1, 2][..], &[3, 4, 5, 6][..]));
        assert_eq!(parts[1].shape, Shape::new(&[2, 1, 2]));
        let error = of(&[&[1, 7]]).unwrap_err();
        assert_eq!(error, BatchError::TooFewElements { output: "o".to_owned(), want: 7, got: 6 });
    }

    /// A client that takes its answer late holds no memory of the others.
    #[test]
    fn a_part_of_a_batch_pins_less_than_twice_its_own_bytes() {
        for (size, count) in [(100, 64), (1 << 10, 64), (20_000, 3), (40_000, 64), (300_000, 5)] {
            let pool = Pool::new(usize::MAX);
            let data = OutputBuffer::Pooled(pool.take(size * count).unwrap());
            let mut parts =
                split(DataType::Uint8, &Shape::new(&[count as u64, size as u64]), data, &vec![1; count]).unwrap();
            let mut late = parts.swap_remove(count / 2);
            drop(parts);
            let idle = pool.idle_bytes();
            let taken = late.data.len();
            late.data = Bytes::new();
            let pinned = pool.idle_bytes() - idle;
            assert!(pinned < 2 * taken, "{count} parts of {size} bytes: {pinned} are pinned for {taken}");
        }
    }

    #[test]
    fn unwanted_parts_are_left_out() {
        let data = OutputBuffer::Copied(Bytes::from_static(&[1, 2, 3]));
        let cut = OutputSplit::rows("o", DataType::Uint8, &Shape::new(&[3, 1]), data, &[1, 1, 1]).unwrap();
        let parts: Vec<_> = cut.tensors([true, false]).map(|part| part.map(|tensor| tensor.data.to_vec())).collect();
        assert_eq!(parts, [Some(vec![1]), None, Some(vec![3])]);
    }

    #[test]
    fn rows_on_another_axis_are_split_into_contiguous_parts() {
        let data = OutputBuffer::Copied(Bytes::from_static(&[1, 2, 5, 6, 3, 4, 7, 8]));
        let split = OutputSplit::on_axis("o", DataType::Uint8, &Shape::new(&[2, 2, 2]), data, (2, 1)).unwrap();
        let parts = all(split);
        assert_eq!((parts[0].shape.clone(), &parts[0].data[..]), (Shape::new(&[1, 2, 1, 2]), &[1, 2, 3, 4][..]));
        assert_eq!((parts[1].shape.clone(), &parts[1].data[..]), (Shape::new(&[1, 2, 1, 2]), &[5, 6, 7, 8][..]));
    }

    #[test]
    fn texts_are_cut_between_elements() {
        let data = OutputBuffer::Copied(Bytes::from_static(b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc"));
        let parts = split(DataType::Bytes, &Shape::new(&[3, 1]), data, &[1, 1, 1]).unwrap();
        let sizes: Vec<usize> = parts.iter().map(|p| p.data.len()).collect();
        assert_eq!(sizes, [5, 4, 6]);
    }

    #[test]
    fn too_few_output_rows_are_reported_with_tritons_message() {
        let data = OutputBuffer::Copied(Bytes::from_static(&[1]));
        let error = split(DataType::Uint8, &Shape::new(&[1, 1]), data, &[1, 1]).unwrap_err();
        let text = "failed to split the output tensor 'o' in responses: expected batch size of at least 2 in model output, got 1";
        assert_eq!(error.to_string(), text);
    }
}
