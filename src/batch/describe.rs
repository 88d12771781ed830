//! Batch inputs: tensors that describe the requests of a batch. Element counts, their running sums, and the shapes of items.

use sequor_core::{DataType, Shape};

use crate::config::model::settings::BatchInputKind;

/// The values of a batch input and their shape. `sources` has the source input's whole shape for each request, padding included.
pub(super) fn describe(kind: BatchInputKind, sources: &[Shape], batching: bool) -> (Shape, Vec<u64>) {
    let counts = || sources.iter().map(|shape| shape.elements().unwrap_or(0));
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
            let rank = sources.first().map_or(0, |shape| shape.0.len().saturating_sub(usize::from(batching)));
            let rows = values.len().checked_div(rank).unwrap_or(0);
            (Shape(vec![rows as u64, rank as u64]), values)
        }
        BatchInputKind::ItemShapeFlatten => list(items(sources, batching)),
    }
}

/// The shape of every item: that of its request without the batch dimension.
fn items(sources: &[Shape], batching: bool) -> Vec<u64> {
    let mut values = Vec::new();
    for shape in sources {
        match shape.0.split_first() {
            Some((rows, item)) if batching => (0..*rows).for_each(|_| values.extend_from_slice(item)),
            _ => values.extend_from_slice(&shape.0),
        }
    }
    values
}

/// Appends the values as elements of INT32 or FP32.
pub(super) fn push(dtype: DataType, values: &[u64], out: &mut Vec<u8>) {
    for value in values {
        match dtype {
            DataType::Fp32 => out.extend((*value as f32).to_le_bytes()),
            _ => out.extend(i32::try_from(*value).unwrap_or(i32::MAX).to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BatchInputKind as K;

    fn said(kind: K, shapes: &[&[u64]]) -> (Vec<u64>, Vec<u64>) {
        let shapes: Vec<Shape> = shapes.iter().map(|dims| Shape::of(dims)).collect();
        let (shape, values) = describe(kind, &shapes, true);
        (shape.0, values)
    }

    /// The worked examples of Triton's documentation and of its tests.
    #[test]
    fn each_kind_says_what_it_should() {
        let three: &[&[u64]] = &[&[1, 3], &[1, 4], &[1, 5]];
        assert_eq!(said(K::ElementCount, three), (vec![3], vec![3, 4, 5]));
        assert_eq!(said(K::AccumulatedElementCount, three), (vec![3], vec![3, 7, 12]));
        assert_eq!(said(K::AccumulatedElementCountWithZero, three), (vec![4], vec![0, 3, 7, 12]));
        assert_eq!(said(K::MaxElementCountAsShape, three), (vec![5], vec![0; 5]));
        let four: &[&[u64]] = &[&[1, 2], &[1, 4], &[1, 1], &[1, 3]];
        assert_eq!(said(K::ElementCount, four).1, [2, 4, 1, 3]);
        assert_eq!(said(K::AccumulatedElementCount, four).1, [2, 6, 7, 10]);
        assert_eq!(said(K::AccumulatedElementCountWithZero, four).1, [0, 2, 6, 7, 10]);
        assert_eq!(said(K::MaxElementCountAsShape, four).0, [4]);
        let items: &[&[u64]] = &[&[2, 3, 1], &[1, 2, 2]];
        assert_eq!(said(K::ItemShape, items), (vec![3, 2], vec![3, 1, 3, 1, 2, 2]));
        assert_eq!(said(K::ItemShapeFlatten, items), (vec![6], vec![3, 1, 3, 1, 2, 2]));
        assert_eq!(said(K::ElementCount, items).1, [6, 4]);
        let others: &[&[u64]] = &[&[1, 4, 1], &[1, 1, 2], &[1, 1, 2], &[1, 2, 2]];
        assert_eq!(said(K::ItemShapeFlatten, others).1, [4, 1, 1, 2, 1, 2, 2, 2]);
    }

    #[test]
    fn values_are_of_either_type() {
        let mut out = Vec::new();
        push(DataType::Int32, &[7], &mut out);
        push(DataType::Fp32, &[7], &mut out);
        assert_eq!(out, [7i32.to_le_bytes(), 7f32.to_le_bytes()].concat());
    }
}
