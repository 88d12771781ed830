//! Tests the program under OVMS's name: it accepts `config.json` and OVMS's flags, and answers OVMS's clients.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::operator::ask;
use crate::server::{Call, models, runtime, sequor};

/// Sequor's flags next to those of OVMS, so that the test gets free ports.
const PORTS: [&str; 9] = [
    "--grpc-port=0",
    "--http-port=0",
    "--metrics_enable",
    "--metrics-port=0",
    "--admin-port=0",
    "--grpc_bind_address=127.0.0.1",
    "--rest_bind_address=127.0.0.1",
    "--log_level=INFO",
    "--grpc_workers=4",
];

/// A call of the program through a link with this name.
fn called(name: &str, folder: &std::path::Path) -> Call {
    symlink(sequor(), folder.join(name)).unwrap();
    let call = Call::new(folder.join(name)).environment("ORT_DYLIB_PATH", runtime());
    call.environment("SEQUOR_DRAIN_ANNOUNCE", "0s")
}

fn predict(address: std::net::SocketAddr, id: u64, control: u32) -> (u16, Value) {
    let inputs = json!({ "INPUT": [[2]], "sequence_id": [id], "sequence_control_input": [control] });
    let body = json!({ "inputs": inputs }).to_string();
    let (status, text) = ask(address, "POST", "/v1/models/sum:predict", "application/json", body.as_bytes());
    (status, serde_json::from_str(&text).unwrap())
}

#[test]
fn the_program_called_ovms_serves_the_models_of_config_json() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    crate::server::copy(&models().join("accumulator_int32"), &base);
    let own = std::fs::read_to_string(base.join("config.pbtxt"))
        .unwrap()
        .replace("name: \"accumulator_int32\"", "name: \"sum\"");
    std::fs::write(base.join("config.pbtxt"), own).unwrap();
    let model = json!({
        "name": "sum", "base_path": base, "stateful": true, "max_sequence_number": 2, "target_device": "CPU",
    });
    let config = json!({ "model_config_list": [{ "config": model }] });
    let file = folder.path().join("config.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let call = called("ovms", folder.path()).arguments(PORTS).arguments(["--config_path".as_ref(), file.as_os_str()]);
    let server = call.start();
    let sum = |id, control| {
        let (status, answer) = predict(server.http, id, control);
        (status, answer["outputs"]["OUTPUT"][0][0].clone())
    };
    assert_eq!([sum(7, 1), sum(7, 0), sum(8, 1)], [(200, json!(2)), (200, json!(4)), (200, json!(2))]);
    let full = json!({ "error": "Max sequence number has been reached. Could not create new sequence." });
    assert_eq!(predict(server.http, 9, 1), (503, full));
    // Without live sequences the server stops at once.
    assert_eq!([sum(7, 2), sum(8, 2)], [(200, json!(6)), (200, json!(4))]);
    let message = server.stop().stdout;
    assert!(message.contains("try: curl localhost:") && !message.contains("demo"), "{message}");
}

#[test]
fn a_command_line_that_ovms_refuses_is_refused_in_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let line = ["--model_path", "/models/m", "--model_name", "m", "--max_sequence_number", "5"];
    let ended = called("ovms", folder.path()).arguments(line).end();
    let text = "Setting low_latency_transformation, max_sequence_number and idle_sequence_cleanup require setting stateful flag";
    assert_eq!((ended.code, ended.stderr.contains(text)), (Some(3), true), "{ended:?}");
}

#[test]
fn the_program_called_tritonserver_takes_its_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--admin-port=0", "--http-address=127.0.0.1"];
    let call = called("tritonserver", folder.path()).arguments(ports).arguments(["--grpc-address=127.0.0.1"]);
    let repository = folder.path().join("models");
    crate::server::copy(&models().join("accumulator_int32"), &repository.join("accumulator_int32"));
    let server = call.arguments(["--model-repository".as_ref(), repository.as_os_str()]).start();
    assert_eq!(server.get("/v2/models/accumulator_int32/ready").0, 200);
    server.stop();
}

/// The base path of a running sum, and a `config.json` that names it.
fn served_by_name(folder: &std::path::Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (base, file) = (folder.join("base"), folder.join("config.json"));
    crate::server::copy(&models().join("accumulator_int32"), &base);
    let own = std::fs::read_to_string(base.join("config.pbtxt")).unwrap();
    let sum = own.replace("name: \"accumulator_int32\"", "name: \"sum\"");
    // An idle time longer than the test.
    let sum = sum.replace("max_sequence_idle_microseconds: 5000000", "max_sequence_idle_microseconds: 600000000");
    std::fs::write(base.join("config.pbtxt"), sum).unwrap();
    std::fs::write(&file, config(&base, &["sum"])).unwrap();
    (base, file)
}

/// A `config.json` with these models.
fn config(base: &std::path::Path, names: &[&str]) -> String {
    let model = |name: &&str| json!({ "config": { "name": name, "base_path": base, "stateful": true } });
    json!({ "model_config_list": names.iter().map(model).collect::<Vec<_>>() }).to_string()
}

