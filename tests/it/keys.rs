//! Tests clients' keys: who is served, under which name, and that a changed file is read again.

use std::fs;

use crate::operator::ask;
use crate::server::{Call, Ended, Server, models, until};

const ANNA: &str = "anna-s3cret";
const BERT: &str = "bert-s3cret";

/// A server with a key file, in the control mode explicit.
fn served(more: &[&str]) -> (Server, std::path::PathBuf) {
    let call = Call::serve(models());
    let keys = call.folder.path().join("api.keys");
    fs::write(&keys, format!("# clients\nanna:{ANNA}\nbert: {BERT}\n")).unwrap();
    let call = call.arguments(["--auth-keys-file".as_ref(), keys.as_os_str()]).arguments(more);
    (
        call.arguments(["--model-control-mode=explicit", "--load-model=accumulator_int32", "--log-level=debug"])
            .start(),
        keys,
    )
}

/// The HTTP status of a request with this header.
fn shown(server: &Server, method: &str, path: &str, header: Option<(&str, &str)>) -> u16 {
    let kind = header.map_or_else(String::new, |(name, value)| format!("application/json\r\n{name}: {value}"));
    ask(server.http, method, path, &kind, b"").0
}

fn bench(server: &Server, more: &[&str]) -> Ended {
    let address = server.grpc.to_string();
    let line = ["bench", "accumulator_int32", "--server", &address, "--requests=50", "--warm-up=0s", "--clients=2"];
    Call::sequor().arguments(line).arguments(more).end()
}

#[test]
fn loads_are_noted_under_the_name_of_the_key_and_no_key_is_printed() {
    let (server, keys) = served(&[]);
    let load = "/v2/repository/models/accumulator_fp32/load";
    assert_eq!(shown(&server, "POST", load, None), 401);
    assert_eq!(shown(&server, "POST", load, Some(("sequor-key", "s3cret"))), 401);
    assert_eq!(shown(&server, "POST", load, Some(("sequor-key", ANNA))), 200);
    let unload = "/v2/repository/models/accumulator_fp32/unload";
    assert_eq!(shown(&server, "POST", unload, Some(("authorization", &format!("Bearer {BERT}")))), 200);
    assert_eq!(shown(&server, "GET", "/v2/health/ready", None), 200, "probes show no key");
    assert_eq!(shown(&server, "GET", "/v2/models/accumulator_int32", None), 401);
    let admin = server.admin.unwrap();
    let pages = ["/", "/admin/config", "/admin/status.json"].map(|path| ask(admin, "GET", path, "", b"").1);
    assert!(pages[1].contains(&keys.display().to_string()), "{}", pages[1]);
    let Ended { stdout, stderr: log, .. } = server.stop();
    assert!(stdout.contains("   or: curl -H 'sequor-key: KEY' localhost:"), "{stdout}");
    let line = |by: &str, what: &str| {
        log.lines().any(|line| line.contains("sequor::audit") && line.contains(by) && line.contains(what))
    };
    assert!(line("by=anna", "what=\"model load\""), "{log}");
    assert!(line("by=bert", "what=\"model unload\""), "{log}");
    assert!(line("by=\"unknown\"", "why=\"the key is not one of auth.keys_file\""), "{log}");
    for text in pages.iter().chain([&log]) {
        assert!(![ANNA, BERT].iter().any(|key| text.contains(key)), "{text}");
    }
}

#[test]
fn a_changed_file_of_keys_is_read_again() {
    let (server, keys) = served(&[]);
    let status = |key: &str| shown(&server, "GET", "/v2", Some(("sequor-key", key)));
    assert_eq!((status(ANNA), status("new")), (200, 401));
    fs::write(&keys, "anna:new\n").unwrap();
    until("the new key is known", || status("new") == 200);
    assert_eq!(status(ANNA), 401);
    fs::write(&keys, "no key at all\n").unwrap();
    let read = || ask(server.admin.unwrap(), "GET", "/admin/status.json", "", b"");
    read();
    assert_eq!(status("new"), 200, "a file that cannot be read changes nothing");
}

#[test]
fn the_load_generator_shows_a_key() {
    let (server, keys) = served(&[]);
    let none = bench(&server, &[]);
    assert!(none.code == Some(5) && none.stderr.contains("this server needs a key"), "{none:?}");
    let key_file = keys.display().to_string();
    for more in [&["--key-file", &key_file][..], &["--key-file", &key_file, "--streaming"]] {
        let ended = bench(&server, more);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stdout.contains(ANNA) && !ended.stderr.contains(ANNA), "{ended:?}");
    }
}

#[test]
fn faults_of_the_keys_are_configuration_faults() {
    let fault = |arguments: &[&str]| {
        let ended = Call::serve(models()).arguments(arguments).end();
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        ended.stderr
    };
    assert!(fault(&["--auth-keys-file=/nowhere"]).starts_with("sequor: auth.keys_file: "));
    assert_eq!(
        fault(&["--auth-restricted=trace"]),
        "sequor: --auth-restricted: auth.restricted is of no use without auth.keys_file\n"
    );
    let unknown = fault(&["--auth-keys-file=/k", "--auth-restricted=trace,repositry"]);
    assert!(unknown.starts_with("sequor: --auth-restricted: auth.restricted: \"repositry\" is no group"), "{unknown}");
}
