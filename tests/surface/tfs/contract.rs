//! The rows of the contract. `table.rs` runs them over each protocol.

use sequor_proto::tensorflow::serving::PredictRequest;
use sequor_proto::tensorflow::{DataType, TensorProto};
use serde_json::{Value, json};
use tonic::Code;

use super::calls::{END, START, control, id, number, request, shape};

pub(super) const NONE: u32 = 0;
/// A number that fails the run of `made`, `swept` and `one`.
pub(super) const POISON: i32 = -13;

/// A series of requests, and its section of the contract.
pub(super) struct Row {
    pub(super) section: &'static str,
    pub(super) model: &'static str,
    pub(super) acts: Vec<(Act, Want)>,
}

pub(super) enum Act {
    /// A step: id, control, number. Zeros for id and control are left out of the request.
    Step(u64, u32, i32),
    /// A step of the sequence whose id the server assigned last.
    Made(u32, i32),
    /// A step with an explicit control of 0.
    Zero(u64, i32),
    /// A step with an ordinary input of the wrong shape.
    Wide(u64, u32),
    /// Starts a step that runs until [`Act::Finish`].
    Begin(u64, u32, i32),
    Finish,
    /// The cleaner scans this many times.
    Scans(u32),
    Grpc(PredictRequest),
    /// A path and a body.
    Rest(&'static str, String),
}

pub(super) enum Want {
    Sum(i32),
    Refused(Refused),
    Body(u16, Value),
    Nothing,
}

/// A row of the error table: OVMS's sentence. Sequor's additions follow in brackets.
#[derive(Clone, Copy)]
pub(super) struct Refused {
    pub(super) code: Code,
    pub(super) http: u16,
    pub(super) text: &'static str,
}

const fn error(code: Code, http: u16, text: &'static str) -> Refused {
    Refused { code, http, text }
}

const fn invalid(text: &'static str) -> Refused {
    error(Code::InvalidArgument, 400, text)
}

// === 15: the table of errors ===

const MISSING: Refused = error(Code::NotFound, 404, "Sequence with provided ID does not exist");
const EXISTS: Refused = error(Code::AlreadyExists, 409, "Sequence with provided ID already exists");
const TERMINATED: Refused =
    error(Code::FailedPrecondition, 412, "Sequence last request is being processed and it's not available anymore");
const MOST: Refused =
    error(Code::Unavailable, 503, "Max sequence number has been reached. Could not create new sequence.");
const NO_ID: Refused = invalid("Sequence ID has not been provided in request inputs");
const CONTROL: Refused = invalid("Unexpected value of sequence control input");
const ID_TYPE: Refused = invalid("Could not find sequence id in expected tensor proto field uint64_val");
const CONTROL_TYPE: Refused =
    invalid("Could not find sequence control input in expected tensor proto field uint32_val");
const NO_SHAPE: Refused = invalid("Special input proto does not contain tensor shape information");
const ID_RANK: Refused = invalid("Invalid number of shape dimensions - Required shape for sequence_id is: (1)");
const CONTROL_RANK: Refused =
    invalid("Invalid number of shape dimensions - Required shape for sequence_control_input is: (1)");
const ID_SIZE: Refused = invalid("Invalid input shape - Required shape for sequence_id is: (1)");
const CONTROL_SIZE: Refused = invalid("Invalid input shape - Required shape for sequence_control_input is: (1)");
const INTERNAL: Refused = error(Code::Internal, 500, "Internal inference error");
const WIDE: Refused = invalid("Invalid input shape - Expected: (-1,1); Actual: (1,2); input name: INPUT");

const fn no(refused: Refused) -> Want {
    Want::Refused(refused)
}

fn story<const N: usize>(section: &'static str, model: &'static str, acts: [(Act, Want); N]) -> Row {
    Row { section, model, acts: acts.into() }
}

pub(super) fn rows() -> Vec<Row> {
    [special_inputs(), order(), manager(), cleaner(), errors(), column(), row_format(), bodies(), urls()]
        .into_iter()
        .flatten()
        .collect()
}

// === 12 ===

/// A request with these special inputs.
fn form(section: &'static str, id: Option<TensorProto>, control: Option<TensorProto>, want: Want) -> Row {
    let special = [("sequence_id", id), ("sequence_control_input", control)];
    let mut inputs = vec![("INPUT", number(1))];
    inputs.extend(special.into_iter().filter_map(|(name, tensor)| Some((name, tensor?))));
    Row { section, model: "made", acts: vec![(Act::Grpc(request("made", &inputs)), want)] }
}

fn dims(tensor: TensorProto, dims: &[i64]) -> TensorProto {
    TensorProto { tensor_shape: shape(dims), ..tensor }
}

fn special_inputs() -> Vec<Row> {
    let content = || TensorProto {
        tensor_content: vec![7, 0, 0, 0, 0, 0, 0, 0].into(),
        tensor_shape: shape(&[1]),
        dtype: DataType::DtUint64.into(),
        ..TensorProto::default()
    };
    let strange = |tensor: TensorProto| TensorProto { dtype: DataType::DtFloat.into(), ..tensor };
    let unshaped = |tensor: TensorProto| TensorProto { tensor_shape: None, ..tensor };
    vec![
        form("12 id, no shape", Some(unshaped(id(7))), Some(control(START)), no(NO_SHAPE)),
        form("12 id, no dimensions", Some(dims(id(7), &[])), Some(control(START)), no(NO_SHAPE)),
        form("12 id, rank 2", Some(dims(id(7), &[1, 1])), Some(control(START)), no(ID_RANK)),
        form("12 id, size 2", Some(dims(id(7), &[2])), Some(control(START)), no(ID_SIZE)),
        form("12 id, size 0", Some(dims(id(7), &[0])), Some(control(START)), no(ID_SIZE)),
        form("12 id, size -1", Some(dims(id(7), &[-1])), Some(control(START)), no(ID_SIZE)),
        form("12 id in uint32_val", Some(control(7)), Some(control(START)), no(ID_TYPE)),
        form("12 id in tensor_content", Some(content()), Some(control(START)), no(ID_TYPE)),
        form(
            "12 id, two values",
            Some(TensorProto { uint64_val: vec![7, 8], ..id(7) }),
            Some(control(START)),
            no(ID_TYPE),
        ),
        form("12 id, no value", Some(TensorProto { uint64_val: vec![], ..id(7) }), Some(control(START)), no(ID_TYPE)),
        form("12 control, no shape", Some(id(7)), Some(unshaped(control(START))), no(NO_SHAPE)),
        form("12 control, rank 2", Some(id(7)), Some(dims(control(START), &[1, 1])), no(CONTROL_RANK)),
        form("12 control, size 3", Some(id(7)), Some(dims(control(START), &[3])), no(CONTROL_SIZE)),
        form("12 control in uint64_val", Some(id(7)), Some(id(1)), no(CONTROL_TYPE)),
        form("12 control in tensor_content", Some(id(7)), Some(content()), no(CONTROL_TYPE)),
        form("12 control 3", Some(id(7)), Some(control(3)), no(CONTROL)),
        form("12 control, the largest", Some(id(7)), Some(control(u32::MAX)), no(CONTROL)),
        form("12 no id, no control", None, None, no(NO_ID)),
        form("12 id 0, no control", Some(id(0)), None, no(NO_ID)),
        form("12 no id, control 0", None, Some(control(NONE)), no(NO_ID)),
        form("12 no id, END", None, Some(control(END)), no(NO_ID)),
        form("12 types are not looked at", Some(strange(id(71))), Some(strange(control(START))), Want::Sum(1)),
        form("12 the largest id", Some(id(u64::MAX)), Some(control(START)), Want::Sum(1)),
        story(
            "12 control 0 is no control",
            "made",
            [(Act::Step(1, START, 1), Want::Sum(1)), (Act::Zero(1, 1), Want::Sum(2))],
        ),
    ]
}

/// The order of the checks. Each request has two errors.
fn order() -> Vec<Row> {
    let both = |section, id, flag, want| form(section, Some(id), Some(flag), want);
    let wrong = TensorProto { dtype: DataType::DtFloat.into(), ..number(1) };
    let special_first = [("INPUT", wrong), ("sequence_id", id(7)), ("sequence_control_input", control(3))];
    vec![
        both("12 the id comes before the control", dims(id(7), &[2]), dims(control(1), &[1, 1]), no(ID_SIZE)),
        both("12 the form of the id comes before the value of the control", control(7), control(3), no(ID_TYPE)),
        both("12 the value of the control comes before the missing id", id(0), control(3), no(CONTROL)),
        story(
            "12 special inputs come before ordinary ones",
            "made",
            [(Act::Grpc(request("made", &special_first)), no(CONTROL))],
        ),
        story("12 no input at all", "made", [(Act::Grpc(request("made", &[])), no(NO_ID))]),
        story(
            "12 ordinary inputs come before the sequence, which is not created",
            "made",
            [(Act::Wide(1, NONE), no(WIDE)), (Act::Wide(1, START), no(WIDE)), (Act::Step(1, NONE, 1), no(MISSING))],
        ),
        story(
            "12 ordinary inputs come before the sequence, which does not end",
            "made",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Wide(1, END), no(WIDE)),
                (Act::Step(1, NONE, 1), Want::Sum(2)),
            ],
        ),
        story(
            "12 ordinary inputs come before the maximum",
            "one",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Wide(2, START), no(WIDE)),
                (Act::Step(1, END, 1), Want::Sum(2)),
            ],
        ),
    ]
}

