//! Joins the outputs of several runs of one request on their first dimension.

use bytes::Bytes;
use sequor_core::Shape;

use crate::tensor::Tensor;

/// Joins the tensors of all runs. A single tensor stays as it is. The error names the tensors that do not fit.
pub(super) fn join(mut parts: Vec<Tensor>) -> Result<Option<Tensor>, String> {
    if parts.len() < 2 {
        return Ok(parts.pop());
    }
    let Some(first) = parts.first() else { return Ok(None) };
    let (dtype, row) = (first.dtype, first.shape.without(0));
    let (mut rows, mut bytes) = (0u64, 0);
    for Tensor { dtype: of, shape, data } in &parts {
        let Some(n) = shape.0.first() else { return Err("has no dimension to join the runs on".to_owned()) };
        if *of != dtype || shape.without(0) != row {
            return Err(format!("has other dimensions in some runs: {} and {shape}", first.shape));
        }
        (rows, bytes) = (rows.saturating_add(*n), bytes + data.len());
    }
    let mut data = Vec::with_capacity(bytes);
    for part in &parts {
        data.extend_from_slice(&part.data);
    }
    Ok(Some(Tensor { dtype, shape: Shape(row.with(0, rows).0), data: Bytes::from(data) }))
}

#[cfg(test)]
mod tests {
    use sequor_core::DataType;

    use super::*;

    fn tensor(shape: &[u64], data: &'static [u8]) -> Tensor {
        Tensor { dtype: DataType::Uint8, shape: Shape::new(shape), data: Bytes::from_static(data) }
    }

    #[test]
    fn runs_are_joined_on_the_first_dimension() {
        let joined = join(vec![tensor(&[1, 2], b"ab"), tensor(&[2, 2], b"cdef")]);
        assert_eq!(joined, Ok(Some(tensor(&[3, 2], b"abcdef"))));
        assert_eq!(join(vec![tensor(&[], b"a")]), Ok(Some(tensor(&[], b"a"))), "one run stays as it is");
        assert_eq!(join(Vec::new()), Ok(None));
        assert!(join(vec![tensor(&[], b"a"), tensor(&[], b"b")]).is_err());
        assert!(join(vec![tensor(&[1, 1], b"a"), tensor(&[1, 2], b"bc")]).is_err());
    }
}
