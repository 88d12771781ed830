//! Lays out requests of different lengths as one tensor. Each is padded on the right, to the longest length or to the next bucket.

use std::borrow::Borrow;

use sequor_core::Shape;

use super::product;
use crate::config::model::settings::Padding;

/// The whole shape of the padded tensor. `sources` has the whole shape of each request's tensor.
pub fn shape(sources: &[impl Borrow<Shape>], padding: &Padding) -> Option<Shape> {
    let shapes = || sources.iter().map(Borrow::borrow);
    let length = |shape: &Shape| shape.0.get(padding.axis + 1).copied();
    let longest = shapes().filter_map(length).max()?;
    let rows = shapes().filter_map(|shape| shape.0.first()).sum();
    let mut shape = shapes().next()?.clone();
    *shape.0.first_mut()? = rows;
    *shape.0.get_mut(padding.axis + 1)? = padding.padded(longest);
    Some(shape)
}

/// Writes each row and its padding. A row without data becomes padding only.
pub fn write<'a>(
    target: &mut [u8],
    rows: impl Iterator<Item = (Option<&'a [u8]>, &'a Shape)>,
    shape: &Shape,
    padding: &Padding,
) {
    let axis = padding.axis + 1;
    let size = padding.value.len().max(1);
    if target.is_empty() {
        return;
    }
    let inner = product(shape.0.get(axis + 1..).unwrap_or_default()).saturating_mul(size);
    let stride = product(shape.0.get(axis..=axis).unwrap_or_default()).saturating_mul(inner);
    let mut at = 0usize;
    for (data, of) in rows {
        let own = product(of.0.get(axis..=axis).unwrap_or_default()).saturating_mul(inner);
        for outer in 0..product(of.0.get(..axis).unwrap_or_default()) {
            let Some(place) = target.get_mut(at..at.saturating_add(stride)) else { return };
            at += stride;
            let from = outer.saturating_mul(own);
            let part = data.and_then(|data| data.get(from..from.saturating_add(own))).unwrap_or_default();
            let (front, rest) = place.split_at_mut(part.len().min(stride));
            front.copy_from_slice(part.get(..front.len()).unwrap_or_default());
            if let Some(value) = padding.value.get(..size) {
                rest.chunks_exact_mut(size).for_each(|element| element.copy_from_slice(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::settings::PaddingSide;

    #[test]
    fn rows_of_any_axis_are_padded_to_the_longest_or_a_bucket() {
        let side = PaddingSide::Right;
        let padding =
            |axis, buckets: &[u64]| Padding { axis, side, value: vec![9], multiple_of: 1, buckets: buckets.to_vec() };
        let of = |padding: &Padding, rows: &[(&[u64], &[u8])]| {
            let shapes: Vec<Shape> = rows.iter().map(|(dims, _)| Shape::new(dims)).collect();
            let whole = shape(&shapes, padding).unwrap();
            let mut target = vec![0; whole.elements().unwrap() as usize];
            let rows = rows.iter().zip(&shapes).map(|((_, data), shape)| (Some(*data), shape));
            write(&mut target, rows, &whole, padding);
            (whole.0, target)
        };
        let two: &[(&[u64], &[u8])] = &[(&[1, 3], &[1, 2, 3]), (&[2, 1], &[4, 5])];
        assert_eq!(of(&padding(0, &[]), two), (vec![3, 3], vec![1, 2, 3, 4, 9, 9, 5, 9, 9]));
        assert_eq!(of(&padding(0, &[2, 4]), two).0, [3, 4]);
        let second: &[(&[u64], &[u8])] = &[(&[1, 2, 1], &[1, 2]), (&[1, 2, 2], &[3, 4, 5, 6])];
        assert_eq!(of(&padding(1, &[]), second), (vec![2, 2, 2], vec![1, 9, 2, 9, 3, 4, 5, 6]));
    }

    #[test]
    fn dimensions_beside_a_0_may_be_of_any_size() {
        let padding =
            Padding { axis: 0, side: PaddingSide::Right, value: vec![9], multiple_of: 1, buckets: Vec::new() };
        for dims in [[1, 0, 1 << 40, 1 << 40], [1, 1 << 40, 1 << 40, 0], [0, 1 << 40, 1 << 40, 1 << 40]] {
            let row = Shape::new(&dims);
            let whole = shape(std::slice::from_ref(&row), &padding).unwrap();
            assert_eq!(whole.elements(), row.elements());
            write(&mut [], [(Some(&[][..]), &row)].into_iter(), &whole, &padding);
        }
    }
}