#[test]
fn a_reload_request_rereads_config_json_and_the_model_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (base, file) = served_by_name(folder.path());
    let call = called("ovms", folder.path()).arguments(PORTS).arguments(["--config_path".as_ref(), file.as_os_str()]);
    let server = call.arguments(["--file_system_poll_wait_seconds=0"]).start();
    let reload = || {
        let (status, text) = ask(server.http, "POST", "/v1/config/reload", "application/json", b"");
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    assert_eq!(predict(server.http, 7, 1).0, 200);
    assert_eq!(reload().0, 200);
    crate::server::copy(&base.join("1"), &base.join("2"));
    let (status, models) = reload();
    let states = models["sum"]["model_version_status"].as_array().unwrap();
    let is_served = states.iter().any(|of| of["version"] == "2" && of["state"] == "AVAILABLE");
    assert_eq!((status, is_served), (201, true), "{models}");
    let (status, answer) = predict(server.http, 7, 0);
    assert_eq!((status, &answer["outputs"]["OUTPUT"][0][0]), (200, &json!(4)), "a live sequence goes on");
    std::fs::write(&file, "{").unwrap();
    let (status, refused) = reload();
    let text = "Reloading config file failed. Check server logs for more info.";
    assert!(status == 412 && refused["error"].as_str().unwrap().starts_with(text), "{status} {refused}");
    std::fs::remove_file(&file).unwrap();
    let (status, refused) = reload();
    assert!(status == 500 && refused["error"].as_str().unwrap().starts_with("Config file not found"), "{refused}");
    std::fs::write(&file, config(&base, &[])).unwrap();
    assert_eq!(reload().0, 201);
    assert_eq!(predict(server.http, 9, 1).0, 404);
    server.stop();
}

#[test]
fn the_version_policy_of_config_json_holds_beside_a_models_own_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (base, file) = served_by_name(folder.path());
    crate::server::copy(&base.join("1"), &base.join("2"));
    let policy = json!({ "specific": { "versions": [1] } });
    let model = json!({ "name": "sum", "base_path": base, "stateful": true, "model_version_policy": policy });
    std::fs::write(&file, json!({ "model_config_list": [{ "config": model }] }).to_string()).unwrap();
    let call = called("ovms", folder.path()).arguments(PORTS).arguments(["--config_path".as_ref(), file.as_os_str()]);
    let server = call.start();
    let status = ask(server.http, "GET", "/v1/models/sum", "", b"").1;
    assert!(status.contains("\"1\"") && !status.contains("\"2\""), "{status}");
    server.stop();
}

#[test]
fn new_versions_are_found_by_polling() {
    let folder = tempfile::tempdir().unwrap();
    let (base, file) = served_by_name(folder.path());
    let call = called("ovms", folder.path()).arguments(PORTS).arguments(["--config_path".as_ref(), file.as_os_str()]);
    let server = call.start();
    crate::server::copy(&base.join("1"), &base.join("2"));
    while !ask(server.http, "GET", "/v1/models/sum", "", b"").1.contains("\"2\"") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.stop();
}

#[test]
fn one_model_that_cannot_be_served_does_not_end_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (base, file) = served_by_name(folder.path());
    let bad = folder.path().join("bad");
    let write = |names: &[(&str, &std::path::Path)]| {
        let model = |(name, base): &(&str, &std::path::Path)| json!({ "config": { "name": name, "base_path": base, "stateful": true } });
        let models: Vec<_> = names.iter().map(model).collect();
        std::fs::write(&file, json!({ "model_config_list": models }).to_string()).unwrap();
    };
    write(&[("sum", &base), ("bad", &bad)]);
    let call = called("ovms", folder.path()).arguments(PORTS).arguments(["--config_path".as_ref(), file.as_os_str()]);
    let server = call.arguments(["--file_system_poll_wait_seconds=0"]).start();
    let get = |path: &str| ask(server.http, "GET", path, "", b"");
    let reload = || ask(server.http, "POST", "/v1/config/reload", "application/json", b"").0;
    assert_eq!(predict(server.http, 7, 1).0, 200);
    assert_eq!(get("/v2/health/ready").0, 400, "strict_readiness is set");
    assert!(get("/v1/config").1.contains("\"bad\""));
    let index = ask(server.http, "POST", "/v2/repository/index", "application/json", b"").1;
    assert!(index.contains("failed to read directory"), "{index}");
    // A reload updates the other models.
    write(&[("sum", &base), ("bad", &bad), ("worse", &bad)]);
    assert_eq!(reload(), 500);
    assert_eq!((get("/v2/health/ready").0, predict(server.http, 7, 0).0), (400, 200));
    // The model is served as soon as it is valid.
    crate::server::copy(&base, &bad);
    let own = std::fs::read_to_string(bad.join("config.pbtxt")).unwrap();
    std::fs::write(bad.join("config.pbtxt"), own.replace("name: \"sum\"", "")).unwrap();
    assert_eq!((reload(), get("/v2/models/worse/ready").0, get("/v2/health/ready").0), (201, 200, 200));
    // It is removed with its line.
    std::fs::remove_dir_all(&bad).unwrap();
    write(&[("sum", &base)]);
    assert_eq!((reload(), get("/v2/health/ready").0), (201, 200));
    // Without live sequences the server stops at once.
    assert_eq!(predict(server.http, 7, 2).0, 200);
    server.stop();
}

#[test]
fn a_config_json_that_is_wrong_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, "{").unwrap();
    let ended = called("ovms", folder.path()).arguments(["--config_path".as_ref(), file.as_os_str()]).end();
    assert_eq!((ended.code, ended.stderr.contains("The file is not valid json")), (Some(3), true), "{ended:?}");
}

#[test]
fn the_programs_called_ovms_and_tritonserver_print_the_version() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ovms", "tritonserver"] {
        let ended = called(name, folder.path()).arguments(["--version"]).end();
        let version = format!("sequor {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((ended.code, ended.stdout), (Some(0), version), "{name}");
    }
}
