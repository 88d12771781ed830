//! Tests what operators see of TLS: handshakes that fail, probes without a certificate, and certificates that are checked before a start.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use sequor_proto::ServerLiveRequest;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::certificates::TestCertificates;
use crate::server::{Call, Ended, Server, get, models, until};
use crate::steps::metric;

fn path(certificates: &TestCertificates, file: &str) -> String {
    certificates.path(file).display().to_string()
}

/// A server that wants a certificate of its clients.
fn mutual(certificates: &TestCertificates) -> Server {
    let path = |file: &str| path(certificates, file);
    let call = Call::serve(models()).arguments(["--tls-cert", &path("server.pem"), "--tls-key", &path("server.key")]);
    call.arguments(["--tls-client-ca", &path("ca.pem")]).start()
}

/// `sequor status` at the admin listener, with these files for TLS.
fn status(server: &Server, certificates: &TestCertificates, client: Option<&str>) -> Ended {
    let (admin, path) = (server.admin.unwrap().to_string(), |file: String| path(certificates, &file));
    let call = Call::sequor().arguments(["status", "--server", &format!("https://{admin}")]);
    let call = call.arguments(["--tls-ca", &path("ca.pem".to_owned())]);
    match client {
        None => call.end(),
        Some(name) => {
            let [cert, key] = ["pem", "key"].map(|kind| path(format!("{name}.{kind}")));
            call.arguments(["--tls-cert", &cert, "--tls-key", &key]).end()
        }
    }
}

fn failed(server: &Server, listener: &str, reason: &str) -> f64 {
    let labels = [format!("listener=\"{listener}\""), format!("reason=\"{reason}\"")];
    metric(server, "sequor_tls_handshakes_failed_total", &[&labels[0], &labels[1]])
}

