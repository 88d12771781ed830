//! One request, without its tensors.

use super::signature::Signature;
use crate::host;
use crate::model::{Key, Model, Sequence};

/// The facts of one request, in the contract's form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallFacts {
    /// The request's sequence; 0 for a request without one.
    pub sequence: Sequence,
    /// The step of the sequence, counted from 1 unless the client counts differently; 0 without a sequence.
    pub step: u64,
    pub start: bool,
    pub end: bool,
    /// The numeric features, in the model's order.
    pub numbers: Vec<f64>,
    /// The key features, in the model's order.
    pub keys: Vec<Key>,
    /// Indices of the outputs that the client asked for.
    pub outputs: Vec<u32>,
}

/// One request, without its tensors. It has the fields of [`CallFacts`].
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub facts: &'a CallFacts,
    pub model: &'a Model,
    pub(crate) outer: &'a Signature,
}

impl std::ops::Deref for Call<'_> {
    type Target = CallFacts;

    fn deref(&self) -> &CallFacts {
        self.facts
    }
}

impl Call<'_> {
    /// A numeric feature; 0 if the model has no such feature.
    #[must_use]
    pub fn number(&self, feature: &str) -> f64 {
        let at = self.model.numbers.iter().position(|name| name == feature);
        at.and_then(|at| self.facts.numbers.get(at)).copied().unwrap_or(0.0)
    }

    /// A key feature; 0 if the model has no such feature.
    #[must_use]
    pub fn key(&self, feature: &str) -> Key {
        let at = self.model.keys.iter().position(|name| name == feature);
        at.and_then(|at| self.facts.keys.get(at)).copied().unwrap_or(0)
    }

    /// The text of a key feature, if the server still has it.
    #[must_use]
    pub fn text(&self, feature: &str) -> Option<String> {
        host::key_text(self.key(feature))
    }

    /// Whether the client asked for this output. Others may be left out of the answer.
    #[must_use]
    pub fn wants(&self, output: &str) -> bool {
        let at = self.outer.outputs.iter().position(|port| port.name == output);
        at.is_some_and(|at| self.facts.outputs.iter().any(|wanted| *wanted as usize == at))
    }
}
