//! Batch inputs: tensors that describe the requests of a batch. They hold element counts, running sums of these, and shapes of items.

use std::borrow::Borrow;

use sequor_core::{DataType, Shape};

use crate::config::model::settings::{BatchInputKind, Padding, PaddingSide};

/// The values of a batch input, and their shape. `sources` has the whole shape of the source input for each request, padding included.
pub fn describe(
    kind: BatchInputKind,
    sources: &[impl Borrow<Shape>],
    batching: bool,
    padding: Option<&Padding>,
) -> (Shape, Vec<u64>) {
    let counts = || sources.iter().map(|shape| shape.borrow().elements().unwrap_or(0));
    let sums = || {
        counts().scan(0u64, |sum, n| {
            *sum = sum.saturating_add(n);
            Some(*sum)
        })
    };
    let list = |values: Vec<u64>| (Shape(vec![values.len() as u64]), values);
    match kind {
        BatchInputKind::ElementCount => list(counts().collect()),
        BatchInputKind::AccumulatedElementCount => list(sums().collect()),
        BatchInputKind::AccumulatedElementCountWithZero => list(std::iter::once(0).chain(sums()).collect()),
        BatchInputKind::MaxElementCountAsShape => {
            let longest = counts().max().unwrap_or(0);
            (Shape(vec![longest]), vec![0; usize::try_from(longest).unwrap_or(0)])
        }
        BatchInputKind::ItemShape => {
            let values = items(sources, batching);
            let rank = sources.first().map_or(0, |shape| shape.borrow().rank().saturating_sub(usize::from(batching)));
            let rows = values.len().checked_div(rank).unwrap_or(0);
            (Shape(vec![rows as u64, rank as u64]), values)
        }
        BatchInputKind::ItemShapeFlatten => list(items(sources, batching)),
        BatchInputKind::Lengths => list(lengths(sources, padding)),
        BatchInputKind::Mask => {
            let mask = Mask::new(sources, padding);
            (mask.shape(), mask.values().collect())
        }
    }
}

/// A mask: for each item 1 at its places and 0 in its padding, then 1 for each new step. It is not written before its type is known.
#[derive(Debug)]
pub struct Mask {
    lengths: Vec<u64>,
    /// The length of every item with its padding.
    whole: u64,
    side: PaddingSide,
    new: u64,
}

impl Mask {
    pub fn new(sources: &[impl Borrow<Shape>], padding: Option<&Padding>) -> Mask {
        let lengths = lengths(sources, padding);
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let whole = padding.map_or(longest, |padding| padding.padded(longest));
        Mask { lengths, whole, side: padding.map(|padding| padding.side).unwrap_or_default(), new: 0 }
    }

    /// The mask of states, with `new` new steps behind them.
    #[must_use]
    pub fn with_new_steps(self, new: u64) -> Mask {
        Mask { new, ..self }
    }

    pub fn shape(&self) -> Shape {
        Shape(vec![self.lengths.len() as u64, self.whole.saturating_add(self.new)])
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        self.lengths.iter().flat_map(move |length| {
            let places = self.side.places(*length, self.whole);
            (0..self.whole).map(move |n| u64::from(places.contains(&n))).chain((0..self.new).map(|_| 1))
        })
    }

    /// Appends the values as elements of this type.
    pub fn push(&self, dtype: DataType, out: &mut Vec<u8>) {
        let (mut one, mut zero) = (Vec::new(), Vec::new());
        push(dtype, &[1], &mut one);
        push(dtype, &[0], &mut zero);
        let elements = self.shape().elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        out.reserve(elements.saturating_mul(one.len()));
        self.values().for_each(|value| out.extend_from_slice(if value == 0 { &zero } else { &one }));
    }
}

/// The length of every item along the padded dimension.
fn lengths(sources: &[impl Borrow<Shape>], padding: Option<&Padding>) -> Vec<u64> {
    let axis = padding.map_or(1, |padding| padding.axis + 1);
    let of = |shape: &Shape| {
        let rows = shape.0.first().and_then(|rows| usize::try_from(*rows).ok()).unwrap_or(0);
        std::iter::repeat_n(shape.0.get(axis).copied().unwrap_or(0), rows)
    };
    sources.iter().map(Borrow::borrow).flat_map(of).collect()
}

/// The shape of every item: that of its request without the batch dimension.
fn items(sources: &[impl Borrow<Shape>], batching: bool) -> Vec<u64> {
    let mut values = Vec::new();
    for shape in sources.iter().map(Borrow::borrow) {
        match shape.0.split_first() {
            Some((rows, item)) if batching => (0..*rows).for_each(|_| values.extend_from_slice(item)),
            _ => values.extend_from_slice(&shape.0),
        }
    }
    values
}

