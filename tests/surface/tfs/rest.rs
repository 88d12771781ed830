//! Tests TensorFlow Serving's protocol over HTTP: both layouts of a body, errors, status, metadata and the reload of the repository.

use sequor::api::ServerLimits;
use sequor::config::server::file::ControlMode;
use sequor::config::units::Size;
use sequor::model::RepositoryControl;
use serde_json::{Value, json};

use super::calls::server;
use crate::rig::{Rig, SUM, write};

async fn predict(rig: &Rig, model: &str, body: &Value) -> (u16, Value) {
    let answer = rig.post(&format!("/v1/models/{model}:predict"), body.clone()).await;
    (answer.status, answer.json())
}

fn error(text: &str) -> Value {
    json!({ "error": text })
}

#[tokio::test]
async fn a_sequence_in_column_format() {
    let rig = server();
    let body = |value: i32, more: Value| {
        let mut inputs = json!({ "INPUT": [[value]] });
        inputs.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "signature_name": "serving_default", "inputs": inputs })
    };
    let start = body(40, json!({ "sequence_control_input": [1], "sequence_id": [10] }));
    assert_eq!(
        predict(&rig, "made", &start).await,
        (200, json!({ "outputs": { "OUTPUT": [[40]], "sequence_id": [10] } }))
    );
    let next = body(2, json!({ "sequence_id": [10] }));
    assert_eq!(predict(&rig, "made/versions/1", &next).await.1["outputs"]["OUTPUT"], json!([[42]]));
    let end = body(1, json!({ "sequence_control_input": [2], "sequence_id": [10] }));
    assert_eq!(predict(&rig, "made", &end).await.1["outputs"]["OUTPUT"], json!([[43]]));
    let made = predict(&rig, "made", &body(5, json!({ "sequence_control_input": [1] }))).await.1;
    let id = made["outputs"]["sequence_id"][0].as_u64().expect("an id");
    let next = body(2, json!({ "sequence_id": [id] }));
    assert_eq!(predict(&rig, "made", &next).await.1["outputs"]["OUTPUT"], json!([[7]]));
}

#[tokio::test]
async fn a_sequence_in_row_format() {
    let rig = server();
    let row = |value: i32, control: Value, id: Value| json!({ "instances": [{ "INPUT": [value], "sequence_control_input": control, "sequence_id": id }] });
    let started = predict(&rig, "made", &row(40, json!([1]), json!([10]))).await;
    assert_eq!(started, (200, json!({ "predictions": [{ "OUTPUT": [40], "sequence_id": 10 }] })));
    let next = predict(&rig, "made", &row(2, json!(0), json!(10))).await;
    assert_eq!(next, (200, json!({ "predictions": [{ "OUTPUT": [42], "sequence_id": 10 }] })));
    // Only the first instance may have the sequence's id, and a sequence takes one row at a time.
    let two = json!({ "instances": [{ "INPUT": [1], "sequence_id": [10] }, { "INPUT": [1], "sequence_id": [10] }] });
    let text = "Invalid number of shape dimensions - Required shape for sequence_id is: (1)";
    assert_eq!(predict(&rig, "made", &two).await, (400, error(text)));
    let two = json!({ "instances": [{ "INPUT": [1], "sequence_id": [10] }, { "INPUT": [1] }] });
    let refused = predict(&rig, "made", &two).await;
    assert!(
        refused.0 == 400 && refused.1["error"].as_str().unwrap().starts_with("Invalid input batch size"),
        "{refused:?}"
    );
}

