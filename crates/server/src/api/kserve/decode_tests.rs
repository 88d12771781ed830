//! Tests the decoding of requests: values of fields, and the refusals' sentences.

use sequor_proto::InferTensorContents;

use super::*;
use crate::api::Code;
use crate::api::kserve::model_inputs::AnyInputs;
use crate::config::server::settings::SharedMemory;

fn infer(message: ModelInferRequest, header: Option<&str>) -> Result<InferRequest, Status> {
    super::infer(message, header, &Regions::new(0, SharedMemory::On), &AnyInputs, &mut QueuedBytesPermit::unlimited())
        .map(|(request, _)| request)
}

fn choice(value: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(value) }
}

fn message(parameters: &[(&str, ParameterChoice)]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "acc".to_owned(),
        id: "r-1".to_owned(),
        parameters: parameters.iter().map(|(k, v)| ((*k).to_owned(), choice(v.clone()))).collect(),
        inputs: vec![input(None)],
        raw_input_contents: vec![Bytes::from_static(&[1, 0, 0, 0])],
        ..Default::default()
    }
}

fn input(contents: Option<InferTensorContents>) -> InferInputTensor {
    let (name, datatype) = ("INPUT".to_owned(), "INT32".to_owned());
    InferInputTensor { name, datatype, shape: vec![1, 1], contents, ..Default::default() }
}

fn text(value: &str) -> ParameterChoice {
    ParameterChoice::StringParam(value.to_owned())
}

fn refused(parameters: &[(&str, ParameterChoice)]) -> (Code, String) {
    let status = infer(message(parameters), None).expect_err("refused");
    assert_eq!(status.reason, if status.code == Code::Unimplemented { status.reason } else { "bad_input" });
    (status.code, status.message)
}

#[test]
fn decoded_tensors_share_the_received_buffer() {
    let buffer = Bytes::from(vec![7, 0, 0, 0]);
    let mut message = message(&[]);
    message.raw_input_contents = vec![buffer.clone()];
    let request = infer(message, None).expect("a request");
    assert_eq!(request.inputs[0].tensor.data.as_ptr(), buffer.as_ptr());
    assert_eq!((request.model.as_str(), request.id.as_str()), ("acc", "r-1"));
    assert_eq!(request.inputs[0].tensor.shape, Shape::new(&[1, 1]));
}

#[test]
fn a_sequence_id_may_be_signed_unsigned_or_text() {
    let id = |value| infer(message(&[("sequence_id", value)]), None).expect("a request").sequence.id;
    assert_eq!(id(ParameterChoice::Int64Param(-1)), Id::Int(u64::MAX));
    assert_eq!(id(ParameterChoice::Uint64Param(77)), Id::Int(77));
    assert_eq!(id(text("77")), Id::Str("77".into()));
    assert_eq!(id(ParameterChoice::Int64Param(0)), Id::None);
    assert_eq!(id(text("")), Id::None);
    assert_eq!(id(text(&"x".repeat(128))), Id::Str("x".repeat(128).into()));
}

#[test]
fn reserved_parameters_become_fields_of_the_request() {
    let request = infer(
        message(&[
            ("sequence_id", ParameterChoice::Int64Param(7)),
            ("sequence_start", ParameterChoice::BoolParam(true)),
            ("sequence_end", ParameterChoice::BoolParam(false)),
            ("sequence_step", ParameterChoice::Int64Param(3)),
            ("sequence_from", ParameterChoice::StringParam("seven".to_owned())),
            ("sequence_idle_us", ParameterChoice::Int64Param(2_000_000)),
            ("priority", ParameterChoice::Uint64Param(2)),
            ("timeout", ParameterChoice::Int64Param(1500)),
            ("triton_enable_empty_final_response", ParameterChoice::BoolParam(false)),
            ("tenant", text("gold")),
        ]),
        None,
    )
    .expect("a request");
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
    assert_eq!(request.parameters, [("tenant".to_owned(), Parameter::Text("gold".to_owned()))]);
}

#[test]
fn a_client_can_request_the_mark_of_the_final_response() {
    let form = |flag| {
        let message = message(&[("triton_enable_empty_final_response", ParameterChoice::BoolParam(flag))]);
        super::infer(message, None, &Regions::new(0, SharedMemory::On), &AnyInputs, &mut QueuedBytesPermit::unlimited())
            .expect("a request")
            .1
    };
    assert_eq!((form(true).mark_final, form(false).mark_final), (true, false));
}

#[test]
fn a_priority_beyond_32_bits_becomes_the_default_priority() {
    let priority =
        |n: u64| infer(message(&[("priority", ParameterChoice::Uint64Param(n))]), None).expect("a request").priority;
    assert_eq!([priority(3), priority(u64::from(u32::MAX) + 1), priority(u64::MAX)], [3, 0, 0]);
}

#[test]
fn parameters_of_a_wrong_kind_are_refused_in_tritons_words() {
    let kind = |key: &str, expected: &str| {
        (Code::InvalidArgument, format!("invalid value type for '{key}' parameter, expected {expected}."))
    };
    let yes = ParameterChoice::BoolParam(true);
    assert_eq!(refused(&[("sequence_id", yes.clone())]), kind("sequence_id", "int64_param or string_param"));
    assert_eq!(refused(&[("sequence_start", ParameterChoice::Int64Param(1))]), kind("sequence_start", "bool_param"));
    assert_eq!(refused(&[("sequence_end", text("true"))]), kind("sequence_end", "bool_param"));
    assert_eq!(refused(&[("timeout", ParameterChoice::Uint64Param(1))]), kind("timeout", "int64_param"));
    assert_eq!(refused(&[("priority", yes)]), kind("priority", "int64_param or uint64_param"));
    let negative = refused(&[("priority", ParameterChoice::Int64Param(-1))]).1;
    assert_eq!(negative, "invalid value for 'priority', expected value >= 0.");
    assert!(
        refused(&[("triton_x", text("1"))]).1.starts_with("parameter keys starting with 'triton_' are reserved for")
    );
    assert!(refused(&[("x", ParameterChoice::Uint64Param(1))]).1.starts_with("invalid value type for 'x' parameter"));
}

