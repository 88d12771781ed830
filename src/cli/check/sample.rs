//! Builds sample requests for a loaded model, of zeros or of unequal lengths, and awaits their answers.

use std::time::Duration;

use bytes::Bytes;
use half::f16;
use sequor_core::{DataType, Dialect, Dim, Id, Shape};

use crate::api::triton;
use crate::config::model::settings::Padding;
use crate::error::Failure;
use crate::model::repository::ReadyVersion;
use crate::model::{InferAnswer, InferRequest, Metadata, NamedTensor, SequenceStep, Tensor, TensorMetadata};

/// Maximum time of a sample. A longer sample counts as a hang.
const HANGS: Duration = Duration::from_secs(120);

pub(super) async fn answer(pending: Result<crate::model::Pending, Failure>) -> Result<InferAnswer, String> {
    let sentence = |failure: Failure| triton::status(&failure).message;
    match tokio::time::timeout(HANGS, pending.map_err(sentence)?).await {
        Ok(answer) => answer.map_err(sentence),
        Err(_) => Err(format!("no answer in {} s", HANGS.as_secs())),
    }
}

/// Makes the samples of a version.
#[derive(Debug)]
pub(super) struct Samples<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) version: &'a ReadyVersion,
    /// Whether the ids of sequences are texts.
    pub(super) has_text_ids: bool,
}

impl Samples<'_> {
    /// A request of zeros; open dimensions are 1. It is a sequence of one step if the model has sequences.
    pub(super) fn zeros(&self, id: u64) -> Result<InferRequest, String> {
        let Samples { metadata, version, .. } = *self;
        Ok(InferRequest {
            model: metadata.name.clone(),
            version: version.version.to_string(),
            id: String::new(),
            sequence: if version.slots > 0 { self.sequence(id) } else { SequenceStep::default() },
            priority: 0,
            timeout: None,
            inputs: metadata.inputs.iter().map(zeros_of).collect::<Result<_, String>>()?,
            outputs: Vec::new(),
            parameters: Vec::new(),
            dialect: Dialect::TRITON,
        })
    }

    fn sequence(&self, id: u64) -> SequenceStep {
        let id = if self.has_text_ids { Id::from(id.to_string().as_str()) } else { Id::Int(id) };
        SequenceStep { id, start: true, end: true, ..SequenceStep::default() }
    }

    /// A request whose padded inputs differ in length from those of its neighbour in a batch: short for odd ids, long for even ones. Their
    /// numbers are not zero, so that they differ from most padding.
    pub(super) fn unequal(&self, id: u64, padded: &[(usize, Padding)]) -> Result<InferRequest, String> {
        let mut request = self.zeros(id)?;
        for (at, padding) in padded {
            let Some(NamedTensor { tensor, .. }) = request.inputs.get_mut(*at) else { continue };
            // The batch dimension comes before the padded dimension.
            if let Some(dim) = tensor.shape.0.get_mut(padding.axis + 1) {
                *dim = length(padding, id.is_multiple_of(2));
            }
            let elements = tensor.shape.elements().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= 1 << 24);
            let elements = elements.ok_or_else(|| "a padded input is too large for a sample".to_owned())?;
            tensor.data = numbers(tensor.dtype, elements);
        }
        Ok(request)
    }
}

/// An input of zeros.
fn zeros_of(input: &TensorMetadata) -> Result<NamedTensor, String> {
    let dims: Vec<u64> = input.dims.0.iter().map(|dim| if let Dim::Fixed(n) = dim { *n } else { 1 }).collect();
    let shape = Shape::new(&dims);
    let bytes = shape.elements().and_then(|n| usize::try_from(n).ok()?.checked_mul(input.dtype.zero_size()));
    let bytes = bytes.filter(|bytes| *bytes <= 1 << 30);
    let bytes = bytes.ok_or_else(|| format!("input \"{}\" is too large for a sample", input.name))?;
    let tensor = Tensor { dtype: input.dtype, shape, data: Bytes::from(vec![0; bytes]) };
    Ok(NamedTensor { name: input.name.clone(), tensor })
}

/// Replaces zeros by other numbers in floating-point inputs. Integers may be indexes, so they stay.
pub(super) fn with_numbers(mut request: InferRequest) -> InferRequest {
    for NamedTensor { tensor, .. } in &mut request.inputs {
        if matches!(tensor.dtype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64) {
            let elements = tensor.shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            tensor.data = numbers(tensor.dtype, elements);
        }
    }
    request
}

/// Replaces zeros by numbers that differ from sample to sample.
pub(super) fn with_own_numbers(request: InferRequest, id: u64) -> InferRequest {
    let mut request = with_numbers(request);
    for NamedTensor { tensor, .. } in &mut request.inputs {
        let size = tensor.dtype.zero_size();
        let shift = usize::try_from(id % 5).unwrap_or(0) * size;
        // One number more than there is, so that a sample of one number has its own, too.
        let elements = tensor.shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        if matches!(tensor.dtype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64) {
            tensor.data = numbers(tensor.dtype, elements + 5).slice(shift..shift + elements * size);
        }
    }
    request
}

/// The short or the long length. They are padded to different lengths, unless there is only one bucket.
fn length(padding: &Padding, is_long: bool) -> u64 {
    match (is_long, padding.buckets.as_slice()) {
        (false, [first, ..]) => (*first).min(3),
        (false, []) => 3,
        (true, [_, second, ..]) => *second,
        (true, [only]) => *only,
        (true, []) => padding.multiple_of.max(3) + 4,
    }
}

/// Numbers from 1 to 5; zeros for types without them.
fn numbers(dtype: DataType, elements: usize) -> Bytes {
    let values = (0..elements).map(|n| u8::try_from(n % 5).unwrap_or(0) + 1);
    match dtype {
        DataType::Fp64 => values.flat_map(|n| f64::from(n).to_le_bytes()).collect(),
        DataType::Fp32 => values.flat_map(|n| f32::from(n).to_le_bytes()).collect(),
        DataType::Fp16 => values.flat_map(|n| f16::from(n).to_le_bytes()).collect(),
        DataType::Int64 | DataType::Uint64 => values.flat_map(|n| u64::from(n).to_le_bytes()).collect(),
        DataType::Int32 | DataType::Uint32 => values.flat_map(|n| u32::from(n).to_le_bytes()).collect(),
        DataType::Int16 | DataType::Uint16 => values.flat_map(|n| u16::from(n).to_le_bytes()).collect(),
        DataType::Int8 | DataType::Uint8 => values.collect(),
        DataType::Bool | DataType::Bf16 | DataType::Bytes => vec![0; elements * dtype.zero_size()].into(),
    }
}
