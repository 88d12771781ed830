//! Tests of counts and sizes, with messages that prost encodes and with malformed bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use super::*;
use crate::api::{Code, refusal};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use sequor_proto::{InferParameter, InferTensorContents, ModelInferRequest};

fn limits() -> ServerLimits {
    ServerLimits { inputs: 3, outputs: 3, parameters: 3, ..ServerLimits::default() }
}

fn parameters(count: usize) -> BTreeMap<String, InferParameter> {
    let value = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(7)) };
    (0..count).map(|n| (n.to_string(), value.clone())).collect()
}

fn refused(message: &ModelInferRequest) -> String {
    let status = refusal::limit(&scan(&message.encode_to_vec(), &limits()).refused.expect("refused"));
    assert_eq!((status.code, status.reason), (Code::InvalidArgument, "bad_input"));
    status.message
}

#[test]
fn a_scan_finds_the_model_and_the_counts_of_a_message() {
    let input = InferInputTensor { parameters: parameters(1), ..Default::default() };
    let message = ModelInferRequest {
        model_name: "m".to_owned(),
        model_version: "1".to_owned(),
        id: "r".to_owned(),
        parameters: parameters(1),
        inputs: vec![input; 2],
        outputs: vec![InferRequestedOutputTensor::default(); 3],
        raw_input_contents: vec![Bytes::from_static(&[0xff; 100]); 3],
    };
    let bytes = message.encode_to_vec();
    let scanned = scan(&bytes, &limits());
    assert_eq!((scanned.model, scanned.version, scanned.id), (&b"m"[..], &b"1"[..], &b"r"[..]));
    assert_eq!(scanned.refused, None);
    assert_eq!((scanned.inputs, scanned.outputs, scanned.raw, scanned.parameters), (2, 3, 3, 3));
}

#[test]
fn too_many_of_anything_are_refused_by_name() {
    let empty = ModelInferRequest::default;
    let inputs = ModelInferRequest { inputs: vec![InferInputTensor::default(); 4], ..empty() };
    assert_eq!(refused(&inputs), "the request has more than 3 inputs (limits.inputs)");
    let raw = ModelInferRequest { raw_input_contents: vec![Bytes::new(); 4], ..empty() };
    assert_eq!(refused(&raw), "the request has more than 3 raw_input_contents (limits.inputs)");
    let outputs = ModelInferRequest { outputs: vec![InferRequestedOutputTensor::default(); 4], ..empty() };
    assert_eq!(refused(&outputs), "the request has more than 3 outputs (limits.outputs)");
    let parameter = "the request has more than 3 parameters (limits.parameters)";
    assert_eq!(refused(&ModelInferRequest { parameters: parameters(4), ..empty() }), parameter);
    let input = InferInputTensor { parameters: parameters(2), ..Default::default() };
    assert_eq!(refused(&ModelInferRequest { inputs: vec![input; 2], ..empty() }), parameter);
    let output = InferRequestedOutputTensor { parameters: parameters(4), ..Default::default() };
    assert_eq!(refused(&ModelInferRequest { outputs: vec![output], ..empty() }), parameter);
}

#[test]
fn a_scan_estimates_memory_of_lists_and_shapes_but_not_of_raw_contents() {
    let unpacked = |input: InferInputTensor| {
        let message = ModelInferRequest { inputs: vec![input], ..Default::default() };
        scan(&message.encode_to_vec(), &limits()).unpacked
    };
    let of =
        |contents: InferTensorContents| unpacked(InferInputTensor { contents: Some(contents), ..Default::default() });
    let lists = [
        InferTensorContents { int_contents: vec![1; 1000], ..Default::default() },
        InferTensorContents { uint_contents: vec![u32::MAX; 1000], ..Default::default() },
        InferTensorContents { int64_contents: vec![-1; 1000], ..Default::default() },
        InferTensorContents { fp64_contents: vec![1.0; 1000], ..Default::default() },
        InferTensorContents { bool_contents: vec![true; 1000], ..Default::default() },
    ];
    assert_eq!(lists.map(&of), [8000, 8000, 16000, 16000, 2000].map(|bytes| bytes + ITEM));
    let texts = InferTensorContents { bytes_contents: vec![vec![]; 1000], ..Default::default() };
    assert_eq!(of(texts), ITEM + 1000 * ELEMENT);
    assert_eq!(unpacked(InferInputTensor { shape: vec![1; 1000], ..Default::default() }), ITEM + 8000);
    let raw = ModelInferRequest { raw_input_contents: vec![Bytes::from(vec![1; 9000])], ..Default::default() };
    assert_eq!(scan(&raw.encode_to_vec(), &limits()).unpacked, 0);
}

