//! Tests the admin listener over HTTP with JSON.

use std::fs;

use sequor::server::Drained;
use serde_json::json;

use super::rig::{Rig, RigOptions, exchange};

const V1: &[u8] = b"\0asm1";
const V2: &[u8] = b"\0asm22";

fn open() -> Rig {
    Rig::new(RigOptions { upload: true, ..RigOptions::default() })
}

/// The action and the target of the last recorded change.
async fn last_change(rig: &Rig) -> (String, String) {
    let change = rig.ask("GET /admin/status.json", b"").await.1["changes"][0].clone();
    let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
    (text("what"), text("on"))
}

#[tokio::test]
async fn http_requests_load_attach_replace_park_and_unload_a_plugin() {
    let rig = open();
    let (status, body) = rig.ask("POST /admin/plugins/fair", V1).await;
    assert_eq!((status, &body["version"], &body["attached"]), (200, &json!("0.1.0"), &json!([])));
    assert_eq!(rig.ask("POST /admin/plugins/fair", V1).await.0, 409);
    let how = json!({ "model": "vad", "shadow": true, "save": true, "config": { "burst": 4 }, "time": "1500us" });
    let (status, body) = rig.ask("POST /admin/plugins/fair/attach", how.to_string().as_bytes()).await;
    assert_eq!((status, &body["attached"][0]["state"]), (200, &json!("shadow")), "{body}");
    assert_eq!(body["attached"][0]["differs"], json!([41, 1000]));
    let asked = rig.fake.asked("fair").unwrap();
    assert_eq!((asked.config.as_str(), asked.time.unwrap().as_micros()), (r#"{"burst":4}"#, 1500));
    assert_eq!(rig.ask("GET /admin/plugins/fair", b"").await, (200, body.clone()));
    assert_eq!(rig.ask("GET /admin/plugins", b"").await, (200, json!([body])));

    assert_eq!(rig.ask("POST /admin/plugins/fair/replace", V2).await.1["version"], "0.2.0");
    assert_eq!(rig.ask("POST /admin/plugins/fair/rollback", b"").await.1["version"], "0.1.0");
    assert_eq!(rig.ask("POST /admin/plugins/fair/park", b"").await.1["attached"][0]["state"], "parked");
    assert_eq!(rig.ask("POST /admin/plugins/fair/unpark", b"").await.1["attached"][0]["state"], "active");
    let (status, body) = rig.ask("DELETE /admin/plugins/fair", b"").await;
    assert_eq!((status, body), (409, json!({ "error": "fair is attached: detach it first", "reason": "conflict" })));
    assert_eq!(rig.ask("POST /admin/plugins/fair/detach", br#"{"model":"vad"}"#).await.1["attached"], json!([]));
    assert_eq!(rig.ask("DELETE /admin/plugins/fair", b"").await, (200, json!({})));
    assert_eq!(rig.ask("GET /admin/plugins", b"").await, (200, json!([])));
    let absent = json!({ "error": "there is no plug-in fair", "reason": "absent" });
    assert_eq!(rig.ask("GET /admin/plugins/fair", b"").await, (404, absent));
    assert_eq!(rig.ask("GET /admin/models", b"").await, (200, json!([])));
    assert_eq!(rig.ask("GET /admin/status.json", b"").await.1["changes"][0]["what"], "plugin unload");
}

#[tokio::test]
async fn sequences_are_asked_for_by_number_or_text() {
    let rig = Rig::new(RigOptions::default());
    const SEVEN: &str = "/admin/models/nope/sequences/7";
    for request in [format!("GET {SEVEN}"), format!("GET {SEVEN}?text=true"), format!("DELETE {SEVEN}?reason=stuck")] {
        assert_eq!(rig.ask(&request, b"").await.0, 404, "{request}");
    }
    for request in [format!("GET {SEVEN}/state"), format!("PUT {SEVEN}/state")] {
        let (status, body) = rig.ask(&request, b"").await;
        assert_eq!((status, &body["reason"]), (403, &json!("denied")), "{request}");
    }
    // Requests for a model that is not served are recorded too.
    assert_eq!(rig.ask(&format!("POST {SEVEN}/fork?as=8"), b"").await.0, 404);
    assert_eq!(last_change(&rig).await, ("sequence fork".to_owned(), "nope 7 as 8".to_owned()));
    let rig = open();
    assert_eq!(rig.ask(&format!("PUT {SEVEN}/state"), b"x").await.0, 404);
    assert_eq!(last_change(&rig).await, ("sequence import".to_owned(), "nope 7".to_owned()));
    let (status, body) = rig.ask("GET /admin/models/nope/sequences?sort=size", b"").await;
    assert_eq!((status, &body["reason"]), (400, &json!("bad_input")));
    assert!(body["error"].as_str().unwrap().contains("size"), "{body}");
    assert_eq!(rig.ask("GET /admin/models/nope/sequences", b"").await.0, 404);
}

#[tokio::test]
async fn a_model_is_unloaded_only_if_there_is_one_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("broken/1")).unwrap();
    let rig = Rig::new(RigOptions { models: Some(folder.path()), explicit: true, ..RigOptions::default() });
    let (status, body) = rig.ask("POST /admin/models/nope/unload", b"").await;
    assert_eq!((status, &body["error"]), (404, &json!("there is no model nope")));
    assert_eq!(last_change(&rig).await, ("model unload".to_owned(), "nope".to_owned()));
    assert_eq!(rig.ask("POST /admin/models/broken/unload", b"").await.0, 200, "it need not be loaded");
}

#[tokio::test]
async fn wrong_admin_requests_are_refused_with_a_status_and_a_reason() {
    let rig = open();
    let refused = async |request: &str, body: &[u8]| {
        let (status, json) = rig.ask(request, body).await;
        (status, json["reason"].as_str().unwrap_or_default().to_owned())
    };
    let is = |status: u16, reason: &str| (status, reason.to_owned());
    assert_eq!(refused("GET /admin/plugins/nope", b"").await, is(404, "absent"));
    assert_eq!(refused("POST /admin/plugins/x", b"text").await, is(400, "invalid"));
    assert_eq!(refused("POST /admin/plugins/x", b"").await, is(400, "bad_input"));
    assert_eq!(refused("POST /admin/plugins/x?form=y", V1).await, is(400, "bad_input"));
    assert_eq!(refused("POST /admin/plugins/x/attach", b"{}").await, is(400, "bad_input"));
    assert_eq!(refused("POST /admin/plugins/x/attach", br#"{"model":"vad","shadows":1}"#).await, is(400, "bad_input"));
    let config = br#"{"model":"vad","config":burst}"#;
    assert_eq!(refused("POST /admin/plugins/x/attach", config).await, is(400, "bad_input"));
    assert_eq!(refused("GET /admin/plugins/nope/logs", b"").await, is(404, "absent"));
    assert_eq!(rig.ask("POST /admin/plugins/full", V1).await.0, 200);
    assert_eq!(refused("POST /admin/plugins/full/rollback", b"").await, is(503, "unavailable"));
    assert_eq!(refused("GET /admin/plugins/x/logs?wait=5", b"").await, is(400, "bad_input"));
    assert_eq!(refused("POST /admin/models/vad/load", b"").await.0, 503, "models are not loaded by request here");
    assert_eq!(refused("PUT /admin/plugins/x", b"").await.0, 405);
    assert_eq!(refused("GET /admin/nowhere", b"").await.0, 404);
    assert_eq!(refused("GET /v2/models/vad", b"").await.0, 404, "clients have listeners of their own");
}

#[tokio::test]
async fn plugin_uploads_are_refused_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("fair.wasm"), V1).unwrap();
    let rig = Rig::new(RigOptions { plugins_dir: Some(folder.path()), ..RigOptions::default() });
    for verb in ["POST /admin/plugins/fair", "POST /admin/plugins/fair/replace"] {
        let (status, body) = rig.ask(verb, V1).await;
        assert_eq!(status, 403);
        assert!(body["error"].as_str().unwrap().contains("[admin] upload = true"), "{body}");
    }
    assert_eq!(rig.ask("POST /admin/plugins/fair?from=fair.wasm", b"").await.0, 200);
    assert_eq!(rig.ask("POST /admin/plugins/fair/replace?from=fair.wasm", b"").await.1["version"], "0.2.0");
    assert_eq!(rig.ask("POST /admin/plugins/x?from=nope.wasm", b"").await.0, 404);
    for file in ["..", "../fair.wasm", "%2Fetc%2Fpasswd", "a%2Fb", ""] {
        let (status, body) = rig.ask(&format!("POST /admin/plugins/x?from={file}"), b"").await;
        assert_eq!((status, &body["reason"]), (403, &json!("denied")), "{file}");
    }
    let none = Rig::new(RigOptions::default());
    assert_eq!(none.ask("POST /admin/plugins/fair?from=fair.wasm", b"").await.0, 403);
}

#[tokio::test]
async fn plugin_logs_can_be_continued_and_waited_for() {
    let rig = open();
    rig.ask("POST /admin/plugins/fair", V1).await;
    let (status, lines) = rig.ask("GET /admin/plugins/fair/logs", b"").await;
    assert_eq!((status, &lines[0]["message"], &lines[0]["serial"]), (200, &json!("loaded by local"), &json!(1)));
    assert_eq!(lines[0]["at"], "2027-01-15T08:00:01.000Z");
    assert_eq!(rig.ask("GET /admin/plugins/fair/logs?after=1", b"").await, (200, json!([])));
    let (waited, _) = tokio::join!(
        rig.ask("GET /admin/plugins/fair/logs?after=1&wait=30s", b""),
        rig.ask("POST /admin/plugins/fair/park", b"")
    );
    assert_eq!(waited.1[0]["message"], "parked by local");
}

#[tokio::test]
async fn admin_requests_need_a_key_and_its_owner_is_logged() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "anna:first\nbert:second\n").unwrap();
    let rig = Rig::new(RigOptions { upload: true, keys: Some(file.path()), ..RigOptions::default() });
    for request in ["GET /", "GET /admin/plugins", "POST /admin/plugins/fair", "GET /admin/status.json"] {
        for headers in [&[][..], &[("authorization", "Bearer wrong")], &[("sequor-key", "")]] {
            let (status, body) = rig.ask_with(request, headers, b"").await;
            assert_eq!((status, &body["reason"]), (401, &json!("unauthenticated")), "{request} {headers:?}");
        }
    }
    let anna = [("authorization", "Bearer first")];
    assert_eq!(rig.ask_with("POST /admin/plugins/fair", &anna, V1).await.0, 200);
    let bert = [("sequor-key", "second"), ("host", "admin.example.org")];
    rig.ask_with("POST /admin/plugins/fair/park", &bert, b"").await;
    let lines = rig.ask_with("GET /admin/plugins/fair/logs", &anna, b"").await.1;
    assert_eq!((&lines[0]["message"], &lines[1]["message"]), (&json!("loaded by anna"), &json!("parked by bert")));
    // A key that was removed from the file is invalid.
    fs::write(file.path(), "anna:first\n").unwrap();
    assert_eq!(rig.ask_with("GET /admin/plugins", &bert, b"").await.0, 401);
    let changes = rig.ask_with("GET /admin/status.json", &anna, b"").await.1["changes"].clone();
    assert_eq!((&changes[0]["by"], &changes[0]["what"]), (&json!("bert"), &json!("plugin park")));
    // A key does not grant the permission to upload.
    let rig = Rig::new(RigOptions { keys: Some(file.path()), ..RigOptions::default() });
    let (status, body) = rig.ask_with("POST /admin/plugins/fair", &anna, V1).await;
    assert_eq!((status, &body["reason"]), (403, &json!("denied")));
}

