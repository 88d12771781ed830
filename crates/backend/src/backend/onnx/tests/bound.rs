//! Tests runs over a binding, as accelerators use them. In these tests the outputs are left on the host.

use super::*;
use crate::device::DeviceId;

fn bound(model: &str, inputs: &[&str], outputs: &[&str]) -> OnnxContext {
    let mut context = context(model, inputs, outputs);
    context.leaves = Some(DeviceId::Host);
    context
}

#[test]
fn a_run_mixes_outputs_allocated_by_the_runtime_and_by_the_caller() {
    let mut context = bound("grow_fp32", &["INPUT", "INPUT_STATE"], &["OUTPUT", "OUTPUT_STATE"]);
    let (one, sum) = (Shape::new(&[1, 1, 4]), Shape::new(&[1, 4]));
    let input = Buffer::fp32(&[1.0, 2.0, 3.0, 4.0]);
    let mut state = (one.clone(), fp32(&[0.0; 4]));
    for steps in 2..=5u64 {
        let (mut room, before) = (Buffer::fp32(&[0.0; 4]), Buffer::new(&state.1));
        let feeds = [feed(DataType::Fp32, &one, &input), feed(DataType::Fp32, &state.0, &before)];
        let fetches = &mut [Fetch::Into { shape: &sum, data: room.span_mut() }, Fetch::New(None)];
        context.run(&feeds, fetches).unwrap();
        let [_, Fetch::New(Some(made))] = fetches else { panic!("{fetches:?}") };
        assert_eq!(made.shape, Shape::new(&[1, steps, 4]));
        state = (made.shape.clone(), made.data.as_ref().to_vec());
        assert_eq!(room.bytes(), fp32(&[1.0, 2.0, 3.0, 4.0].map(|x| x * (steps - 1) as f32)));
    }
}

#[test]
fn an_allocated_output_outlives_reuse_and_drop_of_its_binding() {
    let mut context = bound("gather", &["INDEX"], &["OUTPUT"]);
    let shape = Shape::new(&[2]);
    let mut run = |values: [i64; 2]| {
        let index = Buffer::new(&values.map(i64::to_le_bytes).concat());
        run_new(&mut context, &[feed(DataType::Int64, &shape, &index)], 1)
    };
    let first = run([0, 3]).unwrap().remove(0);
    let error = run([1, 9]).unwrap_err();
    assert!(error.0.contains("idx=9 must be within the inclusive range [-4,3]"), "{error}");
    let second = run([1, 1]).unwrap().remove(0);
    assert_eq!((first.data.as_ref(), second.data.as_ref()), (&fp32(&[10.0, 40.0])[..], &fp32(&[20.0, 20.0])[..]));
    assert_ne!(first.data.span().address(), second.data.span().address());
    drop((context, second));
    assert_eq!(first.data.as_ref(), fp32(&[10.0, 40.0]));
}

#[test]
fn passed_through_inputs_and_texts_are_copied_out_of_a_bound_run() {
    let mut context = bound("through", &["INPUT", "STATE"], &["BACK", "STATE", "FIXED"]);
    let shape = Shape::new(&[1, 2]);
    let (input, mut state) = (Buffer::fp32(&[1.0, 2.0]), Buffer::fp32(&[3.0, 4.0]));
    let feeds = [feed(DataType::Fp32, &shape, &input), feed(DataType::Fp32, &shape, &state)];
    let answers = run_new(&mut context, &feeds, 3).unwrap();
    state.room.fill(0);
    let got = answers.iter().map(|answer| answer.data.as_ref());
    assert!(got.eq([fp32(&[1.0, 2.0]), fp32(&[3.0, 4.0]), fp32(&[7.0, 8.0])].iter().map(Vec::as_slice)));

    let mut context = bound("string_state", &["INPUT", "INPUT_STATE"], &["OUTPUT", "OUTPUT_STATE"]);
    let (shape, text) = (Shape::new(&[1, 1]), [&3u32.to_le_bytes()[..], b"a\0b"].concat());
    let feed = |data| Feed { dtype: DataType::Bytes, shape: &shape, data: MemorySpan::host(data) };
    let answers = run_new(&mut context, &[feed(&text), feed(&[0; 4])], 2).unwrap();
    assert_eq!((answers[0].data.as_ref(), answers[1].data.as_ref()), (&[0; 4][..], &text[..]));
}