/// Sends this without TLS, and waits until the server has closed the connection.
fn send_plain(address: SocketAddr, text: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn failed_handshakes_are_counted_and_logged_with_their_reasons() {
    let (certificates, other) = (TestCertificates::new(), TestCertificates::new());
    let server = mutual(&certificates);
    assert_eq!(status(&server, &certificates, Some("client")).code, Some(0));
    let series = get(server.metrics, "/metrics").1.matches("sequor_tls_handshakes_failed_total{").count();
    assert_eq!(series, 30, "every series is there from the start");
    for _ in 0..2 {
        assert_ne!(status(&server, &certificates, None).code, Some(0));
    }
    until("both are counted", || failed(&server, "admin", "no_certificate") == 2.0);
    for file in ["client.pem", "client.key"] {
        fs::copy(other.path(file), certificates.path(&format!("other-{file}"))).unwrap();
    }
    fs::rename(certificates.path("other-client.pem"), certificates.path("other.pem")).unwrap();
    fs::rename(certificates.path("other-client.key"), certificates.path("other.key")).unwrap();
    assert_ne!(status(&server, &certificates, Some("other")).code, Some(0));
    until("another authority is counted", || failed(&server, "admin", "unknown_authority") == 1.0);
    send_plain(server.http, "GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n");
    until("a client without TLS is counted", || failed(&server, "http", "not_tls") == 1.0);
    drop(TcpStream::connect(server.grpc).unwrap());
    until("a client that leaves is counted", || failed(&server, "grpc", "closed") == 1.0);

    let log = server.stop().stderr;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("a TLS handshake failed")).collect();
    assert_eq!(lines.len(), 3, "one line for each reason, and none for a check of the port: {log}");
    let line = |part: &str| lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {log}"));
    let absent = line("the client presented no certificate, and tls.client_ca requires one");
    assert!(
        absent.contains("WARN") && absent.contains("peer=127.0.0.1:") && absent.contains("listener=\"admin\""),
        "{absent}"
    );
    line("no authority of tls.client_ca has signed the client's certificate");
    line("the client did not speak TLS");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_without_a_certificate_ask_the_metrics_listener() {
    let certificates = TestCertificates::new();
    let server = mutual(&certificates);
    for path in ["/v2/health/live", "/v2/health/ready", "/livez", "/readyz", "/healthz"] {
        assert_eq!(get(server.metrics, path).0, 200, "{path}");
    }
    let at = format!("http://{}", server.metrics);
    let channel = Channel::from_shared(at).unwrap().connect().await.unwrap();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(health.into_inner().status(), ServingStatus::Serving);
    // Nothing else is served there.
    assert_eq!(get(server.metrics, "/v2").0, 404);
    assert!(GrpcInferenceServiceClient::new(channel).server_live(ServerLiveRequest {}).await.is_err());
}

#[test]
fn probes_at_the_metrics_listener_get_the_answers_of_the_clients_listeners() {
    let folder = tempfile::tempdir().unwrap();
    crate::server::copy(&models().join("accumulator_int32"), &folder.path().join("good"));
    fs::create_dir_all(folder.path().join("bad/1")).unwrap();
    fs::write(folder.path().join("bad/1/model.onnx"), "no model").unwrap();
    let server = Call::serve(folder.path()).start();
    for (path, code) in [("/v2/health/live", 200), ("/v2/health/ready", 400), ("/livez", 200), ("/readyz", 503)] {
        assert_eq!([server.http, server.metrics].map(|at| get(at, path).0), [code, code], "{path}");
    }
    assert_eq!(get(server.metrics, "/metrics").0, 200);
}

#[test]
fn certificates_are_checked_without_a_start() {
    let certificates = TestCertificates::new();
    let path = |file: &str| path(&certificates, file);
    let checked = |cert: &str, key: &str, ca: &str| {
        let call = Call::sequor().arguments(["config", "show", "--quiet", "--tls-cert", cert, "--tls-key", key]);
        let ended = call.arguments(["--tls-client-ca", ca]).end();
        (ended.code, ended.stderr)
    };
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(path);
    assert_eq!(checked(&cert, &key, &ca), (Some(0), String::new()));
    let (code, text) = checked(&cert, &path("client.key"), &ca);
    assert!(code == Some(3) && text.starts_with("sequor: --tls-key: tls.key: "), "{text}");
    assert!(text.contains("server.pem and ") && text.contains("do not make a server's certificate"), "{text}");
    fs::write(certificates.path("empty"), "").unwrap();
    let (code, text) = checked("/nowhere/cert", &path("empty"), &key);
    let lines: Vec<&str> = text.lines().collect();
    assert!(code == Some(3) && lines.len() == 3, "every file is named: {text}");
    assert!(lines[0].starts_with("sequor: --tls-cert: tls.cert: /nowhere/cert cannot be read"), "{text}");
    assert!(
        lines[1].starts_with("sequor: --tls-key: tls.key: ") && lines[1].contains("empty cannot be read"),
        "{text}"
    );
    assert!(lines[2].starts_with("sequor: --tls-client-ca: tls.client_ca: "), "{text}");
}

/// A certificate that signs itself, with these changes, and its key.
fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> (TempDir, [String; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let paths = ["cert.pem", "cert.key"].map(|file| folder.path().join(file));
    fs::write(&paths[0], params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&paths[1], key.serialize_pem()).unwrap();
    (folder, paths.map(|path| path.display().to_string()))
}

fn authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

fn expired(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2001, 1, 1);
}

fn later(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(4000, 1, 1);
}

fn expired_authority(params: &mut CertificateParams) {
    authority(params);
    expired(params);
}

/// A change of a certificate.
type Change = fn(&mut CertificateParams);

#[test]
fn a_certificate_that_clients_refuse_is_a_warning_at_the_check_and_at_the_start() {
    let cases: [(Change, &[&str]); 5] = [
        (|_| {}, &[]),
        (authority, &["is an authority's own certificate (CA:TRUE)"]),
        (expired, &["expired "]),
        (later, &["is valid only in "]),
        (expired_authority, &["expired ", "is an authority's own certificate"]),
    ];
    for (change, doubts) in cases {
        let (_folder, [cert, key]) = self_signed(change);
        let call = Call::sequor().arguments(["config", "show", "--quiet", "--tls-cert", &cert, "--tls-key", &key]);
        let checked = call.end();
        let lines: Vec<&str> = checked.stderr.lines().collect();
        assert_eq!((checked.code, lines.len()), (Some(0), doubts.len()), "{doubts:?}: {}", checked.stderr);
        for (line, doubt) in lines.iter().zip(doubts) {
            assert!(line.starts_with(&format!("sequor: warning: --tls-cert: tls.cert: {cert} {doubt}")), "{line}");
        }
        if doubts.len() == 2 {
            let server = Call::serve(models()).arguments(["--tls-cert", &cert, "--tls-key", &key]).start();
            let log = server.stop().stderr;
            assert!(doubts.iter().all(|doubt| log.contains(&format!("{cert} {doubt}"))), "{log}");
        }
    }
}

/// A certificate that is new before its key must not hold up a reload, which does not open them.
#[test]
fn the_units_check_before_a_reload_does_not_open_certificates() {
    let unit = fs::read_to_string(crate::server::root().join("deploy/sequor.service")).unwrap();
    let program = "ExecReload=/opt/sequor/bin/sequor ";
    let arguments = unit.lines().find_map(|line| line.strip_prefix(program)).unwrap();
    let certificates = TestCertificates::new();
    let [cert, key] = ["server.pem", "client.key"].map(|file| path(&certificates, file));
    let check = |more: &str| {
        let call = Call::sequor();
        let folder = call.folder.path().to_owned();
        let text = format!("{more}\n[tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n");
        fs::create_dir(folder.join("sequor")).unwrap();
        fs::write(folder.join("sequor/sequor.toml"), text).unwrap();
        let arguments = arguments.replace("%E", &folder.display().to_string());
        let ended = call.arguments(arguments.split(' ')).end();
        (ended.code, ended.stderr)
    };
    assert_eq!(check(""), (Some(0), String::new()));
    let (code, text) = check("[auth]\nkeys_file = \"/nowhere\"");
    assert!(code == Some(3) && text.contains("sequor.toml:2:1: auth.keys_file: "), "{text}");
}
