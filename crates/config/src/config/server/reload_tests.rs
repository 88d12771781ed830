//! Tests of a reload over running settings.

use std::path::Path;

use super::file::keys;
use super::key::{Key, ValueKind};
use super::{GivenFlags, HostInfo, Reloaded, Settings, load, reload};

const PATH: &str = "/etc/sequor.toml";

fn host() -> HostInfo {
    HostInfo { name: "here".to_owned(), memory: None }
}

fn running(text: &str, given: &GivenFlags) -> Settings {
    load(Some((Path::new(PATH), text)), &|_| None, given, &host()).unwrap()
}

fn over(running: &Settings, text: &str, given: &GivenFlags) -> Result<Reloaded, Vec<String>> {
    let reloaded = reload(Some((Path::new(PATH), text)), &|_| None, given, &host(), running);
    reloaded.map_err(|faults| faults.iter().map(|fault| format!("{} {}", fault.at, fault.what)).collect())
}

fn pending(reloaded: &Reloaded) -> Vec<(&str, &str)> {
    reloaded.pending.iter().map(|row| (row.key, row.value.as_str())).collect()
}

/// A line that sets a key to a value that is neither its default nor refused beside the other defaults.
fn line(key: &Key) -> String {
    let value = match (key.path, key.kind) {
        ("http.restricted_api" | "grpc.restricted_protocol", _) => "[\"trace:k=v\"]",
        ("state.url", _) => "\"redis://cache/1\"",
        ("auth.restricted", _) => "[\"trace\"]",
        ("rate_limit_resource", _) => "[\"R:4\"]",
        ("plugins.grants", _) => "[\"p=clock\"]",
        ("otlp.endpoint", _) => "\"http://collector:4318\"",
        ("log.level", _) => "\"debug\"",
        ("limits.request", _) => "\"32MiB\"",
        ("limits.queued_per_peer" | "limits.queued", _) => "\"1GiB\"",
        (_, ValueKind::Bool) => match key.default() {
            Some(toml::Value::Boolean(true)) => "false",
            _ => "true",
        },
        (_, ValueKind::Number) => "77",
        (_, ValueKind::Ratio) => "0.5",
        (_, ValueKind::Text | ValueKind::Path) => "\"/x\"",
        (_, ValueKind::Texts | ValueKind::Paths | ValueKind::Restrictions) => "[\"/x\"]",
        (_, ValueKind::Span) => "\"7s\"",
        (_, ValueKind::Size) => "\"7MiB\"",
        (_, ValueKind::Address) => "\"127.0.0.9\"",
        (_, ValueKind::Choice(choices)) => {
            let default = key.default();
            let other = choices.iter().find(|word| default.as_ref().and_then(|d| d.as_str()) != Some(word));
            return assignment(key, &format!("\"{}\"", other.unwrap()));
        }
    };
    assignment(key, value)
}

fn assignment(key: &Key, value: &str) -> String {
    // Some values are of no use without another one.
    let with = match key.path {
        "auth.restricted" => "auth.keys_file = \"/k\"\n",
        "tls.cert" => "tls.key = \"/k\"\n",
        "tls.key" => "tls.cert = \"/k\"\n",
        "tls.client_ca" => "tls.cert = \"/k\"\ntls.key = \"/k\"\n",
        "model.load" => "model.control_mode = \"explicit\"\n",
        "admin.address" => "",
        "shared_memory.allow" => "shared_memory.prefix = \"x\"\n",
        _ => "",
    };
    format!("{with}{} = {value}\n", key.path)
}

#[test]
fn every_key_is_either_applied_or_waits_for_a_restart() {
    let none = GivenFlags::default();
    let running = running("schema = 1\n", &none);
    for key in keys() {
        let reloaded = over(&running, &line(key), &none).unwrap_or_else(|faults| panic!("{}: {faults:?}", key.path));
        let waits = reloaded.pending.iter().any(|row| row.key == key.path);
        let is_changed = reloaded.changed.contains(&key.path);
        assert_eq!((is_changed, waits), (key.reload, !key.reload), "{}: {reloaded:?}", key.path);
    }
}

