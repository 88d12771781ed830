//! Checks that a reshape keeps every element. Fixed sizes must agree. With open dimensions, the products between them must agree, group by
//! group.

/// The fault of a `reshape` of `dims`, if it has one.
pub(super) fn fault(dims: &[i64], reshape: &[i64], batches: bool) -> Option<String> {
    const SIZE: &str = "has different size for dims and reshape";
    if reshape.is_empty() && !batches {
        let what = "cannot have empty reshape for non-batching model as scalar tensors are not supported";
        return Some(what.to_owned());
    }
    if reshape.iter().any(|d| *d < 1 && *d != -1) {
        let what = "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension";
        return Some(what.to_owned());
    }
    if reshape.is_empty() && size(dims) == Some(1) {
        return None;
    }
    if reshape.is_empty() || size(dims) != size(reshape) {
        return Some(SIZE.to_owned());
    }
    let (left, right) = (groups(dims), groups(reshape));
    if left.len() != right.len() {
        return Some("has different number of variable-size dimensions for dims and reshape".to_owned());
    }
    (left != right).then(|| SIZE.to_owned())
}

/// The number of elements; `None` if a dimension is open.
fn size(dims: &[i64]) -> Option<u128> {
    if dims.contains(&-1) { None } else { Some(product(dims)) }
}

/// The products between the open dimensions.
fn groups(dims: &[i64]) -> Vec<u128> {
    dims.split(|d| *d == -1).map(product).collect()
}

fn product(dims: &[i64]) -> u128 {
    dims.iter().fold(1u128, |n, d| n.saturating_mul(u128::from(d.unsigned_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reshapes_that_keep_every_element_pass() {
        let empty = "cannot have empty reshape for non-batching model as scalar tensors are not supported";
        let size = "has different size for dims and reshape";
        let groups = "has different number of variable-size dimensions for dims and reshape";
        let dims = "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension";
        type Case<'a> = (&'a [i64], &'a [i64], bool, Option<&'a str>);
        let cases: [Case<'_>; 12] = [
            (&[1], &[], true, None),
            (&[1, 1], &[], true, None),
            (&[2], &[], true, Some(size)),
            (&[-1], &[], true, Some(size)),
            (&[1], &[], false, Some(empty)),
            (&[4, 4], &[16], false, None),
            (&[4], &[2, 3], true, Some(size)),
            (&[4], &[0, 4], true, Some(dims)),
            (&[2, 4, -1, 6], &[8, -1, 1, 6], true, None),
            (&[-1], &[1, -1], true, None),
            (&[-1, 4], &[4, -1], true, Some(size)),
            (&[-1, -1], &[-1], true, Some(groups)),
        ];
        for (from, to, batches, verdict) in cases {
            assert_eq!(fault(from, to, batches).as_deref(), verdict, "{from:?} {to:?} {batches}");
        }
    }
}