#[test]
fn a_text_id_has_at_most_128_characters() {
    let (code, said) = refused(&[("sequence_id", text(&"x".repeat(129)))]);
    assert_eq!(
        (code, said.as_str()),
        (Code::Unimplemented, "string correlation ID cannot be longer than 128 characters")
    );
}

#[test]
fn the_sequence_id_header_replaces_the_parameter_and_must_match_it() {
    let with = |parameters: &[(&str, ParameterChoice)], header| infer(message(parameters), Some(header));
    assert_eq!(with(&[], "7").expect("a request").sequence.id, Id::Int(7));
    assert_eq!(with(&[], "call-7").expect("a request").sequence.id, Id::Str("call-7".into()));
    assert_eq!(with(&[("sequence_id", text("7"))], "7").expect("a request").sequence.id, Id::Str("7".into()));
    let status = with(&[("sequence_id", ParameterChoice::Int64Param(8))], "7").expect_err("refused");
    assert_eq!(status.message, "'sequence_id' 8 and x-sequence-id 7 are not the same sequence");
    assert_eq!(with(&[], &"x".repeat(129)).expect_err("refused").code, Code::Unimplemented);
}

#[test]
fn data_is_raw_or_typed_and_never_both_or_neither() {
    let list = InferTensorContents { int_contents: vec![-2], ..Default::default() };
    let mut typed = message(&[]);
    (typed.raw_input_contents, typed.inputs) = (vec![], vec![input(Some(list.clone()))]);
    assert_eq!(infer(typed.clone(), None).expect("a request").inputs[0].tensor.data, (-2i32).to_le_bytes().as_slice());

    typed.raw_input_contents = vec![Bytes::from_static(&[0; 4])];
    let said = infer(typed, None).expect_err("refused").message;
    assert_eq!(said, "contents field must not be specified when using raw_input_contents for 'INPUT' for model 'acc'");

    let mut bare = message(&[]);
    bare.raw_input_contents.clear();
    let said = infer(bare.clone(), None).expect_err("refused").message;
    assert_eq!(said, "unable to find data for input tensor 'INPUT' for model 'acc' in request.");

    bare.raw_input_contents = vec![Bytes::new(), Bytes::new()];
    let said = infer(bare, None).expect_err("refused").message;
    assert_eq!(said, "expected 1 entries of raw_input_contents for model 'acc', got 2");
}

#[test]
fn open_shapes_and_unknown_data_types_are_refused() {
    let mut open = message(&[]);
    open.inputs[0].shape = vec![-1, 2];
    let said = infer(open, None).expect_err("refused").message;
    assert_eq!(
        said,
        "[request id: r-1] All input dimensions should be specified for input 'INPUT' for model 'acc', got [-1,2]"
    );

    let mut odd = message(&[]);
    odd.inputs[0].datatype = "FLOAT".to_owned();
    let said = infer(odd, None).expect_err("refused").message;
    let want = "[request id: r-1] inference input 'INPUT' data-type is '<invalid>', but model 'acc' expects 'FP32' ('FLOAT' is";
    assert!(said.starts_with(want), "{said}");
}

#[test]
fn incomplete_shared_memory_parameters_are_refused_by_name() {
    let mut shared = message(&[]);
    shared.inputs[0].parameters.insert("shared_memory_region".to_owned(), choice(text("r")));
    let missing = |key: &str| (Code::InvalidArgument, format!("'{key}' of input 'INPUT' is missing"));
    let status = infer(shared.clone(), None).expect_err("refused");
    assert_eq!((status.code, status.message.clone()), missing("shared_memory_byte_size"));
    shared.inputs[0].parameters = [("shared_memory_offset".to_owned(), choice(ParameterChoice::Int64Param(0)))].into();
    let status = infer(shared.clone(), None).expect_err("refused");
    assert_eq!((status.code, status.message.clone()), missing("shared_memory_region"));
    let size = choice(ParameterChoice::Int64Param(4));
    let parameters = [("shared_memory_region", choice(text("r"))), ("shared_memory_byte_size", size)];
    shared.inputs[0].parameters = parameters.map(|(key, value)| (key.to_owned(), value)).into();
    let status = infer(shared, None).expect_err("refused");
    assert_eq!((status.code, status.message.as_str()), (Code::NotFound, "Unable to find shared memory region: 'r'"));
}

#[test]
fn a_classification_has_a_count_and_no_region() {
    let read = |count: i64, region: bool| {
        let mut wanted = message(&[]);
        let mut parameters = vec![("classification".to_owned(), choice(ParameterChoice::Int64Param(count)))];
        if region {
            parameters.push(("shared_memory_region".to_owned(), choice(text("r"))));
        }
        let parameters = parameters.into_iter().collect();
        wanted.outputs = vec![InferRequestedOutputTensor { name: "OUT".to_owned(), parameters }];
        super::infer(wanted, None, &Regions::new(0, SharedMemory::On), &AnyInputs, &mut QueuedBytesPermit::unlimited())
            .map(|(_, form)| form.needs_model())
    };
    assert_eq!(read(3, false), Ok(true));
    assert_eq!(
        [read(0, false), read(-1, false), read(3, true)].map(|r| r.expect_err("refused").code),
        [Code::InvalidArgument; 3]
    );
}