/// The error table of stateful models over HTTP.
#[tokio::test]
async fn errors_of_sequences_have_the_status_and_the_words_of_ovms() {
    let rig = server();
    let of = |id: Value, control: Value| json!({ "inputs": { "INPUT": [[1]], "sequence_id": id, "sequence_control_input": control } });
    let parse = "Could not parse input content. Not valid ndarray detected";
    let size = |input| format!("Invalid input shape - Required shape for {input} is: (1)");
    let no_id = "Sequence ID has not been provided in request inputs";
    let rows = [
        (of(json!([7]), json!([0])), 404, "Sequence with provided ID does not exist".to_owned()),
        (of(json!([7]), json!([2])), 404, "Sequence with provided ID does not exist".to_owned()),
        (of(json!([7]), json!([1])), 200, String::new()),
        (of(json!([7]), json!([1])), 409, "Sequence with provided ID already exists".to_owned()),
        (of(json!([8]), json!([1])), 200, String::new()),
        (of(json!([9]), json!([1])), 200, String::new()),
        (
            of(json!([7]), json!([1])),
            503,
            "Max sequence number has been reached. Could not create new sequence.".to_owned(),
        ),
        (
            json!({ "inputs": { "INPUT": [[-13]], "sequence_id": [8], "sequence_control_input": [0] } }),
            500,
            "Internal inference error".to_owned(),
        ),
        (of(json!([7]), json!([3])), 400, "Unexpected value of sequence control input".to_owned()),
        (of(json!([0]), json!([0])), 400, no_id.to_owned()),
        (json!({ "inputs": { "INPUT": [[1]] } }), 400, no_id.to_owned()),
        // A tensor without a name has no sequence id.
        (json!({ "inputs": [[1]] }), 400, no_id.to_owned()),
        (of(json!([1, 2]), json!([0])), 400, size("sequence_id")),
        (of(json!([7]), json!([0, 1])), 400, size("sequence_control_input")),
        (of(json!([[7]]), json!([0])), 400, parse.to_owned()),
        (of(json!([-7]), json!([0])), 400, parse.to_owned()),
        (of(json!([7.5]), json!([0])), 400, parse.to_owned()),
        (of(json!(["7"]), json!([0])), 400, parse.to_owned()),
        (of(json!([]), json!([0])), 400, parse.to_owned()),
        (of(json!(7), json!([0])), 400, parse.to_owned()),
        (of(json!([7]), json!([[0]])), 400, parse.to_owned()),
        (of(json!([7]), json!([-1])), 400, parse.to_owned()),
        (of(json!([7]), json!([4_294_967_296u64])), 400, parse.to_owned()),
    ];
    for (body, status, text) in rows {
        let answer = predict(&rig, "made", &body).await;
        match status {
            200 => assert_eq!(answer.0, 200, "{body}: {answer:?}"),
            // The runtime's own text follows.
            500 => assert!(answer.0 == 500 && answer.1["error"].as_str().unwrap().starts_with(&text), "{answer:?}"),
            _ => assert_eq!(answer, (status, error(&text)), "{body}"),
        }
    }
}

#[tokio::test]
async fn predict_accepts_row_and_column_bodies() {
    let rig = server();
    let rows = [
        (json!({ "instances": [[1, 2], [3, 4]] }), json!({ "predictions": [[1, 2], [3, 4]] })),
        (json!({ "instances": [{ "INPUT": [1] }, { "INPUT": [2] }] }), json!({ "predictions": [[1], [2]] })),
        (json!({ "inputs": [[1, 2], [3, 4]] }), json!({ "outputs": [[1, 2], [3, 4]] })),
        (json!({ "inputs": { "INPUT": [[1, 2]] } }), json!({ "outputs": [[1, 2]] })),
    ];
    for (body, want) in rows {
        assert_eq!(predict(&rig, "same", &body).await, (200, want), "{body}");
    }
}