// === 13 ===

fn manager() -> Vec<Row> {
    vec![
        story(
            "13 START, steps, END, and the id again",
            "made",
            [
                (Act::Step(1, START, 40), Want::Sum(40)),
                (Act::Step(1, NONE, 2), Want::Sum(42)),
                (Act::Step(1, END, 1), Want::Sum(43)),
                (Act::Step(1, NONE, 1), no(MISSING)),
                (Act::Step(1, END, 1), no(MISSING)),
                (Act::Step(1, START, 5), Want::Sum(5)),
            ],
        ),
        story(
            "13 START without an id: the server makes one",
            "made",
            [
                (Act::Step(0, START, 40), Want::Sum(40)),
                (Act::Made(NONE, 2), Want::Sum(42)),
                (Act::Made(END, 1), Want::Sum(43)),
                (Act::Made(NONE, 1), no(MISSING)),
                // A freed id is not assigned again.
                (Act::Step(0, START, 1), Want::Sum(1)),
            ],
        ),
        story(
            "13 START of a live id",
            "made",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Step(1, START, 1), no(EXISTS)),
                (Act::Step(1, NONE, 1), Want::Sum(2)),
            ],
        ),
        story(
            "13 the maximum comes before the id",
            "one",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Step(1, START, 1), no(MOST)),
                (Act::Step(2, START, 1), no(MOST)),
                (Act::Step(0, START, 1), no(MOST)),
                (Act::Step(2, NONE, 1), no(MISSING)),
                (Act::Step(1, END, 1), Want::Sum(2)),
                (Act::Step(2, START, 1), Want::Sum(1)),
                (Act::Step(2, END, 1), Want::Sum(2)),
            ],
        ),
        story(
            "13 a sequence whose END runs is terminated, and its id is free after that",
            "slow",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Begin(1, END, 1), Want::Nothing),
                (Act::Step(1, START, 5), no(TERMINATED)),
                (Act::Step(1, NONE, 1), no(MISSING)),
                (Act::Step(1, END, 1), no(MISSING)),
                (Act::Finish, Want::Sum(2)),
                (Act::Step(1, START, 5), Want::Sum(5)),
            ],
        ),
        story(
            "13 a step that fails leaves the state as it was",
            "made",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Step(1, NONE, POISON), no(INTERNAL)),
                (Act::Step(1, NONE, 1), Want::Sum(2)),
            ],
        ),
        story(
            "13 a START that fails leaves nothing",
            "one",
            [
                (Act::Step(1, START, POISON), no(INTERNAL)),
                (Act::Step(1, NONE, 1), no(MISSING)),
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Step(1, END, 1), Want::Sum(2)),
            ],
        ),
        story(
            "13 an END that fails ends, and does not count against the maximum",
            "one",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Step(1, END, POISON), no(INTERNAL)),
                (Act::Step(1, NONE, 1), no(MISSING)),
                (Act::Step(2, START, 1), Want::Sum(1)),
                (Act::Step(2, END, 1), Want::Sum(2)),
            ],
        ),
    ]
}

