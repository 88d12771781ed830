//! Tests TLS of all listeners: which clients may connect, and renewal of certificates while the server runs.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sequor::server::{Tls, TlsFiles};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificates::TestCertificates;
use super::rig::{Rig, RigOptions, exchange};

fn files(certificates: &TestCertificates, mutual: bool) -> TlsFiles {
    let (cert, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    TlsFiles { cert, key, client_ca: mutual.then(|| certificates.path("ca.pem")) }
}

fn rig(certificates: &TestCertificates, mutual: bool) -> Rig {
    Rig::new(RigOptions {
        upload: true,
        tls: Some(Tls::open(files(certificates, mutual)).unwrap()),
        ..RigOptions::default()
    })
}

/// Connects as a client that trusts the authority and presents this certificate.
async fn connect(
    certificates: &TestCertificates,
    address: SocketAddr,
    shows: Option<&str>,
    speaks: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.path("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match shows {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = vec![CertificateDer::from_pem_file(certificates.path(&format!("{name}.pem"))).unwrap()];
            let key = PrivateKeyDer::from_pem_file(certificates.path(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = speaks.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
}

#[tokio::test]
async fn the_admin_http_and_grpc_listeners_speak_tls() {
    let certificates = TestCertificates::new();
    let rig = rig(&certificates, false);
    let admin = connect(&certificates, rig.admin, None, &[]).await.unwrap();
    assert_eq!(exchange(admin, "GET /admin/plugins", &[], b"").await, (200, json!([])));
    let http = connect(&certificates, rig.http, None, &[]).await.unwrap();
    assert_eq!(exchange(http, "GET /v2/health/live", &[], b"").await.0, 200);
    // The handshake selects HTTP/2, which gRPC needs.
    let grpc = connect(&certificates, rig.http, None, &[b"h2"]).await.unwrap();
    assert_eq!(grpc.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // A client without TLS gets no answer.
    let mut plain = TcpStream::connect(rig.admin).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut message = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut message).await;
    assert!(!message.starts_with(b"HTTP"), "{message:?}");
}

#[tokio::test]
async fn a_required_client_certificate_identifies_the_client() {
    let certificates = TestCertificates::new();
    let rig = rig(&certificates, true);
    let client = connect(&certificates, rig.admin, Some("client"), &[]).await.unwrap();
    // Uses the server's name, like clients on other machines.
    let host = [("host", "asr-01.example.org:8003")];
    assert_eq!(exchange(client, "POST /admin/plugins/fair", &host, b"\0asm1").await.0, 200);
    let client = connect(&certificates, rig.admin, Some("client"), &[]).await.unwrap();
    let lines = exchange(client, "GET /admin/plugins/fair/logs", &[], b"").await.1;
    let by = lines[0]["message"].as_str().unwrap();
    assert!(by.starts_with("loaded by certificate:") && by.len() == "loaded by certificate:".len() + 12, "{by}");

    // In TLS 1.3, a client sees its refusal only when it reads.
    let other = TestCertificates::new();
    std::fs::copy(other.path("client.pem"), certificates.path("other.pem")).unwrap();
    std::fs::copy(other.path("client.key"), certificates.path("other.key")).unwrap();
    for shows in [None, Some("other")] {
        for address in [rig.admin, rig.http] {
            let Ok(mut stream) = connect(&certificates, address, shows, &[]).await else { continue };
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
            let mut text = Vec::new();
            let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut text).await;
            assert!(read.is_err() && text.is_empty(), "{shows:?}: {read:?}");
        }
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_without_a_restart() {
    let certificates = TestCertificates::new();
    let rig = rig(&certificates, false);
    let shown = async || {
        let stream = connect(&certificates, rig.admin, None, &[]).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let certificate = || CertificateDer::from_pem_file(certificates.path("server.pem")).unwrap().to_vec();
    let first = certificate();
    assert_eq!(shown().await, first);
    certificates.renew();
    let second = certificate();
    assert_ne!(first, second);
    assert_eq!(shown().await, second);
    // An unusable certificate changes nothing.
    std::fs::write(certificates.path("server.pem"), "no certificate").unwrap();
    assert_eq!(shown().await, second);
}

#[test]
fn files_that_make_no_certificate_are_refused_by_name() {
    let certificates = TestCertificates::new();
    let message = |change: &dyn Fn(&mut TlsFiles)| {
        let mut files = files(&certificates, true);
        change(&mut files);
        Tls::open(files).unwrap_err().to_string().replace(&certificates.folder.path().display().to_string(), "DIR")
    };
    std::fs::write(certificates.path("empty.pem"), "").unwrap();
    assert_eq!(message(&|f| f.cert = certificates.path("empty.pem")), "DIR/empty.pem holds no certificate");
    assert!(message(&|f| f.cert = certificates.path("nope.pem")).starts_with("DIR/nope.pem cannot be read as PEM"));
    assert!(message(&|f| f.key = certificates.path("empty.pem")).starts_with("DIR/empty.pem cannot be read as PEM"));
    let unfit = message(&|f| f.key = certificates.path("client.key"));
    assert!(unfit.starts_with("DIR/server.pem and DIR/client.key do not make a server's certificate"), "{unfit}");
    assert_eq!(message(&|f| f.client_ca = Some(certificates.path("empty.pem"))), "DIR/empty.pem holds no certificate");
}
