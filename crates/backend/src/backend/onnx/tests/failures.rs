//! Tests refusals: which part refuses, and with which text.

use super::*;
use crate::backend::onnx::value::OnnxValue;
use crate::backend::{Backend, Graph};
use crate::device::DeviceId;

#[test]
fn a_failing_run_reports_the_onnx_runtime_error_and_the_next_run_succeeds() {
    let mut context = context("gather", &["INDEX"], &["OUTPUT"]);
    let shape = Shape::new(&[2]);
    let index = |values: [i64; 2]| Buffer::new(&values.map(i64::to_le_bytes).concat());
    let bad = index([1, 9]);
    let error = run_new(&mut context, &[feed(DataType::Int64, &shape, &bad)], 1).unwrap_err();
    assert!(error.0.starts_with("onnx runtime error 2: "), "{error}");
    assert!(error.0.contains("idx=9 must be within the inclusive range [-4,3]"), "{error}");
    let good = index([0, 3]);
    let answers = run_new(&mut context, &[feed(DataType::Int64, &shape, &good)], 1).unwrap();
    assert_eq!(answers[0].data.as_ref(), fp32(&[10.0, 40.0]));
}

/// ONNX Runtime writes to the address of a failed allocation. Without an exception, these runs end the process.
#[test]
fn a_run_that_needs_more_memory_than_there_is_fails_and_the_next_one_succeeds() {
    let mut context = context("as_many", &["LENGTH"], &["OUTPUT"]);
    let shape = Shape::new(&[1]);
    let mut run = |elements: i64| {
        let length = Buffer::new(&elements.to_le_bytes());
        run_new(&mut context, &[feed(DataType::Int64, &shape, &length)], 1)
    };
    let without_memory = |outcome: Result<Vec<Produced>, BackendError>| {
        let error = outcome.unwrap_err();
        assert!(error.0.ends_with("need more memory than limits.tensors or the machine has"), "{error}");
    };
    without_memory(run(1 << 50));
    backend().limit_tensors(64 << 20);
    without_memory(run(30_000_000));
    assert_eq!(run(3).unwrap()[0].data.as_ref(), fp32(&[1.0; 3]));
    assert_eq!(run(1_000_000).unwrap()[0].data.len(), 4_000_000);
    backend().limit_tensors(u64::MAX);
    assert_eq!(run(30_000_000).unwrap()[0].data.len(), 120_000_000);
}

#[test]
fn room_of_another_shape_than_the_outputs_is_an_error() {
    let mut context = context("gather", &["INDEX"], &["OUTPUT"]);
    let (shape, index) = (Shape::new(&[2]), Buffer::new(&[0; 16]));
    let (three, mut room) = (Shape::new(&[3]), Buffer::fp32(&[0.0; 3]));
    let fetches = &mut [Fetch::Into { shape: &three, data: room.span_mut() }];
    let error = context.run(&[feed(DataType::Int64, &shape, &index)], fetches).unwrap_err();
    assert!(error.0.contains("{3}") && error.0.contains("{2}"), "{error}");
}

#[test]
fn feeds_that_do_not_match_their_port_are_refused() {
    let mut context = context("gather", &["INDEX"], &["OUTPUT"]);
    let (shape, index) = (Shape::new(&[2]), Buffer::new(&[0; 24]));
    let mut refusal = |feed: Feed<'_>| run_new(&mut context, &[feed], 1).unwrap_err().0;
    let data = MemorySpan::host(&index.bytes()[..16]);
    let wrong_type = Feed { dtype: DataType::Fp64, shape: &shape, data };
    assert_eq!(refusal(wrong_type), "input 'INDEX' takes INT64, not FP64");
    let too_long = feed(DataType::Int64, &shape, &index);
    assert_eq!(refusal(too_long), "'INDEX': 24 bytes are not a INT64 tensor of shape [2]");
    let crooked = Feed { dtype: DataType::Int64, shape: &shape, data: MemorySpan::host(&index.bytes()[4..20]) };
    assert!(refusal(crooked).contains("is not aligned to 8 bytes"));
    let rank = Shape::new(&[2, 1]);
    assert!(
        refusal(Feed { dtype: DataType::Int64, shape: &rank, data })
            .starts_with("onnx runtime error 2: Invalid rank for input: INDEX")
    );
    let error = context.run(&[], &mut [Fetch::New(None)]).unwrap_err();
    assert_eq!(error.0, "0 inputs were given to a context of 1");
}

