//! Tests Triton's flags for restricted groups, with Triton's own clients. The program never prints their secrets.

use std::fs;

use crate::operator::ask;
use crate::python;
use crate::server::{Call, Ended, get, models};

const ADMIN: &str = "adm1n-s3cret=:";
const INFER: &str = "1nfer-s3cret";

fn flags() -> Vec<String> {
    let flags = ["--http-restricted-api", "--grpc-restricted-protocol"].into_iter().flat_map(|flag| {
        [
            format!("{flag}=model-repository,model-config:admin-key={ADMIN}"),
            format!("{flag}=inference:infer-key={INFER}"),
        ]
    });
    flags.collect()
}

#[test]
fn triton_clients_need_the_restricted_header_and_no_secret_is_printed() {
    let server = Call::serve(models()).arguments(flags()).arguments(["--log-level=trace"]).start();
    python::check_with("restricted.py", &server, &["--admin", ADMIN, "--infer", INFER]);
    let admin = server.admin.unwrap();
    let pages = ["/", "/admin/config", "/admin/status.json"].map(|path| ask(admin, "GET", path, "", b""));
    let metrics = get(server.metrics, "/metrics");
    let ended = server.stop();
    let line = |line: &str| line.contains("refused by=\"unknown\"") && line.contains("is restricted, expecting header");
    assert!(ended.stderr.lines().any(line), "a wrong value is a line of the log");
    let shown = "[\\\"model-repository,model-config:admin-key=***\\\", \\\"inference:infer-key=***\\\"]";
    assert!(pages[1].1.contains(shown), "{}", pages[1].1);
    let printed = pages.iter().chain([&metrics]).map(|(_, text)| text.as_str()).chain([&*ended.stdout, &*ended.stderr]);
    for text in printed {
        assert!(!text.contains(ADMIN) && !text.contains(INFER), "{text}");
    }
}

#[test]
fn faults_of_the_flags_are_tritons_and_print_no_secret() {
    for flag in ["--http-restricted-api", "--grpc-restricted-protocol"] {
        let word = if flag.starts_with("--http") { "api" } else { "protocol" };
        let fault = |values: &[&str]| {
            let ended = Call::serve(models()).arguments(values.iter().map(|value| format!("{flag}={value}"))).end();
            assert_eq!(ended.code, Some(3), "{}", ended.stderr);
            assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
            ended.stderr
        };
        let message = fault(&["model-repository,health:k1=s3cret", "metadata,health:k2=s3cret"]);
        let twice = format!("restricted {word} 'health' can not be specified in multiple config groups");
        assert_eq!(message, format!("sequor: {flag}: {twice}\n"));
        let message = fault(&["model-reposit,health:k1=s3cret"]);
        let unknown = format!("sequor: {flag}: unknown restricted {word} 'model-reposit' (there are ");
        assert!(message.starts_with(&unknown), "{message}");
        let message = fault(&["health,k=s3cret"]);
        assert!(message.starts_with(&format!("sequor: {flag}: {flag} option format is ")), "{message}");
    }
}

#[test]
fn the_file_restricts_as_the_flags_do() {
    let call = Call::serve(models());
    let file = call.folder.path().join("sequor.toml");
    fs::write(&file, format!("[http]\nrestricted_api = [\"metadata:k={INFER}\"]\n")).unwrap();
    let server = call.arguments(["--config".as_ref(), file.as_os_str()]).start();
    let (status, body) = server.get("/v2");
    assert_eq!((status, body.contains("expecting header 'k'")), (403, true), "{body}");
    assert_eq!(server.get("/v2/health/live").0, 200);
    let Ended { stdout, stderr, .. } = server.stop();
    assert!(stdout.contains("   or: curl -H 'k: VALUE' localhost:"), "{stdout}");
    assert!(!stdout.contains(INFER) && !stderr.contains(INFER));
}
