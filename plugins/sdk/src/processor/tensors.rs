//! Tensors by the names of inputs or outputs.

use std::borrow::Cow;

use super::refusal::{Refusal, code, refuse};
use super::tensor::Tensor;

/// Tensors by the names of inputs or outputs.
///
/// ```
/// use sequor_plugin::processor::*;
///
/// let inputs = Tensors::from([("input", Tensor::new(&[1, 2], &[0.5f32, 1.0]))]);
/// assert_eq!(inputs.get("input").unwrap().values::<f32>().unwrap(), [0.5, 1.0]);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tensors(Vec<(Cow<'static, str>, Tensor)>);

impl Tensors {
    #[must_use]
    pub fn new() -> Tensors {
        Tensors::default()
    }

    /// The same tensors with one more.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, tensor: Tensor) -> Tensors {
        self.insert(name, tensor);
        self
    }

    /// Adds a tensor. It replaces one of the same name.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, tensor: Tensor) {
        let name = name.into();
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, tensor));
    }

    /// The tensor of this name. The refusal reports that it is missing.
    pub fn get(&self, name: &str) -> Result<&Tensor, Refusal> {
        self.find(name).ok_or_else(|| refuse(code::WRONG_REQUEST, format!("\"{name}\" is missing")))
    }

    /// The tensor of this name, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Removes and returns the tensor of this name, if there is one.
    pub fn take(&mut self, name: &str) -> Option<Tensor> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(name, tensor)| (&**name, tensor))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = (Cow<'static, str>, Tensor)> {
        self.0.into_iter()
    }
}

impl<N: Into<Cow<'static, str>>, const COUNT: usize> From<[(N, Tensor); COUNT]> for Tensors {
    fn from(all: [(N, Tensor); COUNT]) -> Tensors {
        all.into_iter().collect()
    }
}

impl<N: Into<Cow<'static, str>>> FromIterator<(N, Tensor)> for Tensors {
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(all: I) -> Tensors {
        let mut tensors = Tensors::new();
        for (name, tensor) in all {
            tensors.insert(name, tensor);
        }
        tensors
    }
}
