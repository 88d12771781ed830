//! The options of a request for its answer: last answers marked, tensors as bytes or lists, classes instead of scores, outputs in shared
//! memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::classes;
use super::fault::DecodeError;
use super::shared_memory::{Regions, Window};
use crate::api::Status;
use crate::model::{InferRequest, ModelHandle, NamedTensor, TensorMetadata};

/// Made from the request, and kept until its answer is written.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ResponseFormat {
    /// Whether the answer is marked as the last one of its request.
    pub(crate) mark_final: bool,
    /// gRPC: lists of numbers instead of raw bytes.
    pub(crate) typed: bool,
    /// HTTP: bytes after the JSON, unless an output says otherwise.
    pub(crate) binary: bool,
    pub(crate) outputs: HashMap<String, OutputRequest>,
}

/// The options of one output.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct OutputRequest {
    pub(crate) binary: Option<bool>,
    pub(crate) place: OutputTarget,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum OutputTarget {
    /// In the answer, unchanged.
    #[default]
    Answer,
    /// The `count` highest scores, with the labels of their classes.
    Classes {
        count: usize,
        batching: bool,
        labels: Option<Arc<[String]>>,
    },
    Region(Window),
}

/// A parameter of a tensor, in both protocols.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ParameterValue<'a> {
    Number(i64),
    Text(&'a str),
    Other,
}

/// The shared memory of a tensor, from its parameters: region, size, offset.
pub(crate) fn window<'a>(
    what: &str,
    get: impl Fn(&str) -> Option<ParameterValue<'a>>,
    regions: &Regions,
) -> Result<Option<Window>, DecodeError> {
    let kind = |key: &str, expected: &str| {
        DecodeError::malformed(format!("invalid value type for '{key}' parameter of {what}, expected {expected}."))
    };
    let number = |key: &str| match get(key) {
        None => Ok(None),
        Some(ParameterValue::Number(n)) => match u64::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(kind(key, "a value >= 0")),
        },
        Some(_) => Err(kind(key, "int64_param")),
    };
    let (size, offset) = (number("shared_memory_byte_size")?, number("shared_memory_offset")?);
    let name = match get("shared_memory_region") {
        Some(ParameterValue::Text(name)) => name,
        Some(_) => return Err(kind("shared_memory_region", "string_param")),
        None if size.is_none() && offset.is_none() => return Ok(None),
        None => return Err(DecodeError::malformed(format!("'shared_memory_region' of {what} is missing"))),
    };
    let Some(size) = size else {
        return Err(DecodeError::malformed(format!("'shared_memory_byte_size' of {what} is missing")));
    };
    regions.window(name, offset.unwrap_or(0), size).map(Some).map_err(DecodeError::Status)
}

impl ResponseFormat {
    /// Reads the parameters of an output.
    pub(crate) fn read<'a>(
        &mut self,
        output: &str,
        binary: Option<bool>,
        get: impl Fn(&str) -> Option<ParameterValue<'a>>,
        regions: &Regions,
    ) -> Result<(), DecodeError> {
        let window = window(&format!("output '{output}'"), &get, regions)?;
        let place = match (get("classification"), window) {
            (None, None) => OutputTarget::Answer,
            (None, Some(window)) => OutputTarget::Region(window),
            (Some(_), Some(_)) => {
                let text = format!("output '{output}' cannot be both in shared memory and a classification");
                return Err(DecodeError::malformed(text));
            }
            (Some(ParameterValue::Text(_) | ParameterValue::Other), None) => {
                let text = "invalid value type for 'classification' parameter, expected int64_param.";
                return Err(DecodeError::malformed(text));
            }
            (Some(ParameterValue::Number(count @ 1..)), None) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                OutputTarget::Classes { count, batching: false, labels: None }
            }
            (Some(_), None) => {
                return Err(DecodeError::malformed("invalid value for 'classification' parameter, expected >= 0"));
            }
        };
        if binary.is_some() || place != OutputTarget::Answer {
            self.outputs.insert(output.to_owned(), OutputRequest { binary, place });
        }
        Ok(())
    }

    /// Calls [`ResponseFormat::fit`] if it is needed.
    pub(crate) fn fit_to(&mut self, model: &ModelHandle, request: &InferRequest) -> Result<(), Status> {
        if !self.needs_model() {
            return Ok(());
        }
        let rows = request.inputs.first().and_then(|input| input.tensor.shape.0.first()).copied();
        self.fit(model, rows.unwrap_or(1))
    }

    /// Whether the model's metadata is needed before the request runs.
    pub(crate) fn needs_model(&self) -> bool {
        self.outputs.values().any(|wish| !matches!(wish.place, OutputTarget::Answer))
    }

    /// Gets from the model what the answer needs, and refuses what could not be written later. `rows` is the request's batch size.
    pub(crate) fn fit(&mut self, model: &ModelHandle, rows: u64) -> Result<(), Status> {
        let batches = model.config().max_batch_size > 0;
        let metadata = model.metadata();
        for (name, wish) in &mut self.outputs {
            let Some(output) = metadata.outputs.iter().find(|o| o.name == *name) else { continue };
            match &mut wish.place {
                OutputTarget::Answer => {}
                OutputTarget::Classes { count, batching, labels } => {
                    classes::check(name, output.dtype)?;
                    let (rows, row) =
                        if batches { (rows, elements_of(output, Some(1))) } else { (1, elements_of(output, None)) };
                    classes::check_count(name, *count, rows, row)?;
                    (*batching, *labels) = (batches, model.labels(name));
                }
                OutputTarget::Region(window) => {
                    if let Some(bytes) = bytes_of(output, batches.then_some(rows)) {
                        window.check(name, bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn wants_bytes(&self, output: &str) -> bool {
        self.outputs.get(output).and_then(|wish| wish.binary).unwrap_or(self.binary)
    }

    /// Whether the output is sent in its own type.
    pub(crate) fn is_plain(&self, output: &str) -> bool {
        self.outputs.get(output).is_none_or(|wish| wish.place == OutputTarget::Answer)
    }

    /// The output to send. If the output was written to shared memory instead, also returns the window.
    pub(crate) fn place_output(&self, mut output: NamedTensor) -> Result<(NamedTensor, Option<&Window>), Status> {
        if self.outputs.is_empty() {
            return Ok((output, None));
        }
        match self.outputs.get(&output.name).map(|wish| &wish.place) {
            None | Some(OutputTarget::Answer) => Ok((output, None)),
            Some(OutputTarget::Classes { count, batching, labels }) => {
                output.tensor =
                    classes::classify(&output.tensor, *count, *batching, labels.as_deref().unwrap_or_default());
                Ok((output, None))
            }
            Some(OutputTarget::Region(window)) => {
                window.write(&output.name, &output.tensor.data)?;
                output.tensor.data = bytes::Bytes::new();
                Ok((output, Some(window)))
            }
        }
    }
}

/// Bytes of an output whose shape is known in advance. For a batching model, `rows` is the size of the batch axis.
fn bytes_of(output: &TensorMetadata, rows: Option<u64>) -> Option<u64> {
    elements_of(output, rows)?.checked_mul(output.dtype.size()? as u64)
}

/// Elements of such an output.
fn elements_of(output: &TensorMetadata, rows: Option<u64>) -> Option<u64> {
    let row = output.dims.0.iter().skip(usize::from(rows.is_some()));
    row.map(|dim| dim.fixed()).try_fold(rows.unwrap_or(1), |product, dim| product.checked_mul(dim?))
}
