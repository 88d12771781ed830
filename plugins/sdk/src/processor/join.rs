//! Joins the outputs of several runs.

use super::dtype::Dtype;
use super::tensor::Tensor;
use super::tensors::Tensors;

/// Joins the outputs of several runs on their first dimension, as the server does for outputs that a processor does not see. A single run
/// stays unchanged. Panics if the runs differ in their outputs or in other dimensions.
#[must_use]
pub fn join(runs: Vec<Tensors>) -> Tensors {
    if runs.len() < 2 {
        return runs.into_iter().next().unwrap_or_default();
    }
    let names = |run: &Tensors| run.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    let all = runs.first().map(names).unwrap_or_default();
    all.into_iter().map(|name| (name.clone(), one(&name, &runs))).collect()
}

fn one(name: &str, runs: &[Tensors]) -> Tensor {
    let (mut dtype, mut shape, mut bytes) = (Dtype(0), Vec::new(), Vec::new());
    for (n, run) in runs.iter().enumerate() {
        let part = run.find(name).unwrap_or_else(|| panic!("run {n} has no output \"{name}\""));
        let of = part.shape();
        if n == 0 {
            (dtype, shape) = (part.dtype(), of);
            assert!(!shape.is_empty(), "output \"{name}\" has no dimension to join the runs on");
        } else {
            assert!(of.get(1..) == shape.get(1..), "output \"{name}\" has other dimensions in run {n}: {of:?}");
            shape[0] += of[0];
        }
        bytes.extend_from_slice(&part.bytes());
    }
    Tensor::from_bytes(dtype, &shape, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_on_the_first_dimension() {
        let run = |rows: u64, values: &[i32]| Tensors::from([("x", Tensor::new(&[rows, 2], values))]);
        let joined = join(vec![run(1, &[1, 2]), run(2, &[3, 4, 5, 6])]);
        assert_eq!(joined, run(3, &[1, 2, 3, 4, 5, 6]));
        assert_eq!(join(Vec::new()), Tensors::new());
    }
}
