//! Shapes: of actual tensors ([`Shape`]), and as declared, where dimensions may be open ([`Dims`]).

use std::fmt;

/// The dimensions of an actual tensor.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Shape(pub Vec<u64>);

impl Shape {
    pub fn new(dims: &[u64]) -> Shape {
        Shape(dims.to_vec())
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements; `None` if it does not fit 64 bits, which a hostile shape may cause.
    pub fn elements(&self) -> Option<u64> {
        self.0.iter().try_fold(1u64, |n, d| n.checked_mul(*d))
    }

    /// The bytes of all elements, each of this size; `None` if they do not fit 64 bits.
    pub fn bytes(&self, element: usize) -> Option<u64> {
        self.elements()?.checked_mul(element as u64)
    }

    /// This shape with `dim` inserted at `axis`, or at the end if `axis` is beyond it.
    pub fn with(&self, axis: usize, dim: u64) -> Shape {
        Shape(inserted(&self.0, axis, dim))
    }

    /// This shape without the dimension at `axis`.
    pub fn without(&self, axis: usize) -> Shape {
        Shape(removed(&self.0, axis))
    }

    /// A 64-bit class (FNV-1a over the dimensions). Requests whose open dimensions differ have different classes, except for hash
    /// collisions.
    pub fn class(&self, seed: u64) -> u64 {
        let start = seed ^ 0xcbf2_9ce4_8422_2325;
        let words = std::iter::once(self.0.len() as u64).chain(self.0.iter().copied());
        words.flat_map(u64::to_le_bytes).fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

/// Formats as Triton does: `[1,576]`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.0)
    }
}

/// One declared dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dim {
    Fixed(u64),
    /// −1: any size.
    Any,
}

impl Dim {
    /// Converts from the wire: any negative number is an open dimension.
    pub fn from_wire(dim: i64) -> Dim {
        u64::try_from(dim).map_or(Dim::Any, Dim::Fixed)
    }

    pub fn to_wire(self) -> i64 {
        match self {
            Dim::Fixed(n) => i64::try_from(n).unwrap_or(i64::MAX),
            Dim::Any => -1,
        }
    }

    pub fn fixed(self) -> Option<u64> {
        match self {
            Dim::Fixed(n) => Some(n),
            Dim::Any => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_wire())
    }
}

/// Declared dimensions, some of which may be open.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Dims(pub Vec<Dim>);

impl Dims {
    /// Converts from the wire, where −1 is an open dimension.
    pub fn from_wire(dims: &[i64]) -> Dims {
        Dims(dims.iter().copied().map(Dim::from_wire).collect())
    }

    pub fn to_wire(&self) -> Vec<i64> {
        self.0.iter().map(|d| d.to_wire()).collect()
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The shape, if no dimension is open.
    pub fn fixed(&self) -> Option<Shape> {
        self.0.iter().map(|d| d.fixed()).collect::<Option<Vec<u64>>>().map(Shape)
    }

    /// Whether a tensor of this shape fits: the same rank, and equal where a dimension is fixed.
    pub fn matches(&self, shape: &Shape) -> bool {
        self.rank() == shape.rank() && self.0.iter().zip(&shape.0).all(|(d, n)| d.fixed().is_none_or(|d| d == *n))
    }

    /// These dimensions without the one at `axis`.
    pub fn without(&self, axis: usize) -> Dims {
        Dims(removed(&self.0, axis))
    }

    /// These dimensions with `dim` inserted at `axis`, or at the end if `axis` is beyond it.
    pub fn with(&self, axis: usize, dim: Dim) -> Dims {
        Dims(inserted(&self.0, axis, dim))
    }
}

/// Formats as Triton does: `[-1,576]`.
impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.0)
    }
}

/// The dimensions with `dim` inserted. Every request needs some such lists, so each takes one allocation.
fn inserted<D: Copy>(dims: &[D], axis: usize, dim: D) -> Vec<D> {
    let mut all = Vec::with_capacity(dims.len() + 1);
    let (before, after) = dims.split_at(axis.min(dims.len()));
    all.extend_from_slice(before);
    all.push(dim);
    all.extend_from_slice(after);
    all
}

/// The dimensions without that at `axis`.
fn removed<D: Copy>(dims: &[D], axis: usize) -> Vec<D> {
    let mut left = Vec::with_capacity(dims.len());
    let (before, after) = dims.split_at(axis.min(dims.len()));
    left.extend_from_slice(before);
    left.extend_from_slice(after.get(1..).unwrap_or_default());
    left
}

fn list(f: &mut fmt::Formatter<'_>, dims: &[impl fmt::Display]) -> fmt::Result {
    f.write_str("[")?;
    for (i, d) in dims.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        write!(f, "{d}")?;
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_fits_declared_dims_where_they_are_fixed() {
        let dims = Dims::from_wire(&[-1, 4]);
        assert!(dims.matches(&Shape::new(&[0, 4])));
        assert!(!dims.matches(&Shape::new(&[2, 5])));
        assert!(!dims.matches(&Shape::new(&[4])));
        assert_eq!((dims.to_string(), dims.fixed()), ("[-1,4]".to_owned(), None));
    }

    #[test]
    fn hostile_shapes_have_no_element_count() {
        assert_eq!(Shape::new(&[1 << 40, 1 << 40]).elements(), None);
        assert_eq!([1, 8].map(|size| Shape::new(&[1 << 61]).bytes(size)), [Some(1 << 61), None]);
        assert_eq!(Shape::new(&[0, u64::MAX]).elements(), Some(0));
        assert_eq!(Shape::new(&[]).elements(), Some(1));
    }

    #[test]
    fn an_axis_is_inserted_and_removed_at_any_position() {
        let row = Shape::new(&[2, 128]);
        assert_eq!(row.with(1, 8), Shape::new(&[2, 8, 128]));
        assert_eq!(row.with(1, 8).without(1), row);
        assert_ne!(row.class(0), row.with(0, 1).class(0));
    }
}
