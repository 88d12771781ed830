//! Tests tensors of numbers: in and out without a copy, of any rank and length.

use std::sync::Arc;

use sequor_core::Dims;

use super::*;
use crate::backend::Graph;

const ACCUMULATE: [&str; 4] = ["INPUT", "START", "READY", "INPUT_STATE"];

/// INPUT, START and READY for rows of two numbers.
struct Step {
    rows: Shape,
    control: Shape,
    input: Buffer,
    start: Buffer,
    ready: Buffer,
}

impl Step {
    fn of(input: &[f32]) -> Step {
        let rows = input.len() / 2;
        Step {
            rows: Shape::new(&[rows as u64, 2]),
            control: Shape::new(&[rows as u64, 1]),
            input: Buffer::fp32(input),
            start: Buffer::fp32(&vec![0.0; rows]),
            ready: Buffer::fp32(&vec![1.0; rows]),
        }
    }

    fn feeds<'a>(&'a self, state: &'a Buffer) -> [Feed<'a>; 4] {
        [
            feed(DataType::Fp32, &self.rows, &self.input),
            feed(DataType::Fp32, &self.control, &self.start),
            feed(DataType::Fp32, &self.control, &self.ready),
            feed(DataType::Fp32, &self.rows, state),
        ]
    }

    /// Runs with both outputs written into the given buffers.
    fn run(
        &self,
        context: &mut OnnxContext,
        state: &Buffer,
        out: &mut Buffer,
        next: &mut Buffer,
    ) -> Result<(), BackendError> {
        let output = Fetch::Into { shape: &self.rows, data: out.span_mut() };
        let state_out = Fetch::Into { shape: &self.rows, data: next.span_mut() };
        context.run(&self.feeds(state), &mut [output, state_out])
    }
}

#[test]
fn a_signature_has_types_and_open_dimensions() {
    let graph = open("accumulate_int32");
    let signature = graph.signature();
    let ports: Vec<_> =
        signature.inputs.iter().map(|port| (port.name.as_str(), port.dtype, port.dims.clone())).collect();
    let (row, control) = (Dims::from_wire(&[-1, -1]), Dims::from_wire(&[-1, 1]));
    assert_eq!(ports[0], ("INPUT", DataType::Int32, row.clone()));
    assert_eq!(ports[2], ("READY", DataType::Int32, control));
    assert_eq!(
        (signature.outputs.len(), &signature.outputs[1].name, &signature.outputs[1].dims),
        (2, &"OUTPUT_STATE".to_owned(), &row)
    );
    assert_eq!(open("scalar").signature.inputs[1].dims, Dims::default());
}