#[test]
fn what_waits_for_a_restart_keeps_its_running_value_and_origin() {
    let none = GivenFlags::default();
    let running = running("[http]\nport = 9000\n[limits]\nin_flight = 5\n", &none);
    let text = "[limits]\nin_flight = 6\n[http]\nport = 9001\n";
    let reloaded = over(&running, text, &none).unwrap();
    assert_eq!((&reloaded.changed[..], pending(&reloaded)), (&["limits.in_flight"][..], vec![("http.port", "9001")]));
    assert_eq!((reloaded.settings.http.port, reloaded.settings.limits.in_flight), (9000, 6));
    // What waits still waits after a further reload, and no longer once the file has the running value again.
    let again = over(&reloaded.settings, text, &none).unwrap();
    assert_eq!((again.changed.len(), pending(&again)), (0, vec![("http.port", "9001")]));
    let back = over(&reloaded.settings, "[http]\nport = 9000\n[limits]\nin_flight = 6\n", &none).unwrap();
    assert_eq!((back.changed.len(), back.pending.len()), (0, 0));
    let absent = over(&running, "[limits]\nin_flight = 5\n", &none).unwrap();
    assert_eq!((pending(&absent), absent.settings.http.port), (vec![("http.port", "8000")], 9000));
}

#[test]
fn a_flag_wins_over_the_file_at_a_reload_as_at_the_start() {
    let mut given = GivenFlags::default();
    given.set("limits.in_flight", "--limits-in-flight".to_owned(), "5".to_owned());
    let running = running("", &given);
    let reloaded = over(&running, "[limits]\nin_flight = 6\n", &given).unwrap();
    assert_eq!((reloaded.changed.len(), reloaded.settings.limits.in_flight), (0, 5));
}

#[test]
fn all_faults_of_the_new_file_are_returned_with_their_lines() {
    let none = GivenFlags::default();
    let faults = over(&running("", &none), "[limits]\nin_flight = 0\n[http]\nport = 8001\n", &none).unwrap_err();
    assert!(faults.len() == 2 && faults[0].starts_with("/etc/sequor.toml:2:1"), "{faults:?}");
    assert!(faults[1].starts_with("/etc/sequor.toml:4:1"), "{faults:?}");
}

#[test]
fn values_are_checked_beside_those_that_stay() {
    let none = GivenFlags::default();
    let guarded = "[admin]\naddress = \"0.0.0.0\"\nkeys_file = \"/k\"\n";
    let faults = over(&running(guarded, &none), "[admin]\naddress = \"127.0.0.1\"\n", &none).unwrap_err();
    assert!(faults.len() == 1 && faults[0].contains("would let anyone load code"), "{faults:?}");
    assert!(faults[0].ends_with("(beside running values of settings that only a restart changes)"), "{faults:?}");
    let large = "[limits]\nrequest = \"64MiB\"\nqueued = \"1GiB\"\n";
    let faults = over(&running(large, &none), "[limits]\nrequest = \"1MiB\"\nqueued = \"2MiB\"\n", &none);
    assert!(faults.unwrap_err()[0].contains("must be at least limits.request (64MiB)"));
}

#[test]
fn a_changed_secret_is_found_and_not_shown() {
    let none = GivenFlags::default();
    let of = |secret: &str| format!("[http]\nrestricted_api = [\"trace:k={secret}\"]\n");
    let running = running(&of("s3cret"), &none);
    assert_eq!(over(&running, &of("s3cret"), &none).unwrap().changed.len(), 0);
    let reloaded = over(&running, &of("s3crets"), &none).unwrap();
    assert_eq!(reloaded.changed, ["http.restricted_api"]);
    assert!(!format!("{reloaded:?}").contains("s3cret"), "{reloaded:?}");
}
