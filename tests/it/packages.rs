//! Tests the files that packages contain besides the program. `cargo xtask dist --check` builds and runs the packages themselves.

use std::fs;
use std::process::Command;

use crate::server::{BUILT, Call, root};

/// systemd itself verifies the unit, if it is installed.
#[test]
fn systemd_accepts_the_unit() {
    let unit = fs::read_to_string(root().join("deploy/sequor.service")).unwrap();
    for setting in ["Type=notify", "DynamicUser=yes", "StateDirectory=sequor"] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sequor.service");
    // The program's path in this test.
    fs::write(&file, unit.replace("/opt/sequor/bin/sequor", BUILT)).unwrap();
    match Command::new("systemd-analyze").arg("verify").arg(&file).output() {
        Err(_) => println!("there is no systemd-analyze here"),
        Ok(message) => {
            let text = String::from_utf8_lossy(&message.stderr);
            assert!(message.status.success() && !text.contains("sequor.service"), "{text}");
        }
    }
}

#[test]
fn the_settings_file_of_the_packaged_service_is_accepted() {
    let ports = ["http", "grpc", "metrics", "admin"].map(|listener| format!("--{listener}-port=0"));
    let call = Call::sequor().arguments(["serve", "--config"]).arguments([root().join("deploy/sequor.toml")]);
    let message = call.arguments(ports).environment("SEQUOR_HTTP_ADDRESS", "127.0.0.1").end();
    // Only the service's models are missing.
    assert!(message.stderr.contains("/srv/models"), "{}", message.stderr);
    assert_eq!(message.code, Some(3), "{}", message.stderr);
}

#[test]
fn the_wheel_has_its_documented_name_and_dependency() {
    let text = fs::read_to_string(root().join("deploy/wheel/pyproject.toml")).unwrap();
    let project: toml::Table = text.parse().unwrap();
    assert_eq!(project["project"]["name"].as_str(), Some("sequor-server"));
    assert_eq!(project["project"]["dependencies"][0].as_str(), Some("onnxruntime>=1.23"));
    assert_eq!(project["tool"]["maturin"]["bindings"].as_str(), Some("bin"));
}

/// The page shows the rules of the file; `deploy/prometheus/alerts.test.yml` tests them.
#[test]
fn the_alert_rules_match_the_operate_page() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (page, rules) = (read("docs/operate.md"), read("deploy/prometheus/alerts.yml"));
    let (head, rules) = rules.split_once('\n').unwrap();
    assert!(head.starts_with("# ") && page.contains(&format!("```yaml\n{rules}```")), "{rules}");
    let tests = read("deploy/prometheus/alerts.test.yml");
    for name in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {name}\n")), "no test says when {name} fires");
    }
}

#[test]
fn every_query_of_the_dashboard_names_metrics_of_the_reference_page() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (page, dashboard) = (read("docs/reference/metrics.md"), read("deploy/grafana/sequor.json"));
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> = queries.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 20, "{queries:?}");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for query in queries {
        let names = query.split(|c| !is_part(c)).filter(|word| word.starts_with("sequor_"));
        for name in names {
            let is_listed = |name: &str| page.contains(&format!("| `{name}` |"));
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(is_listed(name) || histogram.is_some_and(is_listed), "{name} in {query}");
        }
    }
}