/// Appends the values as elements of this type; as INT32 if the type is not numeric.
pub fn push(dtype: DataType, values: &[u64], out: &mut Vec<u8>) {
    for value in values {
        match dtype {
            DataType::Fp32 => out.extend((*value as f32).to_le_bytes()),
            DataType::Int64 => out.extend(i64::try_from(*value).unwrap_or(i64::MAX).to_le_bytes()),
            DataType::Bool => out.push(u8::from(*value != 0)),
            _ => out.extend(i32::try_from(*value).unwrap_or(i32::MAX).to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BatchInputKind as K;

    fn described(kind: K, shapes: &[&[u64]]) -> (Vec<u64>, Vec<u64>) {
        let shapes: Vec<Shape> = shapes.iter().map(|dims| Shape::new(dims)).collect();
        let (shape, values) = describe(kind, &shapes, true, None);
        (shape.0, values)
    }

    /// The worked examples of Triton's documentation and of its tests.
    #[test]
    fn each_batch_input_kind_describes_the_batch_as_triton_does() {
        let three: &[&[u64]] = &[&[1, 3], &[1, 4], &[1, 5]];
        assert_eq!(described(K::ElementCount, three), (vec![3], vec![3, 4, 5]));
        assert_eq!(described(K::AccumulatedElementCount, three), (vec![3], vec![3, 7, 12]));
        assert_eq!(described(K::AccumulatedElementCountWithZero, three), (vec![4], vec![0, 3, 7, 12]));
        assert_eq!(described(K::MaxElementCountAsShape, three), (vec![5], vec![0; 5]));
        let four: &[&[u64]] = &[&[1, 2], &[1, 4], &[1, 1], &[1, 3]];
        assert_eq!(described(K::ElementCount, four).1, [2, 4, 1, 3]);
        assert_eq!(described(K::AccumulatedElementCount, four).1, [2, 6, 7, 10]);
        assert_eq!(described(K::AccumulatedElementCountWithZero, four).1, [0, 2, 6, 7, 10]);
        assert_eq!(described(K::MaxElementCountAsShape, four).0, [4]);
        let items: &[&[u64]] = &[&[2, 3, 1], &[1, 2, 2]];
        assert_eq!(described(K::ItemShape, items), (vec![3, 2], vec![3, 1, 3, 1, 2, 2]));
        assert_eq!(described(K::ItemShapeFlatten, items), (vec![6], vec![3, 1, 3, 1, 2, 2]));
        assert_eq!(described(K::ElementCount, items).1, [6, 4]);
        let others: &[&[u64]] = &[&[1, 4, 1], &[1, 1, 2], &[1, 1, 2], &[1, 2, 2]];
        assert_eq!(described(K::ItemShapeFlatten, others).1, [4, 1, 1, 2, 1, 2, 2, 2]);
    }

    #[test]
    fn padded_items_have_lengths_and_masks() {
        let padding = Padding { axis: 0, side: PaddingSide::Right, value: vec![0], multiple_of: 4, buckets: vec![] };
        let shapes = [Shape::new(&[2, 3, 80]), Shape::new(&[1, 1, 80])];
        let (shape, values) = describe(K::Lengths, &shapes, true, Some(&padding));
        assert_eq!((shape.0, values), (vec![3], vec![3, 3, 1]));
        let (shape, values) = describe(K::Mask, &shapes, true, Some(&padding));
        assert_eq!((shape.0, values), (vec![3, 4], vec![1, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0]));
        let left = Padding { side: PaddingSide::Left, ..padding };
        let states = [Shape::new(&[1, 1]), Shape::new(&[1, 2])];
        let mask = Mask::new(&states, Some(&Padding { multiple_of: 1, ..left.clone() })).with_new_steps(1);
        assert_eq!((mask.shape().0, mask.values().collect()), (vec![2, 3], vec![0, 1, 1, 1, 1, 1]));
        for dtype in [DataType::Int64, DataType::Fp32, DataType::Bool, DataType::Int32] {
            let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
            push(dtype, &mask.values().collect::<Vec<_>>(), &mut one_by_one);
            mask.push(dtype, &mut at_once);
            assert_eq!(at_once, one_by_one, "{dtype}");
        }
        let (_, values) = describe(K::Mask, &shapes, true, Some(&left));
        assert_eq!(values, [0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn batch_input_values_are_written_as_int32_or_fp32() {
        let mut out = Vec::new();
        push(DataType::Int32, &[7], &mut out);
        push(DataType::Fp32, &[7], &mut out);
        assert_eq!(out, [7i32.to_le_bytes(), 7f32.to_le_bytes()].concat());
    }
}
