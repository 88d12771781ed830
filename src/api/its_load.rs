//! Decodes a request for the load that runs it. After a reload a live sequence stays for a time on the load before, whose inputs may be others.

use sequor_core::Id;

use super::queued::QueuedBytesPermit;
use super::refusal::{PEER_LIMIT, QUEUE_FULL};
use super::status::Status;
use crate::model::{ModelHandle, SequenceStep};

/// Decodes a message for the load that its step goes to. The message itself names the sequence, so with several loads each is tried, the newest
/// first. If no load takes the message, the client reads the refusal of the newest. The permit counts the bytes of the last attempt alone.
pub(crate) fn for_its_load<M: Clone, R>(
    model: &ModelHandle,
    message: M,
    permit: &mut QueuedBytesPermit,
    mut decode: impl FnMut(&ModelHandle, M, &mut QueuedBytesPermit) -> Result<R, Status>,
    step: impl Fn(&R) -> &SequenceStep,
) -> Result<R, Status> {
    let others = model.others();
    if others.is_empty() {
        return decode(model, message, permit);
    }
    let before = permit.bytes();
    let first = decode(model, message.clone(), permit);
    let is_its_own = |request: &R, of: &ModelHandle| step(request).id == Id::None || of.runs(step(request));
    if first.as_ref().is_ok_and(|request| is_its_own(request, model)) {
        return first;
    }
    for other in &others {
        // Fewer bytes always fit.
        if permit.resize(before).is_err() {
            break;
        }
        match decode(other, message.clone(), permit) {
            Ok(request) if is_its_own(&request, other) => return Ok(request),
            Err(status) if [QUEUE_FULL, PEER_LIMIT].contains(&status.reason) => return Err(status),
            _ => {}
        }
    }
    first
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::peers::Peer;
    use crate::api::queued::QueuedBytes;
    use crate::backend::mock::MockBackend;
    use crate::model::{InferRequest, NamedTensor, Repository, RepositoryOptions, Tensor};
    use crate::telemetry::{Metrics, kinds::Gauge};

    const CONFIG: &str = r#"
        backend: "onnxruntime" max_batch_size: 4
        input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
        output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
        sequence_batching { max_sequence_idle_microseconds: 600000000 state [
            { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
    "#;

    fn step(start: bool) -> SequenceStep {
        SequenceStep { id: Id::from(7), start, ..SequenceStep::default() }
    }

    /// The first step of a sequence.
    fn begin(repository: &Repository) {
        let data = bytes::Bytes::from_static(&[1, 0, 0, 0]);
        let tensor = Tensor { dtype: sequor_core::DataType::Int32, shape: sequor_core::Shape::of(&[1, 1]), data };
        let request = InferRequest {
            model: "sum".to_owned(),
            version: String::new(),
            id: String::new(),
            sequence: step(true),
            priority: 0,
            timeout: None,
            inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
            outputs: Vec::new(),
            parameters: Vec::new(),
            dialect: sequor_core::Dialect::TRITON,
        };
        let pending = repository.submit(request).unwrap();
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap();
    }

    #[test]
    fn a_message_that_is_decoded_for_two_loads_counts_its_bytes_once() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("sum");
        let options = RepositoryOptions::default();
        let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
        for version in ["1", "2"] {
            fs_err::create_dir_all(model.join(version)).unwrap();
            fs_err::write(model.join("config.pbtxt"), CONFIG).unwrap();
            fs_err::write(model.join(version).join("model.onnx"), "accumulate INT32").unwrap();
            repository.load(&model);
            if version == "1" {
                begin(&repository);
            }
        }
        let newest = repository.find("sum", "").unwrap();
        assert_eq!((newest.version(), newest.others().len()), (2, 1));
        // The message has 10 bytes, and what is decoded of it 100. Twice that does not fit.
        let mut permit = QueuedBytes::new(150, Gauge::default()).permit(&Peer::default());
        permit.grow(10).unwrap();
        let mut seen = Vec::new();
        let decode = |of: &ModelHandle, (), permit: &mut QueuedBytesPermit| {
            permit.grow(100).unwrap();
            seen.push((of.version(), permit.bytes()));
            Ok(step(false))
        };
        assert!(for_its_load(&newest, (), &mut permit, decode, |step| step).is_ok());
        assert_eq!((seen, permit.bytes()), (vec![(2, 110), (1, 110)], 110));
        repository.stop();
    }
}
