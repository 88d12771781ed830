//! The first state that a START itself specifies: states as inputs, or the id of a sequence whose state it copies.

use sequor_core::Id;

use crate::state::{StateSpec, StateValue, StateValues};

use super::initializer::FirstValues;

/// The first state that a START specifies. States in the request replace those of a copy, of an initializer and of config.pbtxt.
#[derive(Debug, Default)]
pub(in crate::model) struct BroughtStates {
    /// One entry per state of the model; empty if the request contains none.
    values: Vec<Option<StateValue>>,
    /// The sequence whose state the START copies.
    pub(in crate::model) from: Option<Id>,
}

impl BroughtStates {
    /// `None` if the START contains no states and names no sequence to copy.
    pub(in crate::model) fn new(values: Vec<Option<StateValue>>, from: Option<Id>) -> Option<BroughtStates> {
        (from.is_some() || !values.is_empty()).then_some(BroughtStates { values, from })
    }

    /// Whether the request contains states.
    pub(in crate::model) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Puts the request's states over `first`. The model then sees no START, because it could drop the states at one.
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
