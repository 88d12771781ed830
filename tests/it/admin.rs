//! Tests the admin listener of a real server through the program's own commands.

use std::fs;

use serde_json::Value;

use crate::cache::metric;
use crate::certificates::TestCertificates;
use crate::server::{Call, Ended, Server, get, models};

/// Runs a command of the program against this server.
fn command(server: &Server, arguments: &[&str]) -> Ended {
    Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).arguments(arguments).end()
}

fn output_of(server: &Server, arguments: &[&str]) -> String {
    let ended = command(server, arguments);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    ended.stdout
}

fn explicit() -> Call {
    Call::serve(models()).arguments(["--model-control-mode=explicit", "--load-model=gru"])
}

#[test]
fn a_public_admin_listener_needs_keys_or_client_certificates() {
    let open = || Call::serve(models()).arguments(["--admin-address", "0.0.0.0"]);
    let ended = open().end();
    let message = "sequor: --admin-address: admin on 0.0.0.0:0 without keys or client certificates would let anyone load code. \
        Set admin.keys_file, tls.client_ca, or admin.address = \"127.0.0.1\".\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), message));

    let certificates = TestCertificates::new();
    fs::write(certificates.path("keys"), "anna:first\n").unwrap();
    let server = open().arguments(["--admin-keys-file".as_ref(), certificates.path("keys").as_os_str()]).start();
    assert_eq!(server.admin.unwrap().ip().to_string(), "0.0.0.0");
    let local = format!("127.0.0.1:{}", server.admin.unwrap().port());
    assert_eq!(get(local.parse().unwrap(), "/admin/models").0, 401);
    let key = certificates.path("keys").display().to_string();
    let list = ["model", "list", "--server", &local];
    let ended = command(&server, &list);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(output_of(&server, &[&list[..], &["--key-file", &key]].concat()).contains("vad"));
}

#[test]
fn keys_that_cannot_be_read_stop_the_start() {
    let ended = Call::serve(models()).arguments(["--admin-keys-file", "/nothing"]).end();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("/nothing"), "{}", ended.stderr);
    let ended = Call::serve(models()).arguments(["--tls-cert", "/nothing", "--tls-key", "/nothing"]).end();
    assert!(ended.code == Some(3) && ended.stderr.contains("/nothing cannot be read as PEM"), "{}", ended.stderr);
}

#[test]
fn models_are_listed_loaded_and_unloaded_and_each_change_is_an_audit_line() {
    let server = explicit().start();
    let status = output_of(&server, &["status"]);
    assert!(status.lines().next().unwrap().contains("  serving for 00:"), "{status}");
    assert!(status.lines().any(|line| line.starts_with("gru ")), "{status}");
    assert_eq!(metric(&server, "sequor_ready"), 1.0);
    assert_eq!(metric(&server, "sequor_requests_queued_limit_bytes"), f64::from(1 << 30) * 4.0);
    assert!(metric(&server, "sequor_state_limit_bytes") > 0.0);
    assert_eq!(metric(&server, "sequor_model_loads_total{model=\"gru\",result=\"failed\"}"), 0.0);
    let list = output_of(&server, &["model", "list"]);
    let row = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&row("gru"))[..7], ["gru", "1", "ready", "direct", "1", "0", "0/16"]);
    assert_eq!(words(&row("vad"))[..3], ["vad", "-", "-"]);
    assert_eq!(output_of(&server, &["model", "load", "vad"]), "vad is loaded\n");
    assert_eq!(server.get("/v2/models/vad/ready").0, 200);
    assert_eq!(output_of(&server, &["model", "unload", "vad"]), "vad is unloaded\n");
    assert_eq!(command(&server, &["model", "load", "nope"]).code, Some(5));
    let absent = command(&server, &["model", "unload", "nope"]);
    assert_eq!(absent.code, Some(5));
    assert!(
        absent.stderr.contains("there is no model nope; sequor model list shows those that are"),
        "{}",
        absent.stderr
    );
    let json: Value = serde_json::from_str(&output_of(&server, &["model", "list", "--output", "json"])).unwrap();
    assert_eq!(json.as_array().unwrap().iter().find(|v| v["model"] == "vad").unwrap()["state"], "UNAVAILABLE");

    let log = server.stop().stderr;
    let audit: Vec<&str> = log.lines().filter(|line| line.contains("sequor::audit")).collect();
    assert_eq!(audit.len(), 4, "{log}");
    for (line, what) in audit.iter().zip(["done", "done", "refused", "refused"]) {
        assert!(line.contains(&format!("sequor::audit: {what} by=local from=127.0.0.1:")), "{line}");
    }
    assert!(audit[0].contains("what=\"model load\" on=\"vad\""), "{}", audit[0]);
    assert!(audit[2].contains("code=\"INTERNAL\"") || audit[2].contains("why="), "{}", audit[2]);
}