#[tokio::test]
async fn predict_refuses_invalid_bodies_in_ovms_words() {
    let rig = server();
    let layout = "Invalid JSON structure. Could not detect row or column format";
    let parse = "Could not parse input content. Not valid ndarray detected";
    let instance = "Could not parse instance content. Not valid ndarray detected";
    let rows = [
        ("{\"inputs\": [[1]", 412, "The file is not valid json"),
        ("[1]", 400, "Request body should be JSON object (expected an object)"),
        (r#"[null, {"INPUT": [[1]]}]"#, 400, "Request body should be JSON object (expected an object)"),
        ("{}", 400, layout),
        (r#"{"inputs": [[1]], "instances": [[1]]}"#, 400, layout),
        (r#"{"instances": 7}"#, 400, "Invalid JSON structure. Nonamed instance is not an array."),
        (r#"{"instances": []}"#, 400, "Invalid JSON structure. Missing instances in row format"),
        (
            r#"{"instances": [{"INPUT": [1]}, [1]]}"#,
            400,
            "Invalid JSON structure. One of named instances is not a JSON object.",
        ),
        (r#"{"instances": [{"INPUT": [1]}, {}]}"#, 400, instance),
        (r#"{"instances": [[1], {"INPUT": [1]}]}"#, 400, instance),
        (r#"{"instances": [[1], [1, 2]]}"#, 400, instance),
        (r#"{"instances": [{"b64": "AA=="}]}"#, 400, instance),
        (r#"{"inputs": [[1], [1, 2]]}"#, 400, parse),
        (r#"{"inputs": [["a"]]}"#, 400, parse),
        (r#"{"inputs": [[1.5]]}"#, 400, parse),
        (r#"{"inputs": {"INPUT": [[1]], "OTHER": [1]}}"#, 400, "Invalid number of inputs - Expected: 1; Actual: 2"),
        (
            r#"{"inputs": [1]}"#,
            400,
            "Invalid number of shape dimensions - Expected: (-1,-1); Actual: (1); input name: INPUT",
        ),
    ];
    for (body, status, text) in rows {
        let answer = rig.http("POST /v1/models/same:predict", &[], body.as_bytes()).await;
        let message = answer.json()["error"].as_str().unwrap().to_owned();
        assert_eq!((answer.status, message.starts_with(text)), (status, true), "{body}: {message}");
        assert_eq!(answer.json().as_object().unwrap().len(), 1, "OVMS has nothing but the text");
        assert!(answer.head.contains("sequor-reason: bad_input\r\n"), "{}", answer.head);
    }
    let differ = r#"{"instances": [{"INPUT": [1]}, {"OTHER": [1]}]}"#;
    let answer = rig.http("POST /v1/models/same:predict", &[], differ.as_bytes()).await;
    assert_eq!(
        (answer.status, answer.json()),
        (400, error("Invalid JSON structure. Request inputs have different batch sizes"))
    );
}

#[tokio::test]
async fn a_large_body_is_refused_before_it_is_read() {
    let rig = Rig::with(ServerLimits { request: Size(1 << 20), ..ServerLimits::default() }, &[]);
    let elements = vec!["1"; 1 << 20].join(",");
    let body = format!("{{\"inputs\": [[{elements}]]}}");
    let answer = rig.http("POST /v1/models/same:predict", &[], body.as_bytes()).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn status_metadata_and_wrong_paths_are_answered_as_by_ovms() {
    let rig = server();
    let status = json!({ "version": "1", "state": "AVAILABLE", "status": { "error_code": "OK", "error_message": "" } });
    let all = json!({ "model_version_status": [status] });
    assert_eq!(rig.get("/v1/models/same").await, all);
    assert_eq!(rig.get("/v1/models/same/versions/1").await, all);
    assert_eq!(rig.get("/v1/config").await["same"], all);
    let metadata = rig.get("/v1/models/same/metadata").await;
    assert_eq!(metadata["modelSpec"], json!({ "name": "same", "signatureName": "serving_default", "version": "1" }));
    let field = &metadata["metadata"]["signature_def"];
    assert_eq!(field["@type"], "type.googleapis.com/tensorflow.serving.SignatureDefMap");
    let tensor = |name: &str| {
        let dim = json!([{ "size": "-1", "name": "" }, { "size": "-1", "name": "" }]);
        json!({ "dtype": "DT_INT32", "tensorShape": { "dim": dim, "unknownRank": false }, "name": name })
    };
    let signature = &field["signatureDef"]["serving_default"];
    assert_eq!((&signature["inputs"]["INPUT"], &signature["outputs"]["OUTPUT"]), (&tensor("INPUT"), &tensor("OUTPUT")));
    let rows = [
        ("GET /v1/models/nope", 404, "Model with requested name is not found"),
        ("GET /v1/models/same/versions/7", 404, "Model with requested version is not found"),
        ("GET /v1/models/same/versions/7/metadata", 404, "Model with requested version is not found"),
        ("GET /v1/models/nope/metadata", 404, "Model with requested name is not found"),
        ("POST /v1/models/nope:predict", 404, "Model with requested name is not found"),
        ("POST /v1/models/same/labels/new:predict", 404, "Model with requested version is not found"),
        ("POST /v1/models/same:classify", 501, ":classify and :regress are not served"),
        ("GET /v1/models/same:predict", 406, "Unsupported method"),
        ("POST /v1/models/same", 406, "Unsupported method"),
        ("PUT /v1/models/same", 406, "Unsupported method"),
        ("GET /v1/models/same/other", 400, "Invalid request URL"),
        ("GET /v1/models", 400, "Invalid request URL"),
        ("GET /v1/models/same/versions/99999999999999999999", 400, "Could not parse model version in request"),
    ];
    for (path, status, text) in rows {
        let answer = rig.http(path, &[], b"").await;
        let message = answer.json()["error"].as_str().unwrap().to_owned();
        assert_eq!((answer.status, message.starts_with(text)), (status, true), "{path}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_reports_whether_anything_has_changed() {
    let rig = server();
    let reload = async || rig.http("POST /v1/config/reload", &[], b"").await;
    let refused = reload().await;
    assert_eq!(refused.status, 503, "nothing says that clients may reload");
    assert!(
        refused.head.contains("sequor-reason: not_explicit")
            && !refused.json().to_string().contains("polling is enabled")
    );
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Poll, directories });
    reload().await;
    assert_eq!(reload().await.status, 200);
    write(rig.folder.path(), "new", SUM, 1, "accumulate INT32");
    let changed = reload().await;
    assert_eq!(
        (changed.status, &changed.json()["new"]["model_version_status"][0]["state"]),
        (201, &json!("AVAILABLE"))
    );
}
