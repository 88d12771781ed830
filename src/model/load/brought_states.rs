//! What a START brings for the beginning of its sequence: states as inputs, and the id of a sequence that it begins with a copy of.

use sequor_core::Id;

use crate::state::{StateSpec, StateValue, StateValues};

use super::initializer::FirstValues;

/// What a START brings. Its own states stand above a copy, above what an initializer makes, and above what config.pbtxt says.
#[derive(Debug, Default)]
pub(in crate::model) struct BroughtStates {
    /// By state; empty if it brings none.
    values: Vec<Option<StateValue>>,
    /// The sequence whose state it begins with a copy of.
    pub(in crate::model) from: Option<Id>,
}

impl BroughtStates {
    /// `None` if it brings nothing.
    pub(in crate::model) fn new(values: Vec<Option<StateValue>>, from: Option<Id>) -> Option<BroughtStates> {
        (from.is_some() || !values.is_empty()).then_some(BroughtStates { values, from })
    }

    /// Whether it brings states of its own.
    pub(in crate::model) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// What the sequence begins with, if it would begin with `first` otherwise. The model sees no START then, so that it does not drop the states.
    pub(in crate::model) fn over(&self, specs: &[StateSpec], first: Option<FirstValues>) -> Option<FirstValues> {
        if !self.has_values() {
            return first;
        }
        let before = first.map_or_else(|| StateValues::initial(specs), |first| first.values);
        let value = |(before, own): (&StateValue, &Option<StateValue>)| own.as_ref().unwrap_or(before).clone();
        let values = StateValues::new(before.each().iter().zip(&self.values).map(value).collect());
        Some(FirstValues { values, is_copy: true })
    }
}
