//! BYTES through a model of string tensors.

use super::*;

fn wire(elements: &[&[u8]]) -> Vec<u8> {
    let one = |element: &&[u8]| [&(element.len() as u32).to_le_bytes()[..], element].concat();
    elements.iter().flat_map(one).collect()
}

fn string_context() -> OnnxContext {
    context("string_state", &["INPUT", "INPUT_STATE"], &["OUTPUT", "OUTPUT_STATE"])
}

fn run(context: &mut OnnxContext, shape: &Shape, input: &[u8], state: &[u8]) -> Result<Vec<Produced>, BackendError> {
    // Strings are copied, so their bytes may be unaligned.
    let feed = |data| Feed { dtype: DataType::Bytes, shape, data: MemorySpan::host(data) };
    run_new(context, &[feed(input), feed(state)], 2)
}

#[test]
fn string_elements_of_any_bytes_round_trip() {
    let mut context = string_context();
    let (now, before) = (wire(&[b"a\0b\xff", b"", b"\xe2\x82\xac"]), wire(&[b"", b"\0", &[b'x'; 1000]]));
    let shape = Shape::new(&[3, 1]);
    let answers = run(&mut context, &shape, &now, &before).unwrap();
    assert_eq!((&answers[0].shape, answers[0].data.as_ref()), (&shape, &before[..]));
    assert_eq!((answers[1].dtype, answers[1].data.as_ref()), (DataType::Bytes, &now[..]));
    let next = run(&mut context, &shape, &before, answers[1].data.as_ref()).unwrap();
    assert_eq!(next[0].data.as_ref(), now);
}

#[test]
fn string_tensors_may_have_no_elements_or_only_empty_elements() {
    let mut context = string_context();
    let none = run(&mut context, &Shape::new(&[2, 0]), b"", b"").unwrap();
    assert_eq!((&none[0].shape, none[0].data.len()), (&Shape::new(&[2, 0]), 0));
    let empty = wire(&[b"", b""]);
    let answers = run(&mut context, &Shape::new(&[2, 1]), &empty, &empty).unwrap();
    assert_eq!(answers[0].data.as_ref(), empty);
}

#[test]
fn elements_that_are_not_whole_or_not_as_many_are_an_error() {
    let mut context = string_context();
    let (one, shape) = (wire(&[b"one"]), Shape::new(&[1, 1]));
    let error = run(&mut context, &shape, &one[..5], &one).unwrap_err();
    assert_eq!(error.0, "'INPUT' does not hold the BYTES elements it should: their data ends inside an element");
    let error = run(&mut context, &shape, &one, &wire(&[b"one", b"two"])).unwrap_err();
    assert_eq!(
        error.0,
        "'INPUT_STATE' does not hold the BYTES elements it should: there are 2 of them for the shape [1,1]"
    );
}

#[test]
fn strings_cannot_be_written_in_place() {
    let mut context = string_context();
    let (one, shape, mut room) = (wire(&[b"one"]), Shape::new(&[1, 1]), Buffer::new(&[0; 16]));
    let feed = Feed { dtype: DataType::Bytes, shape: &shape, data: MemorySpan::host(&one) };
    let fetches = &mut [Fetch::New(None), Fetch::Into { shape: &shape, data: room.span_mut() }];
    let error = context.run(&[feed.clone(), feed], fetches).unwrap_err();
    assert_eq!(error.0, "output 'OUTPUT_STATE' is BYTES and cannot be written in place");
}