#[test]
fn shared_memory_that_is_to_be_read_counts() {
    let size = |n| InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(n)) };
    let unpacked = |n| {
        let parameters = BTreeMap::from([("shared_memory_byte_size".to_owned(), size(n))]);
        let inputs = vec![InferInputTensor { parameters, ..Default::default() }];
        let message = ModelInferRequest { inputs, ..Default::default() };
        scan(&message.encode_to_vec(), &limits()).shared
    };
    assert_eq!([1 << 20, 0, -1].map(unpacked), [1 << 20, 0, i64::MAX as u64]);
}

#[test]
fn bytes_that_are_no_message_end_the_scan() {
    for bytes in [&[0xff; 12][..], &[0x2a, 0xff], &[0x2a, 0x05, 1], &[0x0f], &[0x29, 1], &[0x0b]] {
        let scanned = scan(bytes, &limits());
        assert_eq!((scanned.inputs, scanned.is_well_formed), (0, false), "{bytes:?}");
    }
    assert!(scan(&[], &limits()).is_well_formed);
}

#[test]
fn raw_contents_do_not_make_a_message_long_to_scan() {
    let name = [0x0a, 1, b'm'];
    let raw = |length: usize| {
        let message = ModelInferRequest { raw_input_contents: vec![vec![0; length].into()], ..Default::default() };
        message.encode_to_vec()
    };
    assert!(!is_long(&raw(4 * INLINE_BYTES)));
    assert!(!is_long(&name.repeat(INLINE_BYTES / 3)));
    assert!(is_long(&name.repeat(INLINE_BYTES / 3 + 1)));
    assert!(is_long(&[raw(INLINE_BYTES), name.repeat(INLINE_BYTES / 3 + 1)].concat()));
    let text = ModelInferRequest { id: "x".repeat(INLINE_BYTES), ..Default::default() };
    assert!(is_long(&text.encode_to_vec()));
}

/// A field of a message whose length needs one or two bytes.
fn field(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut field = vec![tag];
    prost::encoding::encode_varint(contents.len() as u64, &mut field);
    field.extend_from_slice(contents);
    field
}

/// Makes a message with this many parts.
type MakeMessage = Box<dyn Fn(usize) -> Vec<u8>>;

#[test]
fn no_message_that_needs_no_scan_exceeds_a_limit() {
    let (few, default) = (limits(), ServerLimits::default());
    // The smallest input, output, raw contents and parameter: a tag and the length 0.
    for tag in [0x2a, 0x32, 0x3a, 0x22] {
        let of = |count: usize| [tag, 0].repeat(count);
        assert!(is_needless(&of(3), &few) && scan(&of(3), &few).refused.is_none());
        assert!(!is_needless(&of(4), &few) && scan(&of(4), &few).refused.is_some());
    }
    let input = |tag: u8, contents: &[u8]| field(0x2a, &field(tag, contents));
    let list = move |number: u8, contents: &[u8]| input(0x2a, &field(number << 3 | 2, contents));
    // Messages with this many of the smallest parts, each of them as deep as it may be.
    let mut kinds: Vec<(String, MakeMessage)> = vec![
        ("parameters of an input".to_owned(), Box::new(move |count| field(0x2a, &[0x22, 0].repeat(count)))),
        ("parameters of an output".to_owned(), Box::new(move |count| field(0x32, &[0x12, 0].repeat(count)))),
        ("bytes_contents".to_owned(), Box::new(move |count| input(0x2a, &[0x42, 0].repeat(count)))),
        ("a shape".to_owned(), Box::new(move |count| input(0x1a, &vec![1; count]))),
    ];
    for tag in [0x2a_u8, 0x32, 0x3a, 0x22] {
        kinds.push((format!("tag {tag}"), Box::new(move |count| [tag, 0].repeat(count))));
    }
    for number in 1..=7 {
        kinds.push((format!("packed list {number}"), Box::new(move |count| list(number, &vec![0; count]))));
    }
    for (kind, of) in kinds {
        for limits in [&few, &default] {
            let needless = (0..1000).map(&of).filter(|message| is_needless(message, limits));
            let largest = needless.inspect(|message| {
                let scanned = scan(message, limits);
                assert!(scanned.is_well_formed && scanned.refused.is_none(), "{kind}: {scanned:?}");
                assert!(scanned.unpacked <= UNCOUNTED, "{kind}: {scanned:?}");
            });
            let longest = largest.map(|message| message.len()).max().expect("a message");
            assert!(longest > 2 * limits.inputs.min(100) - 2, "{kind}: {longest}");
        }
    }
}
