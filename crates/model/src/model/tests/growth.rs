//! States that grow from step to step, bounded by one limit, with a store for idle sequences.

use sequor_core::{Id, Shape};

use super::machine::{Machine, OLDEST, Server};
use super::request;
use crate::error::Failure;
use crate::model::*;

fn growing(memory: u64) -> Machine {
    let machine = Machine::new("drain", OLDEST).with_memory(memory);
    let config = machine.model().join("config.pbtxt");
    let fixed = fs_err::read_to_string(&config).unwrap();
    fs_err::write(&config, fixed.replace("dims: [ 1 ]", "dims: [ -1 ]")).unwrap();
    fs_err::write(machine.model().join("1/model.onnx"), "append INT32 dims=-1").unwrap();
    machine
}

/// Sends a step that grows the state of a sequence by this many elements.
fn submit(server: &Server, id: u64, elements: usize, start: bool) -> Result<Pending, Failure> {
    let mut request = request(id, 0, |s| s.start = start);
    let tensor = &mut request.inputs[0].tensor;
    (tensor.shape, tensor.data) = (Shape::new(&[1, elements as u64]), vec![0; 4 * elements].into());
    server.repository.submit(request)
}

/// The number of elements of a sequence's state after such a step.
fn append(server: &Server, id: u64, elements: usize, start: bool) -> Result<usize, Failure> {
    answered(submit(server, id, elements, start)?)
}

fn answered(pending: Pending) -> Result<usize, Failure> {
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)?;
    Ok(answer.outputs[0].tensor.data.len() / 4)
}

/// The same with retries: while a file is being stored, no further sequence may leave.
fn append_in_time(server: &Server, id: u64, elements: usize) -> usize {
    loop {
        match append(server, id, elements, false) {
            Err(Failure::StateMemory { .. }) => std::thread::yield_now(),
            outcome => return outcome.unwrap(),
        }
    }
}

#[test]
fn idle_sequences_spill_for_a_growing_state_and_return_with_all_their_memory() {
    let machine = growing(64 << 10);
    let server = machine.serve();
    assert_eq!(append(&server, 1, 1, true).unwrap(), 2, "the first state has one element");
    assert_eq!(append(&server, 1, 8000, false).unwrap(), 8002);
    append(&server, 2, 1, true).unwrap();
    assert_eq!(append(&server, 2, 7000, false).unwrap(), 7002);
    let refused = append(&server, 2, 4000, false).unwrap_err();
    assert!(matches!(refused, Failure::StateMemory { limit: 65_536, .. }), "{refused:?}");
    while server.resumable().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(server.resumable(), [(Id::from(1), 2)]);
    assert_eq!(append_in_time(&server, 2, 4000), 11_002, "the step that was refused has changed nothing");
    for round in 1..=3 {
        assert_eq!(append_in_time(&server, 1, 1), 8002 + round);
        assert_eq!(append_in_time(&server, 2, 1), 11_002 + round);
    }
    let (used, limit) = server.repository.state_bytes();
    assert!(used <= limit, "{used} of {limit}");
    assert_eq!(
        server.repository.statistics("sum", "").unwrap()[0].state_bytes,
        11_005 * 4,
        "that of the one in memory"
    );
    assert!(append(&server, 3, 20_000, true).is_err(), "what does not fit at all is refused");
    assert_eq!(append_in_time(&server, 1, 1), 8006);
}

/// No step continues from the state that an END leaves, so its growth needs no memory.
#[test]
fn an_end_needs_no_memory_for_a_state_that_grows() {
    let machine = growing(64 << 10);
    let server = machine.serve();
    assert_eq!(append(&server, 1, 15_000, true).unwrap(), 15_001);
    let refused = append(&server, 1, 3000, false).unwrap_err();
    assert!(matches!(refused, Failure::StateMemory { .. }), "{refused:?}");
    assert!(server.resumable().is_empty(), "a state that grows does not leave for itself");
    let last = |id: u64, start: bool| {
        let mut request = request(id, 0, |s| (s.start, s.end) = (start, true));
        let tensor = &mut request.inputs[0].tensor;
        (tensor.shape, tensor.data) = (Shape::new(&[1, 3000]), vec![0; 4 * 3000].into());
        answered(server.repository.submit(request).unwrap())
    };
    assert_eq!(last(1, false).unwrap(), 18_001, "the step that was refused has changed nothing");
    assert_eq!(last(2, true).unwrap(), 3001);
    let (used, limit) = server.repository.state_bytes();
    assert!(used <= limit, "{used} of {limit}");
}

/// The memory that a state grew by is freed with it.
#[test]
fn a_request_that_waits_for_a_grown_state_to_leave_gets_all_of_its_memory() {
    let machine = growing(64 << 10);
    let server = machine.serve();
    append(&server, 1, 8000, true).unwrap();
    append(&server, 2, 8000, true).unwrap();
    for _ in 0..20 {
        for id in [1, 2] {
            append(&server, id, 0, false).unwrap();
        }
    }
}

/// The step's state needs more memory than is free, so it stays in the store. The requests behind it need four bytes each.
#[test]
fn a_step_without_enough_memory_does_not_block_the_requests_behind_it() {
    let machine = growing(64 << 10);
    let first = machine.serve();
    append(&first, 1, 1000, true).unwrap();
    first.stop();
    let machine = machine.with_memory(12);
    let server = machine.serve();
    for id in 2..=4 {
        assert_eq!(append(&server, id, 0, true).unwrap(), 1);
    }
    machine.hold_disk(true);
    let large = submit(&server, 1, 0, false).unwrap();
    // One sequence leaves. No further one leaves while its file is unwritten.
    while server.resumable().is_empty() {
        std::thread::yield_now();
    }
    let small = [5, 6].map(|id| submit(&server, id, 0, true).unwrap());
    machine.hold_disk(false);
    let refused = answered(large).unwrap_err();
    assert!(matches!(refused, Failure::StateMemory { limit: 12, .. }), "{refused:?}");
    assert_eq!(small.map(|pending| answered(pending).unwrap()), [1, 1]);
}
