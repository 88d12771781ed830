//! A request of zeros for a model that is loaded, and the wait for its answer.

use std::time::Duration;

use bytes::Bytes;
use sequor_core::{Dialect, Dim, Id, Shape};

use crate::error::Failure;
use crate::model::repository::ReadyVersion;
use crate::model::{InferAnswer, InferRequest, Metadata, NamedTensor, SequenceStep, Tensor};

/// A sample that takes longer hangs.
const HANGS: Duration = Duration::from_secs(120);

pub(super) async fn answer(pending: Result<crate::model::Pending, Failure>) -> Result<InferAnswer, String> {
    let pending = pending.map_err(|e| e.to_string())?;
    match tokio::time::timeout(HANGS, pending).await {
        Ok(answer) => answer.map_err(|e| e.to_string()),
        Err(_) => Err(format!("no answer in {} s", HANGS.as_secs())),
    }
}

/// A request of zeros; open dimensions are 1. It is a sequence of one step if the model has sequences.
pub(super) fn sample(metadata: &Metadata, version: &ReadyVersion, id: u64) -> Result<InferRequest, String> {
    let inputs = metadata.inputs.iter().map(|input| {
        let dims: Vec<u64> = input.dims.0.iter().map(|dim| if let Dim::Fixed(n) = dim { *n } else { 1 }).collect();
        let shape = Shape::of(&dims);
        let bytes = shape.elements().and_then(|n| usize::try_from(n).ok()?.checked_mul(input.dtype.zero_size()));
        let bytes = bytes.filter(|bytes| *bytes <= 1 << 30);
        let bytes = bytes.ok_or_else(|| format!("input \"{}\" is too large for a sample", input.name))?;
        let tensor = Tensor { dtype: input.dtype, shape, data: Bytes::from(vec![0; bytes]) };
        Ok(NamedTensor { name: input.name.clone(), tensor })
    });
    let in_sequence = version.slots > 0;
    let sequence = SequenceStep { id: Id::Int(id), start: true, end: true, step: None, idle: None };
    Ok(InferRequest {
        model: metadata.name.clone(),
        version: version.version.to_string(),
        id: String::new(),
        sequence: if in_sequence { sequence } else { SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: inputs.collect::<Result<_, String>>()?,
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    })
}