/// Without this check, ONNX Runtime would read the address as a host address.
#[test]
fn memory_of_a_device_where_the_session_does_not_run_is_refused() {
    let mut context = context("gather", &["INDEX"], &["OUTPUT"]);
    let (shape, index) = (Shape::new(&[2]), Buffer::new(&[0; 16]));
    // SAFETY: never read, because the run is refused.
    let data = unsafe { MemorySpan::from_raw(DeviceId::Cuda(0), 0x7000_0000, 16) };
    let error = run_new(&mut context, &[Feed { dtype: DataType::Int64, shape: &shape, data }], 1).unwrap_err();
    assert_eq!(error.0, "'INDEX' is memory of Cuda(0), where this session does not run");
    // SAFETY: never written, because the run is refused.
    let data = unsafe { MemorySpanMut::from_raw(DeviceId::Cuda(0), 0x7000_0000, 8) };
    let error =
        context.run(&[feed(DataType::Int64, &shape, &index)], &mut [Fetch::Into { shape: &shape, data }]).unwrap_err();
    assert_eq!(error.0, "'OUTPUT' is memory of Cuda(0), where this session does not run");
}

/// A description alone needs no device, so code for a device can be built on any machine.
#[test]
fn memory_of_a_device_can_be_described_without_it() {
    backend();
    let value = OnnxValue::describing(DeviceId::Cuda(1), 0x7000_0000, 16, DataType::Int64, &Shape::new(&[2])).unwrap();
    assert_eq!((value.on_host().unwrap(), value.address().unwrap()), (false, 0x7000_0000));
}

#[test]
fn names_that_the_model_lacks_are_an_error() {
    let graph = open("gather");
    assert_eq!(graph.context(&names(&["INDEX", "X"]), &[]).unwrap_err().0, "the graph has no input 'X'");
    assert_eq!(graph.context(&[], &names(&["INDEX"])).unwrap_err().0, "the graph has no output 'INDEX'");
}

#[test]
fn unsupported_output_types_are_refused_by_name() {
    let refusal = |name: &str| backend().load(&model(name), &LoadOptions::default()).unwrap_err().0;
    assert_eq!(refusal("sequence"), "output 'LIST' is a sequence; only tensors are served");
    assert_eq!(refusal("float8"), "output 'SMALL' has elements of type FLOAT8E4M3FN, which is not served");
}

#[test]
fn files_that_are_no_models_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |name: &str| backend().load(&dir.path().join(name), &LoadOptions::default()).unwrap_err().0;
    assert!(refusal("none.onnx").starts_with("No such file or directory"), "{}", refusal("none.onnx"));
    std::fs::write(dir.path().join("text.onnx"), "not a model").unwrap();
    assert!(refusal("text.onnx").starts_with("onnx runtime error 7: "), "{}", refusal("text.onnx"));
}

/// The message names the missing input.
#[test]
fn an_input_that_is_not_given_is_an_error() {
    let mut context = context("grow_fp32", &["INPUT"], &["OUTPUT"]);
    let (shape, input) = (Shape::new(&[1, 1, 4]), Buffer::fp32(&[0.0; 4]));
    let error = run_new(&mut context, &[feed(DataType::Fp32, &shape, &input)], 1).unwrap_err();
    assert!(error.0.contains("INPUT_STATE"), "{error}");
}
