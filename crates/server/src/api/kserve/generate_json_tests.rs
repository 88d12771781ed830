//! Tests of request objects and of answers.

use sequor_core::{DataType, Dims, Id};

use super::*;
use crate::model::Parameter;

fn metadata() -> Metadata {
    let tensor =
        |name: &str, dtype, dims: &[i64]| TensorMetadata { name: name.to_owned(), dtype, dims: Dims::from_wire(dims) };
    Metadata {
        name: "m".to_owned(),
        versions: vec![1],
        platform: String::new(),
        inputs: vec![
            tensor("text_input", DataType::Bytes, &[-1, 1]),
            tensor("x", DataType::Fp32, &[-1, -1]),
            tensor("pairs", DataType::Int32, &[-1, -1, 2]),
            tensor("grid", DataType::Int32, &[-1, -1, -1]),
            tensor("flag", DataType::Bool, &[-1]),
        ],
        outputs: Vec::new(),
    }
}

fn read(body: &str) -> Result<InferRequest, String> {
    read_with_note(body).map(|read| read.request)
}

fn read_with_note(body: &str) -> Result<GenerateRequest, String> {
    let (metadata, limits) = (metadata(), ServerLimits { parameters: 3, ..ServerLimits::default() });
    let head =
        GenerateHead { model: "m", version: "", sequence: None, metadata: &metadata, batching: true, limits: &limits };
    let body = Bytes::copy_from_slice(body.as_bytes());
    request(head, &body, &mut QueuedBytesPermit::unlimited()).map_err(|status| status.message)
}

fn shape_of(body: &str) -> Vec<u64> {
    read(body).unwrap().inputs[0].tensor.shape.0.clone()
}

#[test]
fn keys_are_inputs_and_all_others_parameters() {
    let body = r#"{"id": "r", "text_input": "hello", "x": [1, 2.5], "max_tokens": 20, "stream": false,
        "parameters": {"sequence_id": 7, "sequence_start": true}}"#;
    let request = read(&body.replace("\"stream\": false,", "")).unwrap();
    assert_eq!((request.id.as_str(), &request.sequence.id, request.sequence.start), ("r", &Id::from(7), true));
    assert_eq!(request.parameters, [("max_tokens".to_owned(), Parameter::Int(20))]);
    let [text, x] = &request.inputs[..] else { panic!("{request:?}") };
    assert_eq!((&*text.tensor.data, &text.tensor.shape.0[..]), (&b"\x05\0\0\0hello"[..], &[1, 1][..]));
    assert_eq!(x.tensor.shape.0[..], [1, 2]);
    let data = [1.0f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat();
    assert_eq!(&*x.tensor.data, data);
    assert!(read(body).unwrap_err().contains("more than 3 parameters (limits.parameters)"));
}