#[tokio::test]
async fn the_admin_listener_serves_no_grpc() {
    let rig = open();
    for service in
        ["sequor.v1.Admin/Status", "grpc.health.v1.Health/Check", "inference.GRPCInferenceService/ServerLive"]
    {
        let header = [("content-type", "application/grpc")];
        let stream = tokio::net::TcpStream::connect(rig.admin).await.unwrap();
        let (status, message) = exchange(stream, &format!("POST /{service}"), &header, b"").await;
        assert_eq!((status, message), (200, json!("")), "{service}: UNIMPLEMENTED stands in the header grpc-status");
    }
}

#[tokio::test]
async fn a_browser_may_read_the_page_and_foreign_origins_are_refused() {
    let rig = open();
    let foreign = [("origin", "http://example.org")];
    assert_eq!(rig.ask_with("POST /admin/plugins/fair", &foreign, V1).await.0, 403);
    let rebound = [("host", "example.org:8003")];
    assert_eq!(rig.ask_with("GET /admin/config", &rebound, b"").await.0, 403);
    assert_eq!(rig.ask_with("GET /", &[("sec-fetch-site", "none")], b"").await.0, 200);
}

#[tokio::test]
async fn the_status_page_shows_plugins_and_escapes_markup() {
    let rig = open();
    rig.ask("POST /admin/plugins/fair", V1).await;
    rig.ask("POST /admin/plugins/fair/attach", br#"{"model":"vad"}"#).await;
    rig.fake.strike("fair");
    let (status, page) = rig.ask("GET /", b"").await;
    let page = page.as_str().unwrap();
    assert_eq!(status, 200);
    assert!(page.starts_with("<!doctype html>") && !page.contains("<script"), "{page}");
    assert!(page.contains("here &amp; &lt;now&gt;") && !page.contains("<now>"), "{page}");
    assert!(page.contains("! fair: parked on vad after 3 strikes, last: trap: index 83, lib.rs:71"), "{page}");
    assert!(page.contains("<td>plugin attach</td><td>fair</td>"), "{page}");
    assert!(
        page.contains("<td class=\"n\">") && !page.contains("  "),
        "no runs of spaces, which browsers drop: {page}"
    );
    let (status, body) = rig.ask("GET /admin/status.json", b"").await;
    assert_eq!((status, &body["server"]["ready"], &body["models"]), (200, &json!(true), &json!([])));
    assert_eq!(body["plugins"][0]["attached"][0]["state"], "parked");
    assert_eq!(body["server"]["state_limit"], json!(null), "no limit is no number");
}

#[tokio::test]
async fn an_operator_can_take_the_server_out_of_service() {
    let rig = open();
    assert_eq!(rig.ask("POST /admin/drain", b"").await.0, 202);
    assert_eq!(rig.join().await, Drained::Clean);
}
