//! Tests the OpenAPI document: it lists every served path, and every JSON answer of the admin listener matches its schema.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rig::{Rig, RigOptions};
use crate::rig::{SUM, write};

/// Panics unless the answer matches the document.
pub(super) fn assert_described(document: &Value, verb: &str, path: &str, status: u16, body: &Value) {
    let path = path.split('?').next().unwrap();
    let Some(operation) = find(document, path).map(|described| &described[verb.to_lowercase()]) else { return };
    let what = format!("{verb} {path}: {status} {body}");
    if operation.is_null() {
        assert_eq!(status, 405, "{what}: not in /openapi.json");
        return;
    }
    let responses = &operation["responses"];
    if status >= 400 {
        return conform(document, &json!({ "$ref": "#/components/schemas/Refusal" }), body, &what);
    }
    let response = responses.get(status.to_string()).unwrap_or_else(|| panic!("{what}: this status is not described"));
    if let Some(schema) = response["content"]["application/json"].get("schema") {
        conform(document, schema, body, &what);
    }
}

/// The path template of the document that matches this path.
fn find<'d>(document: &'d Value, path: &str) -> Option<&'d Value> {
    let fits = |template: &str| {
        let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
        template.len() == path.len() && template.iter().zip(&path).all(|(of, part)| of.starts_with('{') || of == part)
    };
    document["paths"].as_object().unwrap().iter().find(|(template, _)| fits(template)).map(|(_, described)| described)
}

/// Checks a value against the parts of JSON Schema that the document uses. An object may have only fields that the schema names.
fn conform(document: &Value, schema: &Value, value: &Value, what: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        return conform(document, document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name}")), value, what);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        assert_eq!((either.len(), &either[1]["type"]), (2, &json!("null")));
        if !value.is_null() {
            conform(document, &either[0], value, what);
        }
        return;
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{what}: {value} is none of {values:?}");
    }
    let has = |kind: &str| match kind {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    assert!(kinds.is_empty() || kinds.iter().any(|kind| has(kind)), "{what}: {value} is not {kinds:?}");
    for item in value.as_array().into_iter().flatten().filter(|_| schema.get("items").is_some()) {
        conform(document, &schema["items"], item, what);
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{what}: there is no {name}");
    }
    for (name, value) in value.as_object().unwrap() {
        let schema = properties.get(name);
        conform(document, schema.unwrap_or_else(|| panic!("{what}: schemas.json has no \"{name}\"")), value, what);
    }
}

#[tokio::test]
async fn every_path_is_in_the_document() {
    let rig = Rig::new(RigOptions::default());
    let (status, document) = rig.ask("GET /openapi.json", b"").await;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    let mut operations = Vec::new();
    for (path, described) in document["paths"].as_object().unwrap() {
        for (verb, operation) in described.as_object().unwrap() {
            operations.push(format!("{} {path} {}", verb.to_uppercase(), operation["operationId"].as_str().unwrap()));
        }
    }
    insta::assert_snapshot!(operations.join("\n"));
    let ids: BTreeSet<&str> = operations.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(ids.len(), operations.len(), "two operations have one name");
    // Every reference in the document exists.
    let text = document.to_string();
    for name in text.split("\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(name).is_some(), "there is no {name}");
    }
}

#[tokio::test]
async fn sequences_and_models_match_the_openapi_document() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sum", SUM, 1, "accumulate INT32");
    let rig = Rig::new(RigOptions { models: Some(folder.path()), ..RigOptions::default() });
    for (id, end) in [(json!(7), false), (json!("call-77"), false), (json!(8), true)] {
        let input = json!({ "name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [1] });
        let parameters = json!({ "sequence_id": id, "sequence_start": true, "sequence_end": end });
        let body = json!({ "inputs": [input], "parameters": parameters }).to_string();
        assert_eq!(rig.infer("sum", &body).await.0, 200);
    }
    let (_, models) = rig.ask("GET /admin/models", b"").await;
    assert_eq!(
        (&models[0]["model"], &models[0]["live"], &models[0]["requests"]),
        (&json!("sum"), &json!(2), &json!(3))
    );
    let (_, sequences) = rig.ask("GET /admin/models/sum/sequences?sort=idle", b"").await;
    assert_eq!((&sequences["all"], &sequences["in_slots"]), (&json!(2), &json!(2)));
    let (_, ended) = rig.ask("GET /admin/models/sum/sequences?ended=true", b"").await;
    assert_eq!((&ended["all"], &ended["sequences"][0]["id"]), (&json!(1), &json!(8)));
    assert_eq!(rig.ask("GET /admin/models/sum/sequences/7", b"").await.1["live"]["queued"], 0);
    assert_eq!(rig.ask("GET /admin/models/sum/sequences/8", b"").await.1["state"], "ended");
    let wrong = json!({ "inputs": [], "parameters": { "sequence_id": "call-77" } }).to_string();
    assert_eq!(rig.infer("sum", &wrong).await.0, 400);
    for (id, place) in [("7", "live"), ("8", "ended"), ("call-77", "live"), ("9", "unknown")] {
        let (status, why) = rig.ask(&format!("GET /admin/models/sum/sequences/{id}/why"), b"").await;
        assert_eq!((status, why["place"].as_str()), (200, Some(place)), "{why}");
        assert_eq!(why["steps"].as_array().unwrap().len(), usize::from(place != "unknown"), "{why}");
        let refused = why["refused"][0]["reason"].as_str();
        assert_eq!(
            (refused, why["remedy"]["page"].is_null()),
            match id {
                "call-77" => (Some("bad_input"), false),
                "9" => (None, false),
                _ => (None, true),
            }
        );
    }
    let (_, status) = rig.ask("GET /admin/status.json", b"").await;
    assert_eq!(
        (&status["server"]["live_sequences"], &status["refused"]),
        (&json!(2), &json!({ "sum": { "bad_input": 1 } }))
    );
    let sum = &status["models"][0];
    assert_eq!((&sum["ended"], &sum["queued"]), (&json!({ "ended": 1 }), &json!(0)));
    assert!(sum["phase_seconds"]["total"].as_f64().unwrap() > 0.0, "{sum}");
    let (_, page) = rig.ask("GET /", b"").await;
    let page = page.as_str().unwrap();
    assert!(page.contains("<td>sum</td><td>bad_input</td><td class=\"n\">1</td><td>correct the request"), "{page}");
    assert_eq!(rig.ask("DELETE /admin/models/sum/sequences/7?reason=stuck", b"").await, (200, json!({})));
}