#[test]
fn the_status_page_and_the_settings_show_the_actual_values() {
    let server = Call::serve(models()).arguments(["--node=asr-01"]).environment("SEQUOR_LOG_LEVEL", "warn").start();
    let admin = server.admin.unwrap();
    let (status, message) = get(admin, "/admin/status.json");
    assert_eq!(status, 403, "a host name that is not the server's own: {message}");
    let ask = |path: &str| get_as(admin, path);
    let (status, page) = ask("/");
    assert_eq!(status, 200);
    for text in ["asr-01", "SERVING", "<td>vad</td><td class=\"n\">1</td><td>ready</td>", "onnxruntime 1."] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let report: Value = serde_json::from_str(&ask("/admin/status.json").1).unwrap();
    let vad = report["models"].as_array().unwrap().iter().find(|v| v["model"] == "vad").unwrap();
    assert_eq!((&vad["slots"], &vad["live"], &vad["strategy"]), (&512.into(), &0.into(), &"oldest".into()));
    assert!(report["server"]["memory_bytes"].as_u64().unwrap() > 1 << 20, "{report}");
    let settings: Value = serde_json::from_str(&ask("/admin/config").1).unwrap();
    let origin = |key: &str| {
        let row = settings.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(origin("node"), ("\"asr-01\"".to_owned(), "--node".to_owned()));
    assert_eq!(origin("log.level"), ("\"warn\"".to_owned(), "SEQUOR_LOG_LEVEL".to_owned()));
    assert_eq!(origin("grpc.keepalive"), ("\"30s\"".to_owned(), "default".to_owned()));
}

/// Sends a GET with the server's own name as the host.
fn get_as(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split_whitespace().nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn commands_to_a_tls_server_need_the_ca_file() {
    let certificates = TestCertificates::new();
    let path = |file: &str| certificates.path(file).display().to_string();
    let (cert, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
    let server = Call::serve(models()).arguments(["--tls-cert", &cert, "--tls-key", &key]).start();
    let list = ["plugin", "list"];
    let ended = command(&server, &list);
    assert!(ended.code == Some(4) && ended.stderr.contains("--tls-ca"), "{}", ended.stderr);
    let with_ca = [&["model", "list"][..], &["--tls-ca", &ca]].concat();
    assert!(output_of(&server, &with_ca).contains("vad"));
    let ended = server.stop();
    let line = ended.stdout.lines().find(|line| line.starts_with("http  ")).unwrap();
    assert!(line.contains("https://127.0.0.1:") && line.ends_with("(TLS on all but metrics)"), "{line}");
}

#[test]
fn the_admin_listener_can_be_disabled() {
    let server = Call::serve(models()).arguments(["--admin-enabled=false"]).start();
    assert_eq!(server.admin, None);
    assert!(server.stop().stdout.contains("   admin and status page  off"));
}

#[test]
fn sequor_drain_takes_a_server_out_of_service() {
    let server = explicit().start();
    assert_eq!(
        output_of(&server, &["drain", "--wait"]),
        "the server has closed its connections; its process ends once states are stored\n"
    );
    let ended = server.process.ended();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("what=\"drain\" on=\"server\""), "{}", ended.stderr);
}

#[test]
fn commands_report_a_port_that_is_not_an_admin_listener() {
    let server = Server::of_models();
    for port in [server.http, server.grpc, server.metrics] {
        let ended = command(&server, &["model", "list", "--server", &port.to_string()]);
        let begin =
            format!("sequor: {port} (from --server) answers, but has no /admin/models: it is not an admin listener");
        assert!(ended.code == Some(4) && ended.stderr.starts_with(&begin), "{ended:?}");
    }
    let ended = command(&server, &["model", "list", "--server", "localhost"]);
    let message = "sequor: \"localhost\" has no port; write HOST:PORT, for example localhost:8003\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), message));
}

/// A certificate as `openssl req -x509` creates it: its own authority.
#[test]
fn a_server_certificate_that_is_a_ca_certificate_is_refused_with_advice() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file).display().to_string();
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(path("own.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(path("own.key"), key.serialize_pem()).unwrap();
    let server =
        Call::serve(models()).arguments(["--tls-cert", &path("own.pem"), "--tls-key", &path("own.key")]).start();
    let ended = command(&server, &["model", "list", "--tls-ca", &path("own.pem")]);
    let message = "its certificate is refused: it is a CA's own certificate, as `openssl req -x509` makes it";
    assert!(ended.code == Some(4) && ended.stderr.contains(message), "{ended:?}");
    let http = server.http.port();
    let message = server.stop().stdout;
    assert!(message.contains(&format!("   or: curl --cacert CA.pem https://localhost:{http}/v2")), "{message}");
}

#[test]
fn a_wrong_key_is_a_line_of_the_log() {
    let certificates = TestCertificates::new();
    fs::write(certificates.path("keys"), "anna:first\n").unwrap();
    fs::write(certificates.path("wrong"), "second\n").unwrap();
    let server =
        Call::serve(models()).arguments(["--admin-keys-file".as_ref(), certificates.path("keys").as_os_str()]).start();
    let message = |arguments: &[&str]| command(&server, arguments).stderr;
    let none = message(&["drain"]);
    assert!(none.starts_with("sequor: this server needs a key: --key-file FILE; over HTTP"), "{none}");
    let wrong = message(&["drain", "--key-file", &certificates.path("wrong").display().to_string()]);
    assert!(wrong.starts_with("sequor: the key is not one of admin.keys_file\n"), "{wrong}");
    let log = server.stop().stderr;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("sequor::audit: refused by=\"unknown\"")).collect();
    assert!(lines.len() == 1 && lines[0].contains("why=\"the key is not one of admin.keys_file\""), "{log}");
}

#[test]
fn a_failed_reload_is_listed_and_a_removed_model_is_logged_once() {
    let call = Call::serve("repository").arguments(["--model-control-mode=poll", "--model-poll=10h"]);
    let repository = call.folder.path().join("repository");
    crate::server::copy(&models(), &repository);
    let server = call.start();
    // Scans the files as in control mode poll.
    let look = || crate::operator::ask(server.http, "POST", "/v1/config/reload", "application/json", b"");
    fs::write(repository.join("accumulator_int32/sequor.toml"), "[sequence]\nidle = 30\n").unwrap();
    fs::remove_dir_all(repository.join("gru")).unwrap();
    for _ in 0..3 {
        look();
    }
    let list = output_of(&server, &["model", "list"]);
    let row = list.lines().find(|line| line.starts_with("accumulator_int32")).unwrap();
    assert!(row.contains(" ready ") && row.contains("reload failed: "), "{list}");
    assert_eq!(server.get("/v2/models/accumulator_int32/ready").0, 200);
    let loads = |result: &str| {
        metric(&server, &format!("sequor_model_loads_total{{model=\"accumulator_int32\",result=\"{result}\"}}"))
    };
    assert_eq!((loads("ok"), loads("failed")), (1.0, 1.0), "a file that is as it was is not loaded again");
    let log = server.stop().stderr;
    let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("unloaded model=\"gru\""), 1, "{log}");
    assert_eq!(count("reload failed; what was loaded before goes on serving model=\"accumulator_int32\""), 1, "{log}");
}