#[test]
fn state_alternates_in_place_between_two_buffers() {
    let mut context = context("accumulate_fp32", &ACCUMULATE, &["OUTPUT", "OUTPUT_STATE"]);
    let (mut a, mut b, mut out) = (Buffer::fp32(&[0.0; 4]), Buffer::fp32(&[9.0; 4]), Buffer::fp32(&[0.0; 4]));
    let mut step = Step::of(&[1.0, 2.0, 3.0, 4.0]);
    step.run(&mut context, &a, &mut out, &mut b).unwrap();
    assert_eq!(b.bytes(), fp32(&[1.0, 2.0, 3.0, 4.0]));
    step.run(&mut context, &b, &mut out, &mut a).unwrap();
    assert_eq!((a.bytes(), out.bytes()), (&fp32(&[2.0, 4.0, 6.0, 8.0])[..], a.bytes()));
    // The first row starts, and the second is not ready: neither uses its state.
    step.start = Buffer::fp32(&[1.0, 0.0]);
    step.ready = Buffer::fp32(&[1.0, 0.0]);
    step.run(&mut context, &a, &mut out, &mut b).unwrap();
    assert_eq!(b.bytes(), fp32(&[1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn memory_is_described_once_for_each_place_and_shape() {
    let mut context = context("accumulate_fp32", &ACCUMULATE, &["OUTPUT", "OUTPUT_STATE"]);
    let (mut a, mut b, mut out) = (Buffer::fp32(&[0.0; 4]), Buffer::fp32(&[0.0; 4]), Buffer::fp32(&[0.0; 4]));
    let step = Step::of(&[1.0, 2.0, 3.0, 4.0]);
    step.run(&mut context, &a, &mut out, &mut b).unwrap();
    step.run(&mut context, &b, &mut out, &mut a).unwrap();
    // Not in the cache in the second run: the state in the other buffer, in and out.
    assert_eq!((context.hits(), context.kept()), (4, 2));
    for _ in 0..10 {
        step.run(&mut context, &a, &mut out, &mut b).unwrap();
        step.run(&mut context, &b, &mut out, &mut a).unwrap();
    }
    assert_eq!((context.hits(), context.kept()), (4 + 20 * 6, 2));
    assert_eq!(a.bytes(), fp32(&[22.0, 44.0, 66.0, 88.0]));
}

#[test]
fn the_same_memory_in_another_shape_is_described_anew() {
    let mut context = context("accumulate_fp32", &ACCUMULATE, &["OUTPUT_STATE"]);
    let (input, state) = (Buffer::fp32(&[1.0, 2.0, 3.0, 4.0]), Buffer::fp32(&[10.0; 4]));
    let (zeros, ones) = (Buffer::fp32(&[0.0; 4]), Buffer::fp32(&[1.0; 4]));
    for rows in [1, 2, 4, 2] {
        let (shape, control, bytes) = (Shape::new(&[rows, 4 / rows]), Shape::new(&[rows, 1]), 4 * rows as usize);
        let [start, ready] = [&zeros, &ones].map(|buffer| MemorySpan::host(&buffer.bytes()[..bytes]));
        let feeds = [
            feed(DataType::Fp32, &shape, &input),
            Feed { dtype: DataType::Fp32, shape: &control, data: start },
            Feed { dtype: DataType::Fp32, shape: &control, data: ready },
            feed(DataType::Fp32, &shape, &state),
        ];
        let answers = run_new(&mut context, &feeds, 1).unwrap();
        assert_eq!((&answers[0].shape, answers[0].data.as_ref()), (&shape, &fp32(&[11.0, 12.0, 13.0, 14.0])[..]));
    }
}

#[test]
fn descriptions_are_bounded_and_stay_right_when_they_are_replaced() {
    let mut context = context("accumulate_fp32", &ACCUMULATE, &["OUTPUT", "OUTPUT_STATE"]);
    // The same memory in a hundred shapes, twice: the address alone does not identify a description.
    for rows in (1..=100u64).chain(1..=100) {
        let step = Step::of(&vec![1.5; 2 * rows as usize]);
        let state = Buffer::fp32(&vec![1.0; 2 * rows as usize]);
        let answers = run_new(&mut context, &step.feeds(&state), 2).unwrap();
        assert_eq!(answers[0].shape, Shape::new(&[rows, 2]));
        assert_eq!(answers[1].data.as_ref(), fp32(&vec![2.5; 2 * rows as usize]));
    }
    assert_eq!(context.kept(), super::super::cache::CAPACITY);
}

#[test]
fn an_output_outlives_its_context_and_its_inputs() {
    let state = Buffer::fp32(&[10.0, 20.0]);
    let mut context = context("accumulate_fp32", &ACCUMULATE, &["OUTPUT_STATE"]);
    let first = run_new(&mut context, &Step::of(&[1.0, 2.0]).feeds(&state), 1).unwrap().remove(0);
    let second = run_new(&mut context, &Step::of(&[5.0, 5.0]).feeds(&state), 1).unwrap().remove(0);
    assert_ne!(first.data.span().address(), second.data.span().address());
    drop((context, state));
    let other_thread = std::thread::spawn(move || {
        assert_eq!(first.data.as_ref(), fp32(&[11.0, 22.0]));
        drop(first);
    });
    other_thread.join().unwrap();
    assert_eq!(second.data.as_ref(), fp32(&[15.0, 25.0]));
}

/// Feeds the output of one run to the next without a copy.
#[test]
fn a_growing_state_starts_empty_and_is_fed_back_without_a_copy() {
    let mut context = context("grow_fp32", &["INPUT", "INPUT_STATE"], &["OUTPUT", "OUTPUT_STATE"]);
    let (one, nothing) = (Shape::new(&[1, 1, 4]), Shape::new(&[1, 0, 4]));
    let (input, empty) = (Buffer::fp32(&[1.0, 2.0, 3.0, 4.0]), Buffer::fp32(&[]));
    let feeds = [feed(DataType::Fp32, &one, &input), feed(DataType::Fp32, &nothing, &empty)];
    let mut state = run_new(&mut context, &feeds, 2).unwrap().remove(1);
    for steps in 2..=5u64 {
        let old = Feed { dtype: DataType::Fp32, shape: &state.shape, data: state.data.span() };
        let mut answers = run_new(&mut context, &[feed(DataType::Fp32, &one, &input), old], 2).unwrap();
        let sum = answers.remove(0);
        assert_eq!(sum.data.as_ref(), fp32(&[1.0, 2.0, 3.0, 4.0].map(|x| x * steps as f32)));
        state = answers.remove(0);
        assert_eq!(state.shape, Shape::new(&[1, steps, 4]));
    }
}

#[test]
fn tensors_of_length_zero_are_read_and_written() {
    let mut context = context("grow_fp32", &["INPUT", "INPUT_STATE"], &["OUTPUT", "OUTPUT_STATE"]);
    let (nothing, one) = (Shape::new(&[1, 0, 4]), Shape::new(&[1, 4]));
    let (empty, other) = (Buffer::fp32(&[]), Buffer::fp32(&[]));
    let feeds = [feed(DataType::Fp32, &nothing, &empty), feed(DataType::Fp32, &nothing, &other)];
    let answers = run_new(&mut context, &feeds, 2).unwrap();
    assert_eq!((&answers[1].shape, answers[1].data.len()), (&nothing, 0));
    let (mut sum, mut room) = (Buffer::fp32(&[7.0; 4]), Buffer::fp32(&[]));
    let fetches = &mut [
        Fetch::Into { shape: &one, data: sum.span_mut() },
        Fetch::Into { shape: &nothing, data: room.span_mut() },
    ];
    context.run(&feeds, fetches).unwrap();
    assert_eq!(sum.bytes(), fp32(&[0.0; 4]));
}

#[test]
fn scalars_have_no_dimensions() {
    let mut context = context("scalar", &["RATE", "INPUT"], &["TOTAL", "OUTPUT"]);
    let (rate, input) = (Buffer::new(&3i64.to_le_bytes()), Buffer::fp32(&[1.0, 2.0]));
    let (point, two) = (Shape::new(&[]), Shape::new(&[2]));
    let feeds = [feed(DataType::Int64, &point, &rate), feed(DataType::Fp32, &two, &input)];
    let answers = run_new(&mut context, &feeds, 2).unwrap();
    assert_eq!((&answers[0].shape, answers[0].data.as_ref()), (&point, &fp32(&[9.0])[..]));
    let mut total = Buffer::fp32(&[0.0]);
    let fetches = &mut [Fetch::Into { shape: &point, data: total.span_mut() }, Fetch::New(None)];
    context.run(&feeds, fetches).unwrap();
    assert_eq!(total.bytes(), fp32(&[9.0]));
}

#[test]
fn bool_and_int8_elements_take_a_single_byte() {
    let mut context = context("bool_int8", &["INPUT", "INPUT_STATE"], &["OUTPUT", "OUTPUT_STATE"]);
    let (shape, input, state) = (Shape::new(&[3, 1]), Buffer::new(&[1, 0, 1]), Buffer::new(&[0, 7, (-1i8) as u8]));
    let feeds = [feed(DataType::Bool, &shape, &input), feed(DataType::Int8, &shape, &state)];
    let answers = run_new(&mut context, &feeds, 2).unwrap();
    assert_eq!((answers[0].dtype, answers[0].data.as_ref()), (DataType::Bool, &[1, 1, 0][..]));
    assert_eq!((answers[1].dtype, answers[1].data.as_ref()), (DataType::Int8, &[1, 7, 0][..]));
}

/// An output that is an input has the caller's memory. The backend must not treat it as the runtime's, and must write the output's own
/// memory.
#[test]
fn an_output_that_is_an_input_or_a_constant_is_a_copy() {
    let mut context = context("through", &["INPUT", "STATE"], &["BACK", "STATE", "FIXED"]);
    let (shape, flat) = (Shape::new(&[1, 2]), Shape::new(&[2]));
    let (input, mut state) = (Buffer::fp32(&[1.0, 2.0]), Buffer::fp32(&[3.0, 4.0]));
    let feeds = [feed(DataType::Fp32, &shape, &input), feed(DataType::Fp32, &shape, &state)];
    let answers = run_new(&mut context, &feeds, 3).unwrap();
    assert_eq!((&answers[0].shape, answers[0].data.as_ref()), (&flat, &fp32(&[1.0, 2.0])[..]));
    assert_eq!(answers[2].data.as_ref(), fp32(&[7.0, 8.0]));
    state.room.fill(0);
    assert_eq!(answers[1].data.as_ref(), fp32(&[3.0, 4.0]));

    let state = Buffer::fp32(&[5.0, 6.0]);
    let feeds = [feed(DataType::Fp32, &shape, &input), feed(DataType::Fp32, &shape, &state)];
    let [mut back, mut next, mut fixed] = [[0.0f32; 2]; 3].map(|zero| Buffer::fp32(&zero));
    fn into<'a>(shape: &'a Shape, room: &'a mut Buffer) -> Fetch<'a> {
        Fetch::Into { shape, data: room.span_mut() }
    }
    context.run(&feeds, &mut [into(&flat, &mut back), into(&shape, &mut next), into(&flat, &mut fixed)]).unwrap();
    let got = [back.bytes(), next.bytes(), fixed.bytes()];
    assert_eq!(got, [fp32(&[1.0, 2.0]), fp32(&[5.0, 6.0]), fp32(&[7.0, 8.0])]);
    let error = context.run(&feeds, &mut [into(&flat, &mut back), into(&flat, &mut next), into(&flat, &mut fixed)]);
    assert_eq!(error.unwrap_err().0, "output 'STATE' is [1,2], but the room for it is [2] in 8 bytes");
}

#[test]
fn threads_that_share_a_session_get_the_results_of_separate_runs() {
    let graph = Arc::new(open("accumulate_fp32"));
    let total = |graph: &OnnxGraph, by: f32| {
        let mut context = graph.open_context(&names(&ACCUMULATE), &names(&["OUTPUT", "OUTPUT_STATE"])).unwrap();
        let (mut a, mut b, mut out) = (Buffer::fp32(&[0.0; 128]), Buffer::fp32(&[0.0; 128]), Buffer::fp32(&[0.0; 128]));
        let step = Step::of(&[by; 128]);
        for _ in 0..500 {
            step.run(&mut context, &a, &mut out, &mut b).unwrap();
            step.run(&mut context, &b, &mut out, &mut a).unwrap();
        }
        a.bytes().to_vec()
    };
    let alone = [total(&graph, 0.1), total(&graph, 0.3)];
    let shared = [0.1, 0.3].map(|by| {
        let graph = Arc::clone(&graph);
        std::thread::spawn(move || total(&graph, by))
    });
    assert_eq!(shared.map(|thread| thread.join().unwrap()), alone);
}
