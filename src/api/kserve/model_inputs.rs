//! What decoding asks the model of a request, so that what cannot fit is refused before any tensor data is read.

use sequor_core::DataType;

use crate::error::Invalid;
use crate::model::ModelHandle;

/// The inputs that a model declares.
pub(crate) trait ModelInputs {
    /// The type of an input, if the model has one of this name.
    fn data_type(&self, input: &str) -> Option<DataType>;

    /// Checks the names of the inputs of a request: each once, none unknown, none missing.
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

/// A model of inputs of any names, all of type FP32.
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
