//! Tests `sequor config show`: it prints the settings of `sequor serve` without a server.

use std::fs;

use serde_json::Value;

use crate::operator::ask;
use crate::server::{Call, models};

const SECRET: &str = "s3cret";

fn show(call: Call, arguments: &[&str]) -> crate::server::Ended {
    call.arguments(["config", "show"]).arguments(arguments).end()
}

#[test]
fn every_layer_is_shown_with_its_origin_and_no_secret() {
    let call = Call::sequor();
    let file = call.folder.path().join("sequor.toml");
    let text = format!("[grpc]\nport = 9001\nrestricted_protocol = [\"trace:k={SECRET}\"]\n[http]\nport = 1\n");
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let call = call.environment("SEQUOR_METRICS_PORT", "9002").environment("SEQUOR_HTTP_PORT", "2");
    let restricted = format!("--http-restricted-api=health:k={SECRET}");
    let arguments = ["--origin", "--config", &file, "--http-port=9000", &restricted, "--http-thread-count=2"];
    let ended = show(call, &arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let row = |key: &str| {
        let line = ended.stdout.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap_or_else(|| panic!("{key}: {}", ended.stdout)).split_whitespace().skip(1).collect::<Vec<_>>()
    };
    assert_eq!(row("KEY"), ["VALUE", "ORIGIN"]);
    assert_eq!(row("http.port"), ["9000", "--http-port"]);
    assert_eq!(row("metrics.port"), ["9002", "SEQUOR_METRICS_PORT"]);
    assert_eq!(row("grpc.port"), ["9001", &format!("{file}:2:1")]);
    assert_eq!(row("admin.port"), ["8003", "default"]);
    assert_eq!(row("http.restricted_api"), ["[\"health:k=***\"]", "--http-restricted-api"]);
    assert_eq!(row("grpc.restricted_protocol"), ["[\"trace:k=***\"]", &format!("{file}:3:1")]);
    assert_eq!(ended.stderr, "sequor: --http-thread-count has no effect: the number of threads is not a setting\n");
    assert!(!ended.stdout.contains(SECRET));
    let plain = show(Call::sequor(), &[]);
    assert!(plain.stdout.starts_with("KEY ") && !plain.stdout.contains("ORIGIN"), "{}", plain.stdout);
}

#[test]
fn config_show_as_json_equals_the_servers_admin_config() {
    let arguments = ["--model-repository", &models().display().to_string(), "--drain-finish=7s"].map(str::to_owned);
    let free = ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--admin-port=0"].map(str::to_owned);
    let address = ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1"].map(str::to_owned);
    let arguments = [&arguments[..], &free, &address].concat();
    let ended = Call::sequor().arguments(["config", "show", "--output", "json"]).arguments(&arguments).end();
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    let server = Call::sequor().arguments(["serve"]).arguments(&arguments).start();
    let (status, body) = ask(server.admin.unwrap(), "GET", "/admin/config", "", b"");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, shown));
}

#[test]
fn a_wrong_configuration_is_named_and_ends_with_3() {
    let ended = show(Call::sequor(), &["--http-port=70000", "--limits-request=64MB"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with("sequor: --")), "{lines:?}");
    let absent = show(Call::sequor(), &["--config", "/nowhere/sequor.toml"]);
    assert!(absent.code == Some(3) && absent.stderr.contains("/nowhere/sequor.toml"), "{}", absent.stderr);
    let file = Call::sequor();
    let path = file.folder.path().join("sequor.toml");
    fs::write(&path, "[http]\nport = 70000\nprot = 1\n[limits]\nstate = \"24GB\"\n").unwrap();
    let path = path.display().to_string();
    let ended = show(file, &["--config", &path]);
    let places: Vec<String> =
        ended.stderr.lines().map(|line| line.split(' ').nth(1).unwrap_or_default().to_owned()).collect();
    assert_eq!(places, ["2:8", "3:1", "5:9"].map(|at| format!("{path}:{at}:")), "{}", ended.stderr);
    let server = show(Call::sequor(), &["--server", "127.0.0.1:1"]);
    assert!(server.code == Some(2) && server.stderr.contains("does not take --server"), "{}", server.stderr);
}
