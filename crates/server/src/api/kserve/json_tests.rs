//! Tests the decoding of bodies: values of fields, and the refusals' sentences.

use std::sync::LazyLock;
use std::time::Duration;

use sequor_core::{DataType, Dims};

use super::*;
use crate::api::Code;
use crate::api::kserve::model_inputs::AnyInputs;
use crate::config::server::settings::SharedMemory;
use crate::model::SequenceStep;

static LIMITS: LazyLock<ServerLimits> =
    LazyLock::new(|| ServerLimits { inputs: 4, outputs: 4, parameters: 9, ..ServerLimits::default() });
static REGIONS: LazyLock<Regions> = LazyLock::new(|| Regions::new(0, SharedMemory::On));

fn head(json_length: Option<usize>) -> JsonRequestHead<'static> {
    JsonRequestHead {
        model: "acc",
        version: "",
        sequence: None,
        json_length,
        regions: &REGIONS,
        inputs: &AnyInputs,
        limits: &LIMITS,
    }
}

const INPUT: &str = r#"{"name":"INPUT","shape":[1,1],"datatype":"FP32","data":[[0.5]]}"#;

fn body(parameters: &str) -> String {
    format!(r#"{{"id":"r-1","parameters":{{{parameters}}},"inputs":[{INPUT}]}}"#)
}

fn read(text: &str) -> Result<(InferRequest, ResponseFormat), Status> {
    infer(head(None), &Bytes::copy_from_slice(text.as_bytes()), &mut QueuedBytesPermit::unlimited())
}

fn refused(text: &str) -> String {
    let status = read(text).expect_err("refused");
    assert_eq!((status.code, status.reason), (Code::InvalidArgument, "bad_input"));
    status.message
}

#[test]
fn a_sequence_parameter_beside_the_parameters_is_refused() {
    for misplaced in ["sequence_id", "sequence_start", "sequence_end", "sequence_step"] {
        let message = refused(&format!(r#"{{"inputs":[{INPUT}],"{misplaced}":1}}"#));
        assert!(message.contains(&format!("\"{misplaced}\" belongs in \"parameters\"")), "{message}");
    }
    assert!(read(&format!(r#"{{"inputs":[{INPUT}],"note":1}}"#)).is_ok(), "other unknown keys are ignored");
}

#[test]
fn a_body_becomes_a_request() {
    let parameters = r#""sequence_id":7,"sequence_start":true,"sequence_step":3,"sequence_from":"seven","sequence_idle_us":2000000,"priority":2,"timeout":1500,"tenant":"gold","x":-1.5"#;
    let (request, binary) = read(&body(parameters)).expect("a request");
    assert_eq!((request.model.as_str(), request.id.as_str()), ("acc", "r-1"));
    assert_eq!(
        request.sequence,
        SequenceStep {
            id: Id::Int(7),
            start: true,
            end: false,
            step: Some(3),
            idle: Some(Duration::from_secs(2)),
            from: Some(Id::from("seven"))
        }
    );
    assert_eq!((request.priority, request.timeout), (2, Some(Duration::from_micros(1500))));
    let custom = [("tenant".to_owned(), Parameter::Text("gold".to_owned())), ("x".to_owned(), Parameter::Double(-1.5))];
    assert_eq!(request.parameters, custom);
    assert_eq!(request.inputs[0].tensor.data, 0.5f32.to_le_bytes().as_slice());
    assert_eq!(binary, ResponseFormat::default());
}

#[test]
fn data_may_precede_its_datatype_in_the_body() {
    let text = r#"{"inputs":[{"data":[1],"datatype":"INT8","shape":[1],"name":"x"}]}"#;
    assert_eq!(read(text).expect("a request").0.inputs[0].tensor.data, [1u8].as_slice());
}

#[test]
fn words_for_nan_and_infinity_are_read_in_the_data_of_floats() {
    let with = |dtype: &str, data: &str| {
        let shape = 1 + data.matches(',').count();
        format!(
            r#"{{"id":"NaN","inputs":[{{"name":"a\"NaN","shape":[1],"datatype":"INT8","data":[5]}},
            {{"name":"x","shape":[{shape}],"datatype":"{dtype}","data":{data}}}]}}"#
        )
    };
    let (request, _) = read(&with("FP32", "[1, NaN, -Infinity, Infinity, -1e-3, Inf]")).expect("a request");
    let want = [1.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -1e-3, f32::INFINITY].map(f32::to_le_bytes).concat();
    assert_eq!(request.inputs[1].tensor.data, want.as_slice());
    assert_eq!((request.id.as_str(), request.inputs[0].name.as_str()), ("NaN", "a\"NaN"));
    let (request, _) = read(&with("FP64", "[-Inf]")).expect("a request");
    assert_eq!(request.inputs[1].tensor.data, f64::NEG_INFINITY.to_le_bytes().as_slice());
    let said = refused(&with("INT32", "[1, -Infinity]"));
    assert_eq!(said, "Unable to parse 'data' of input 'x' as INT32 of shape [2]: -Infinity is no INT32");
    assert!(refused(&with("BOOL", "[NaN]")).ends_with("NaN is no BOOL"));
    assert!(refused(&with("BYTES", "[\"a\", NaN]")).ends_with("NaN is no BYTES"));
    assert!(refused(&with("FP16", "[NaN]")).starts_with("receiving FP16 data via JSON is not supported"));
    assert!(refused(&with("FP32", "[NaN, 1e39]")).contains("1e39 does not fit FP32"));
    for elsewhere in [r#""sequence_id":NaN"#, r#""x":NaN"#] {
        let said = refused(&body(elsewhere));
        assert_eq!(said, "failed to parse the request JSON buffer: NaN is read only in the data of inputs");
    }
    // The error is about the second fault, at its place in the body.
    let said = refused(&with("FP32", "[NaN,, 1]").replace('\n', ""));
    assert!(said.starts_with("failed to parse the request JSON buffer: expected value at line 1 column "), "{said}");
}

#[test]
fn ids_are_numbers_or_texts() {
    let id = |value: &str| read(&body(&format!("\"sequence_id\":{value}"))).map(|(request, _)| request.sequence.id);
    assert_eq!(id("18446744073709551615"), Ok(Id::Int(u64::MAX)));
    assert_eq!(id("\"77\""), Ok(Id::Str("77".into())));
    assert_eq!(id("0"), Ok(Id::None));
    let said = "Unable to parse 'sequence_id': attempt to access JSON non-string as string \
                (it is a whole number from 1 to 2^64-1, or a text)";
    for wrong in ["-1", "1.5", "true", "null"] {
        assert_eq!(id(wrong).expect_err("refused").message, said);
    }
}

#[test]
fn parameters_of_a_wrong_kind_are_refused_in_tritons_words() {
    let said = refused(&body(r#""sequence_end":1"#));
    assert_eq!(said, "Unable to parse 'sequence_end': attempt to access JSON non-boolean as boolean");
    assert!(refused(&body(r#""timeout":-1"#)).starts_with("Unable to parse 'timeout'"));
    assert!(refused(&body(r#""triton_x":1"#)).starts_with("parameter keys starting with 'triton_' are reserved"));
    assert!(refused(&body(r#""x":[1]"#)).contains("'x'"));
}

#[test]
fn a_body_that_is_no_request_is_the_clients_fault() {
    assert!(refused("{").starts_with("failed to parse the request JSON buffer: "));
    let said = "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'";
    assert_eq!(refused("{}"), said);
    let hostile = format!("{{\"parameters\":{{\"x\":{}}}}}", "[".repeat(100_000));
    assert!(refused(&hostile).starts_with("failed to parse the request JSON buffer: "));
    let nested = format!(
        "{{\"inputs\":[{{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":{}{}}}]}}",
        "[".repeat(9999),
        "]".repeat(9999)
    );
    assert!(refused(&nested).contains("nested deeper"));
    let bare = r#"{"inputs":[{"name":"INPUT","shape":[1],"datatype":"FP32"}]}"#;
    let fields = "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
        'shared_memory_region' in 'parameters'. But";
    assert_eq!(refused(bare), format!("{fields} no field is set"));
    let both = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],
        "parameters":{"binary_data_size":4,"shared_memory_region":"r"}}]}"#;
    assert_eq!(refused(both), format!("{fields} set 'data' 'binary_data_size' 'shared_memory_region'"));
}

fn binary(json: &str, blobs: &[u8], length: Option<usize>) -> Result<(InferRequest, ResponseFormat), Status> {
    infer(head(length), &[json.as_bytes(), blobs].concat().into(), &mut QueuedBytesPermit::unlimited())
}

const TWO: &str = r#"{"inputs":[{"name":"a","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}},
    {"name":"b","shape":[1],"datatype":"INT8","data":[9]},
    {"name":"c","shape":[1],"datatype":"INT32","parameters":{"binary_data_size":4}}],
    "parameters":{"binary_data_output":true},"outputs":[{"name":"y"},{"name":"z","parameters":{"binary_data":false}}]}"#;

#[test]
fn tensors_may_follow_the_json_as_bytes() {
    let (request, wanted) = binary(TWO, &[1, 2, 3, 4, 5, 6], Some(TWO.len())).expect("a request");
    let data: Vec<&[u8]> = request.inputs.iter().map(|input| &*input.tensor.data).collect();
    assert_eq!(data, [&[1u8, 2][..], &[9], &[3, 4, 5, 6]]);
    assert_eq!((wanted.wants_bytes("y"), wanted.wants_bytes("z")), (true, false));
    assert_eq!(request.outputs, ["y", "z"]);
}

#[test]
fn binary_sizes_that_do_not_match_are_refused_with_tritons_messages() {
    let said = |blobs: &[u8], length| binary(TWO, blobs, length).expect_err("refused").message;
    let short = "unexpected size for input 'c', expecting 1 additional bytes for model 'acc'";
    assert_eq!(said(&[1, 2, 3, 4, 5], Some(TWO.len())), short);
    assert_eq!(said(&[0; 7], Some(TWO.len())), "unexpected additional input data for model 'acc'");
    assert!(said(&[], Some(TWO.len() + 1)).starts_with("must specify valid 'Infer-Header-Content-Length'"));
    assert!(said(&[], None).starts_with("must specify valid 'Infer-Header-Content-Length'"));
}

#[test]
fn a_body_of_raw_bytes_is_a_single_row_of_the_only_input() {
    let metadata = |inputs: &[(DataType, &[i64])]| Metadata {
        name: "acc".to_owned(),
        versions: vec![],
        platform: String::new(),
        inputs: inputs
            .iter()
            .map(|(dtype, dims)| TensorMetadata { name: "x".to_owned(), dtype: *dtype, dims: Dims::from_wire(dims) })
            .collect(),
        outputs: vec![],
    };
    let read = |inputs: &[(DataType, &[i64])], body: &'static [u8]| {
        let (request, form) = raw(head(Some(0)), Bytes::from_static(body), &metadata(inputs), true)?;
        assert!(form.wants_bytes("any"));
        let tensor = request.inputs.into_iter().next().expect("an input").tensor;
        Ok::<_, Status>((tensor.shape, tensor.data.to_vec()))
    };
    let shape = |dims: &[u64]| Shape::new(dims);
    assert_eq!(read(&[(DataType::Int16, &[-1, 2, -1])], &[0; 12]), Ok((shape(&[1, 2, 3]), vec![0; 12])));
    assert_eq!(read(&[(DataType::Int16, &[-1, 2])], &[0; 4]), Ok((shape(&[1, 2]), vec![0; 4])));
    assert_eq!(read(&[(DataType::Bytes, &[-1, 1])], b"ab"), Ok((shape(&[1, 1]), vec![2, 0, 0, 0, b'a', b'b'])));
    assert!(read(&[(DataType::Int16, &[-1, -1, -1])], &[0; 4]).is_err());
    assert!(read(&[], &[0; 4]).is_err());
}

#[test]
fn the_header_may_not_differ_from_the_parameter() {
    let with = |parameters: &str| {
        infer(
            JsonRequestHead { sequence: Some("7"), ..head(None) },
            &Bytes::from(body(parameters)),
            &mut QueuedBytesPermit::unlimited(),
        )
        .map(|(request, _)| request.sequence.id)
    };
    assert_eq!(with(""), Ok(Id::Int(7)));
    assert_eq!(with("\"sequence_id\":7"), Ok(Id::Int(7)));
    assert_eq!(with("\"sequence_id\":8").expect_err("refused").code, Code::InvalidArgument);
}

#[test]
fn too_many_of_anything_are_refused_by_name() {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let inputs = |count| refused(&format!(r#"{{"inputs":{}}}"#, list(INPUT, count)));
    assert!(inputs(5).contains("the request has more than 4 inputs (limits.inputs)"), "{}", inputs(5));
    let outputs = refused(&format!(r#"{{"inputs":[],"outputs":{}}}"#, list(r#"{"name":"y"}"#, 5)));
    assert!(outputs.contains("the request has more than 4 outputs (limits.outputs)"), "{outputs}");
    let many: Vec<String> = (0..10).map(|n| format!(r#""p{n}":{n}"#)).collect();
    let parameters = refused(&body(&many.join(",")));
    assert!(parameters.contains("the request has more than 9 parameters (limits.parameters)"), "{parameters}");
    let shape = refused(&format!(r#"{{"inputs":[{{"name":"x","shape":{},"datatype":"INT8"}}]}}"#, list("1", 257)));
    assert!(shape.contains("a shape has more than 256 dimensions"), "{shape}");
}

#[test]
fn a_parameter_that_is_an_array_is_refused_where_it_begins() {
    // The rest is invalid JSON, which is never parsed.
    for value in ["[0,0,!", "{\"a\":!"] {
        let said = refused(&format!(r#"{{"parameters":{{"a":{value}"#));
        assert!(said.contains("parameter 'a' must be a string, a number or a boolean"), "{said}");
    }
}

#[test]
fn data_is_counted_before_it_is_read() {
    let shown = crate::telemetry::kinds::Gauge::default();
    let mut permit =
        crate::api::queued::QueuedBytes::new(1000, shown.clone()).permit(&crate::api::peers::Peer::default());
    let text = |count: usize| {
        let data = vec!["0"; count].join(",");
        format!(r#"{{"inputs":[{{"name":"x","shape":[{count}],"datatype":"FP64","data":[{data}]}}]}}"#)
    };
    let mut read = |count| infer(head(None), &Bytes::from(text(count)), &mut permit).map(|_| shown.get());
    assert_eq!(read(100), Ok(800));
    assert_eq!(read(100).expect_err("no room").reason, "queue_full");
}