// === 14 ===

fn cleaner() -> Vec<Row> {
    vec![
        story(
            "14 the first scan keeps a sequence",
            "swept",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Scans(1), Want::Nothing),
                (Act::Step(1, NONE, 1), Want::Sum(2)),
            ],
        ),
        story(
            "14 the second scan ends it, and its id is free",
            "swept",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Scans(2), Want::Nothing),
                (Act::Step(1, NONE, 1), no(MISSING)),
                (Act::Step(1, START, 5), Want::Sum(5)),
            ],
        ),
        story(
            "14 a step between two scans keeps it",
            "swept",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Scans(1), Want::Nothing),
                (Act::Step(1, NONE, 1), Want::Sum(2)),
                (Act::Scans(1), Want::Nothing),
                (Act::Step(1, NONE, 1), Want::Sum(3)),
            ],
        ),
        story(
            "14 a request that is not valid does not keep it",
            "swept",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Scans(1), Want::Nothing),
                (Act::Wide(1, NONE), no(WIDE)),
                (Act::Step(1, START, 1), no(EXISTS)),
                (Act::Scans(1), Want::Nothing),
                (Act::Step(1, NONE, 1), no(MISSING)),
            ],
        ),
        story(
            "14 without idle_sequence_cleanup no scan ends it",
            "made",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Scans(20), Want::Nothing),
                (Act::Step(1, NONE, 1), Want::Sum(2)),
            ],
        ),
    ]
}

