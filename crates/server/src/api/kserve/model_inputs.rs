//! The facts about a model's inputs that decoding needs. They allow refusing a request before any tensor data is read.

use sequor_core::DataType;

use crate::error::Invalid;
use crate::model::ModelHandle;

/// The inputs that a model declares.
pub(crate) trait ModelInputs {
    /// The type of the input with this name, if the model has it.
    fn data_type(&self, input: &str) -> Option<DataType>;

    /// Checks the names of a request's inputs: no duplicates, none unknown, none missing.
    fn check_names(&self, names: &[&str]) -> Result<(), Invalid>;
}

impl ModelInputs for ModelHandle {
    fn data_type(&self, input: &str) -> Option<DataType> {
        self.input_type(input)
    }

    fn check_names(&self, names: &[&str]) -> Result<(), Invalid> {
        self.check_inputs(names)
    }
}

/// A model with inputs of any name, all of type FP32.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct AnyInputs;

#[cfg(test)]
impl ModelInputs for AnyInputs {
    fn data_type(&self, _: &str) -> Option<DataType> {
        Some(DataType::Fp32)
    }

    fn check_names(&self, _: &[&str]) -> Result<(), Invalid> {
        Ok(())
    }
}
