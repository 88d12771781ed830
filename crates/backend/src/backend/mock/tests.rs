//! Tests the mock graphs themselves.

use parking_lot::Mutex;

use sequor_core::{DataType, Shape};

use super::*;
use crate::device::{MemorySpan, MemorySpanMut};

fn int(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn float(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn graph(text: &str) -> Arc<dyn Graph> {
    MockBackend::new().graph(text.parse().unwrap())
}

/// Runs with every input of the signature in order, each with `rows` rows, and returns the first output.
fn first(graph: &Arc<dyn Graph>, rows: u64, inputs: &[Vec<u8>]) -> Result<Vec<u8>, BackendError> {
    let ports = graph.signature();
    let all: Vec<String> = ports.inputs.iter().map(|port| port.name.clone()).collect();
    let mut context = graph.context(&all, &names(&["OUTPUT"]))?;
    let shapes: Vec<Shape> = inputs.iter().map(|bytes| Shape::new(&[rows, bytes.len() as u64 / 4 / rows])).collect();
    let feeds = ports.inputs.iter().zip(&shapes).zip(inputs);
    let feeds: Vec<Feed<'_>> =
        feeds.map(|((port, shape), bytes)| Feed { dtype: port.dtype, shape, data: MemorySpan::host(bytes) }).collect();
    let mut outputs = [Fetch::New(None)];
    context.run(&feeds, &mut outputs)?;
    let [Fetch::New(Some(produced))] = outputs else { panic!("no output") };
    Ok(produced.data.as_ref().to_vec())
}

#[test]
fn the_accumulator_keeps_state_where_ready_and_not_started() {
    let accumulate = graph("accumulate INT32 start ready dims=2");
    let inputs = [int(&[1, 2, 3, 4, 5, 6]), int(&[0, 1, 0]), int(&[1, 1, 0]), int(&[10, 20, 30, 40, 50, 60])];
    assert_eq!(first(&accumulate, 3, &inputs).unwrap(), int(&[11, 22, 3, 4, 5, 6]));
    let plain = graph("accumulate FP32");
    assert_eq!(first(&plain, 2, &[float(&[0.5, 1.0]), float(&[1.0, -1.0])]).unwrap(), float(&[1.5, 0.0]));
}

#[test]
fn signatures_list_the_ports_of_the_program() {
    let graph = graph("accumulate FP32 ready dims=2,-1");
    let list = |ports: &[Port]| ports.iter().map(|port| format!("{} {}", port.name, port.dims)).collect::<Vec<_>>();
    assert_eq!(list(&graph.signature().inputs), ["INPUT [-1,2,-1]", "READY [-1,1]", "INPUT_STATE [-1,2,-1]"]);
    assert_eq!(list(&graph.signature().outputs), ["OUTPUT [-1,2,-1]", "OUTPUT_STATE [-1,2,-1]"]);
    assert!(graph.context(&names(&["START"]), &[]).unwrap_err().0.contains("'START'"));
}

#[test]
fn a_poisoned_row_fails_the_run() {
    let graph = graph("identity INT32 poison=13");
    assert_eq!(first(&graph, 2, &[int(&[1, 2])]).unwrap(), int(&[1, 2]));
    assert_eq!(first(&graph, 2, &[int(&[1, 13])]).unwrap_err().0, "mock error: element 1 of INPUT is 13");
}

#[test]
fn outputs_are_written_only_into_buffers_of_their_shape() {
    let graph = graph("accumulate INT32");
    let mut context = graph.context(&names(&["INPUT", "INPUT_STATE"]), &names(&["OUTPUT_STATE"])).unwrap();
    let (input, mut room, shape) = (int(&[7]), int(&[0]), Shape::new(&[1, 1]));
    let feed = Feed { dtype: DataType::Int32, shape: &shape, data: MemorySpan::host(&input) };
    let feeds = [feed.clone(), feed];
    context.run(&feeds, &mut [Fetch::Into { shape: &shape, data: MemorySpanMut::host(&mut room) }]).unwrap();
    assert_eq!(room, int(&[14]));
    let (mut room, wide) = (int(&[0, 0]), Shape::new(&[1, 2]));
    let error =
        context.run(&feeds, &mut [Fetch::Into { shape: &wide, data: MemorySpanMut::host(&mut room) }]).unwrap_err();
    assert!(error.0.starts_with("output 'OUTPUT_STATE' is [1,1], but the room for it is [1,2]"), "{error}");
}

#[test]
fn the_hook_sees_every_batch() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shapes = Arc::clone(&seen);
    let backend = MockBackend::with_hook(Arc::new(move |shape| shapes.lock().push(shape.to_string())));
    let graph = backend.graph("identity FP32 cost=1".parse().unwrap());
    first(&graph, 2, &[float(&[1.0, 2.0])]).unwrap();
    first(&graph, 1, &[float(&[1.0])]).unwrap();
    assert_eq!(*seen.lock(), ["[2,1]", "[1,1]"]);
}

#[test]
fn a_file_without_a_valid_mock_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.mock");
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        MockBackend::new().load(&file, &LoadOptions::default())
    };
    assert_eq!(load("accumulate INT32 start\n").unwrap().signature().inputs.len(), 3);
    for bad in [
        "",
        "lstm FP32",
        "identity FLOAT",
        "identity FP32 start",
        "accumulate INT8",
        "identity FP32 cost=fast",
        "identity FP32 pony",
    ] {
        let error = load(bad).unwrap_err();
        assert!(error.0.contains("model.mock: "), "{bad}: {error}");
    }
}