// === 15 ===

/// Each error once, over both protocols if both have it. Errors of gRPC-only forms are among the special inputs.
fn errors() -> Vec<Row> {
    vec![
        story("15 SEQUENCE_MISSING", "made", [(Act::Step(1, NONE, 1), no(MISSING))]),
        story(
            "15 SEQUENCE_ALREADY_EXISTS",
            "made",
            [(Act::Step(1, START, 1), Want::Sum(1)), (Act::Step(1, START, 1), no(EXISTS))],
        ),
        story(
            "15 SEQUENCE_TERMINATED",
            "slow",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Begin(1, END, 1), Want::Nothing),
                (Act::Step(1, START, 1), no(TERMINATED)),
                (Act::Finish, Want::Sum(2)),
            ],
        ),
        story(
            "15 MAX_SEQUENCE_NUMBER_REACHED",
            "one",
            [
                (Act::Step(1, START, 1), Want::Sum(1)),
                (Act::Step(2, START, 1), no(MOST)),
                (Act::Step(1, END, 1), Want::Sum(2)),
            ],
        ),
        story("15 SEQUENCE_ID_NOT_PROVIDED", "made", [(Act::Step(0, NONE, 1), no(NO_ID))]),
        story("15 INVALID_SEQUENCE_CONTROL_INPUT", "made", [(Act::Step(1, 3, 1), no(CONTROL))]),
        story("15 an error of the run", "made", [(Act::Step(1, START, POISON), no(INTERNAL))]),
        form("15 SEQUENCE_ID_BAD_TYPE", Some(control(7)), None, no(ID_TYPE)),
        form("15 SEQUENCE_CONTROL_INPUT_BAD_TYPE", Some(id(7)), Some(id(1)), no(CONTROL_TYPE)),
        form("15 SPECIAL_INPUT_NO_TENSOR_SHAPE", Some(dims(id(7), &[])), None, no(NO_SHAPE)),
        form("15 INVALID_NO_OF_SHAPE_DIMENSIONS", Some(dims(id(7), &[1, 1])), None, no(ID_RANK)),
        form("15 INVALID_SHAPE", Some(dims(id(7), &[2])), None, no(ID_SIZE)),
    ]
}