#[test]
fn keys_that_name_no_input_are_named_where_an_input_is_missing() {
    let note = |body: &str| read_with_note(body).unwrap().note;
    let inputs = "its inputs: text_input, x, pairs, grid, flag]";
    let said = note(r#"{"X": 1, "sequence_id": 7, "text": "hello"}"#).unwrap();
    assert_eq!(said, format!(" [no input of model 'm' is named 'X', 'text'; {inputs}"));
    assert_eq!(note(r#"{"x": 1, "sequence_id": 7}"#), None, "there is no such key");
    let all = r#"{"text_input": "a", "x": 1, "pairs": [1, 2], "grid": 1, "flag": true, "temperature": 1}"#;
    assert_eq!(note(all), None, "no input is missing");
    let list = read(r#"{"X": [1]}"#).unwrap_err();
    assert!(list.contains(&format!("[no input of model 'm' is named 'X'; {inputs}")), "{list}");
}

#[test]
fn an_input_shape_follows_the_nested_lists_or_the_model() {
    assert_eq!(shape_of(r#"{"x": 1}"#), [1, 1]);
    assert_eq!(shape_of(r#"{"x": []}"#), [1, 0]);
    assert_eq!(shape_of(r#"{"x": [[1, 2], [3, 4]]}"#), [2, 2], "two rows");
    assert_eq!(shape_of(r#"{"pairs": [1, 2, 3, 4]}"#), [1, 2, 2]);
    assert_eq!(shape_of(r#"{"pairs": [[1, 2]]}"#), [1, 1, 2]);
    assert_eq!(shape_of(r#"{"grid": [[1, 2, 3]]}"#), [1, 1, 3]);
    assert_eq!(shape_of(r#"{"grid": 5}"#), [1, 1, 1]);
    assert_eq!(shape_of(r#"{"flag": true}"#), [1]);
    let refused = |body: &str, why: &str| {
        let said = read(body).unwrap_err();
        assert!(said.contains(why), "{said}");
    };
    refused(r#"{"grid": [1, 2, 3]}"#, "3 elements do not say which shape of [-1, -1, -1] they have; nest the lists");
    refused(r#"{"pairs": [1, 2, 3]}"#, "3 elements do not say");
    refused(r#"{"grid": [[1, 2], [3]]}"#, "has 4 elements, but 3 are given");
    refused(r#"{"x": {"a": 1}}"#, "an object is no tensor");
    refused(r#"{"x": "text"}"#, "Unable to parse 'data' of input 'x' as FP32");
}

#[test]
fn words_for_nan_and_infinity_are_read_as_data() {
    let data = |body: &str| read(body).unwrap().inputs[0].tensor.data.to_vec();
    assert_eq!(data(r#"{"x": -Infinity}"#), f32::NEG_INFINITY.to_le_bytes());
    let want = [1.0, f32::NAN, f32::INFINITY].map(f32::to_le_bytes).concat();
    assert_eq!(data(r#"{"x": [[1, NaN, Infinity]], "id": "NaN"}"#), want);
    assert!(read(r#"{"pairs": [1, NaN]}"#).unwrap_err().ends_with("NaN is no INT32"));
    let said = read(r#"{"x": NaN, "parameters": {"p": Infinity}}"#).unwrap_err();
    assert_eq!(said, "failed to parse the request JSON buffer: Infinity is read only in the data of inputs");
}

#[test]
fn an_invalid_generate_body_is_refused() {
    for (body, why) in [
        ("[1]", "failed to parse the request JSON buffer"),
        (r#"{"x": 1} x"#, "trailing characters"),
        (r#"{"x": 1, "x": 2}"#, "duplicate field `x`"),
        (r#"{"other": [1]}"#, "parameter 'other' must be a string, a number or a boolean"),
        (r#"{"parameters": 3}"#, "an object of parameters"),
        (r#"{"id": 3}"#, "expected a string"),
        (r#"{"priority": -1}"#, "Unable to parse 'priority'"),
    ] {
        let said = read(body).unwrap_err();
        assert!(said.contains(why), "{body}: {said}");
    }
    let deep = format!("{{\"x\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    assert!(read(&deep).unwrap_err().contains("nested too deep"));
}

#[test]
fn an_output_of_a_single_element_is_written_without_a_list() {
    let output = |name: &str, dtype, shape: &[u64], data: &[u8]| NamedTensor {
        name: name.to_owned(),
        tensor: Tensor { dtype, shape: Shape::new(shape), data: Bytes::copy_from_slice(data) },
    };
    let answer = InferAnswer {
        model: "m".to_owned(),
        version: 3,
        id: "r".to_owned(),
        outputs: vec![
            output("text_output", DataType::Bytes, &[1, 1], b"\x02\0\0\0hi"),
            output("y", DataType::Int32, &[1, 2], &[1, 0, 0, 0, 2, 0, 0, 0]),
        ],
        parameters: vec![("sequence_id".to_owned(), Parameter::Int(7))],
        held: None,
    };
    let not_text = InferAnswer {
        outputs: vec![output("text_output", DataType::Bytes, &[1, 1], b"\x01\0\0\0\xff")],
        ..answer.clone()
    };
    let refused = write(&mut Vec::new(), not_text).unwrap_err();
    assert_eq!(refused.reason, crate::api::refusal::ANSWER_UNSENT);
    let mut out = Vec::new();
    write(&mut out, answer).unwrap();
    let expected = r#"{"id":"r","model_name":"m","model_version":"3","sequence_id":7,"text_output":"hi","y":[1,2]}"#;
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