// === 16 ===

fn rest(section: &'static str, model: &str, body: impl Into<String>, status: u16, want: Value) -> Row {
    let path = match model {
        "made" => "/v1/models/made:predict",
        _ => "/v1/models/same:predict",
    };
    Row { section, model: "made", acts: vec![(Act::Rest(path, body.into()), Want::Body(status, want))] }
}

fn says(text: &str) -> Value {
    json!({ "error": text })
}

const NO_INPUT: &str = "Could not parse input content. Not valid ndarray detected";
const NO_INSTANCE: &str = "Could not parse instance content. Not valid ndarray detected";

fn column() -> Vec<Row> {
    let of = |id: Value, control: Value| {
        json!({ "inputs": { "INPUT": [[1]], "sequence_id": id, "sequence_control_input": control } }).to_string()
    };
    let wrong = |section, id, control, text: &str| rest(section, "made", of(id, control), 400, says(text));
    let started = |n: u64| json!({ "outputs": { "OUTPUT": [[1]], "sequence_id": [n] } });
    let signed = json!({
        "signature_name": "serving_default",
        "inputs": { "INPUT": [[1]], "sequence_id": [162], "sequence_control_input": [1] },
    });
    vec![
        rest("16 column", "made", of(json!([161]), json!([1])), 200, started(161)),
        rest("16 column with signature_name", "made", signed.to_string(), 200, started(162)),
        rest("16 column: an id of 64 bits", "made", of(json!([u64::MAX - 1]), json!([1])), 200, started(u64::MAX - 1)),
        wrong("16 column: a nested id", json!([[7]]), json!([0]), NO_INPUT),
        wrong("16 column: an id below 0", json!([-7]), json!([0]), NO_INPUT),
        wrong("16 column: an id that is no integer", json!([7.5]), json!([0]), NO_INPUT),
        wrong("16 column: an id as a text", json!(["7"]), json!([0]), NO_INPUT),
        wrong("16 column: an id without brackets", json!(7), json!([0]), NO_INPUT),
        wrong("16 column: no id in the brackets", json!([]), json!([0]), NO_INPUT),
        wrong("16 column: two ids", json!([1, 2]), json!([0]), ID_SIZE.text),
        wrong("16 column: a nested control", json!([7]), json!([[0]]), NO_INPUT),
        wrong("16 column: a control below 0", json!([7]), json!([-1]), NO_INPUT),
        wrong("16 column: a control beyond 32 bits", json!([7]), json!([4_294_967_296u64]), NO_INPUT),
        wrong("16 column: two controls", json!([7]), json!([0, 1]), CONTROL_SIZE.text),
        wrong("16 column: control 3", json!([7]), json!([3]), CONTROL.text),
        wrong("16 column: no id", json!([0]), json!([0]), NO_ID.text),
        rest("16 column unnamed cannot name a sequence", "made", r#"{"inputs": [[1]]}"#, 400, says(NO_ID.text)),
        rest("16 column unnamed", "same", r#"{"inputs": [[1, 2]]}"#, 200, json!({ "outputs": [[1, 2]] })),
        rest("16 column of one output", "same", r#"{"inputs": {"INPUT": [[1]]}}"#, 200, json!({ "outputs": [[1]] })),
        rest(
            "16 an error of the run has its text and nothing else",
            "made",
            r#"{"inputs": {"INPUT": [[-13]], "sequence_id": [163], "sequence_control_input": [1]}}"#,
            500,
            says("Internal inference error (mock error: element 0 of INPUT is -13)"),
        ),
    ]
}

fn row_format() -> Vec<Row> {
    let of = |id: Value, control: Value| {
        json!({ "instances": [{ "INPUT": [1], "sequence_id": id, "sequence_control_input": control }] }).to_string()
    };
    let wrong = |section, id, control, text: &str| rest(section, "made", of(id, control), 400, says(text));
    let started = |n: u64| json!({ "predictions": [{ "OUTPUT": [1], "sequence_id": n }] });
    let second = json!({ "instances": [{ "INPUT": [1], "sequence_id": [7] }, { "INPUT": [1], "sequence_id": [7] }] });
    vec![
        rest("16 row: lists of one", "made", of(json!([171]), json!([1])), 200, started(171)),
        rest("16 row: numbers", "made", of(json!(172), json!(1)), 200, started(172)),
        wrong("16 row: two ids", json!([1, 2]), json!([0]), ID_RANK.text),
        wrong("16 row: a nested id", json!([[7]]), json!([0]), NO_INSTANCE),
        wrong("16 row: an id below 0", json!(-7), json!([0]), NO_INSTANCE),
        wrong("16 row: no id in the brackets", json!([]), json!([0]), NO_INSTANCE),
        rest("16 row: the second instance names a sequence", "made", second.to_string(), 400, says(ID_RANK.text)),
        rest(
            "16 row of one output",
            "same",
            r#"{"instances": [{"INPUT": [1]}, {"INPUT": [2]}]}"#,
            200,
            json!({ "predictions": [[1], [2]] }),
        ),
        rest(
            "16 row unnamed",
            "same",
            r#"{"instances": [[1, 2], [3, 4]]}"#,
            200,
            json!({ "predictions": [[1, 2], [3, 4]] }),
        ),
    ]
}

fn bodies() -> Vec<Row> {
    let layout = "Invalid JSON structure. Could not detect row or column format";
    let row = |section, body: &str, text: &str| rest(section, "same", body, 400, says(text));
    vec![
        row("16 neither inputs nor instances", "{}", layout),
        row("16 both inputs and instances", r#"{"inputs": [[1]], "instances": [[1]]}"#, layout),
        row("16 inputs is a number", r#"{"inputs": 7}"#, "Invalid JSON structure. One of inputs is not a JSON object."),
        row("16 inputs is empty", r#"{"inputs": {}}"#, "Invalid JSON structure, missing inputs"),
        row(
            "16 instances is a number",
            r#"{"instances": 7}"#,
            "Invalid JSON structure. Nonamed instance is not an array.",
        ),
        row("16 instances is empty", r#"{"instances": []}"#, "Invalid JSON structure. Missing instances in row format"),
        row(
            "16 an instance that is neither named nor not",
            r#"{"instances": [true]}"#,
            "Could not detect neither named or nonamed format",
        ),
        row(
            "16 a named instance is no object",
            r#"{"instances": [{"INPUT": [1]}, [1]]}"#,
            "Invalid JSON structure. One of named instances is not a JSON object.",
        ),
        row(
            "16 an instance lacks an input",
            r#"{"instances": [{"INPUT": [1], "OTHER": [1]}, {"INPUT": [1]}]}"#,
            "Invalid JSON structure. Request inputs have different batch sizes",
        ),
    ]
}

fn urls() -> Vec<Row> {
    let body = r#"{"inputs": [[1]]}"#;
    let row = |section, path, status, text: &str| Row {
        section,
        model: "same",
        acts: vec![(Act::Rest(path, body.to_owned()), Want::Body(status, says(text)))],
    };
    let fine = Want::Body(200, json!({ "outputs": [[1]] }));
    let version = (Act::Rest("/v1/models/same/versions/1:predict", body.to_owned()), fine);
    vec![
        story("16 a version", "same", [version]),
        row("16 an unknown model", "/v1/models/nope:predict", 404, "Model with requested name is not found"),
        row(
            "16 an unknown version",
            "/v1/models/same/versions/7:predict",
            404,
            "Model with requested version is not found",
        ),
        row(
            "16 a version that is too large",
            "/v1/models/same/versions/9223372036854775808:predict",
            400,
            "Could not parse model version in request",
        ),
        row("16 a version that is no number", "/v1/models/same/versions/x:predict", 400, "Invalid request URL"),
        row("16 a path that is none", "/v1/other", 400, "Invalid request URL"),
        row("16 another verb", "/v1/models/same/metadata", 406, "Unsupported method"),
    ]
}
