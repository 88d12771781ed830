//! Tests the program's commands for operators against a server within the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sequor::server::Tls;
use serde_json::Value;

use super::certificates::TestCertificates;
use super::rig::{Rig, RigOptions};

/// Runs a command of the program against this server. Returns exit code, standard output and standard error.
async fn run(server: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.args(arguments).env("SEQUOR_SERVER", server).env_remove("RUST_LOG");
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = ended.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

impl Rig {
    async fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        run(&self.admin.to_string(), arguments).await
    }

    /// The output of a command, which must succeed.
    async fn output_of(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.run(arguments).await;
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
        out
    }
}

fn component(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn commands_load_attach_replace_park_and_unload_a_plugin() {
    let (rig, folder) = (Rig::new(RigOptions { upload: true, ..RigOptions::default() }), tempfile::tempdir().unwrap());
    let (first, second) =
        (component(folder.path(), "1.wasm", b"\0asm1"), component(folder.path(), "2.wasm", b"\0asm2"));
    let none = "NAME  VERSION  SHA256  WORLD  ATTACHED  STATE  CALLS/S  p50/p99  FALLBACKS  MEMORY  ORIGIN\n";
    assert_eq!(rig.output_of(&["plugin", "list"]).await, none);
    let message = rig.output_of(&["plugin", "load", "fair-share", "--from", &first]).await;
    assert_eq!(message, "fair-share 0.1.0 (0061736) is loaded; it decides nothing until it is attached\n");
    let attach = ["plugin", "attach", "fair-share", "--model", "vad"];
    let message = rig.output_of(&[&attach[..], &["--shadow"]].concat()).await;
    assert_eq!(message, "fair-share 0.1.0 (0061736) watches vad now\n");
    let list = rig.output_of(&["plugin", "list"]).await;
    let want = "\
NAME        VERSION  SHA256   WORLD      ATTACHED  STATE   CALLS/S  p50/p99   FALLBACKS  MEMORY          ORIGIN
fair-share  0.1.0    0061736  scheduler  vad       shadow  410      3 / 5 us  2          1 MiB / 16 MiB  runtime (not in sequor.toml); differs in 4.1 % of rounds
";
    assert_eq!(list, want);
    let more = ["--save", "--set", "burst=4", "--set", "weights.gold=2", "--time", "1ms"];
    let message = rig.output_of(&[&attach[..], &more].concat()).await;
    assert_eq!(message, "fair-share 0.1.0 (0061736) decides for vad now, and its sequor.toml says so\n");
    let asked = rig.fake.asked("fair-share").unwrap();
    assert_eq!((asked.config.as_str(), asked.save), (r#"{"burst":4,"weights":{"gold":2}}"#, true));
    let message = rig.output_of(&["plugin", "replace", "fair-share", "--from", &second]).await;
    assert_eq!(
        message,
        "fair-share 0.2.0 (0061736) has taken over, also after the next start: the sequor.toml of vad names it\n"
    );
    assert!(rig.output_of(&["plugin", "rollback", "fair-share"]).await.contains("0.1.0"));
    rig.output_of(&["plugin", "park", "fair-share"]).await;
    rig.output_of(&["plugin", "unpark", "fair-share"]).await;
    rig.fake.strike("fair-share");
    let shown = rig.output_of(&["plugin", "show", "fair-share"]).await;
    assert!(shown.contains("PARKED") && shown.contains("; 3 strikes, last: trap: index 83, lib.rs:71\n"), "{shown}");
    assert!(shown.contains("vad 1: 12100 calls, 1 pick came too late, 3 strikes\n"), "{shown}");
    assert!(shown.ends_with("sha256 0061736d31\n"), "{shown}");
    rig.output_of(&["plugin", "detach", "fair-share", "--model", "vad"]).await;
    let logs = rig.output_of(&["plugin", "logs", "fair-share", "--after", "1"]).await;
    assert!(logs.starts_with("2027-01-15T08:00:02.000Z INFO  attached by local\n"), "{logs}");
    assert_eq!(rig.output_of(&["plugin", "unload", "fair-share"]).await, "fair-share is unloaded\n");
    assert_eq!(rig.output_of(&["plugin", "list", "--output", "json"]).await, "[]\n");
}

#[tokio::test]
async fn refusals_usage_errors_and_missing_servers_have_distinct_exit_codes() {
    let rig = Rig::new(RigOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let file = component(folder.path(), "1.wasm", b"\0asm1");
    let (code, out, err) = rig.run(&["plugin", "show", "nope"]).await;
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (5, "", "sequor: there is no plug-in nope\nhelp: docs/troubleshoot.md#absent\n")
    );
    let (code, _, err) = rig.run(&["plugin", "load", "x", "--from", &file]).await;
    assert!(code == 5 && err.contains("[admin] upload = true"), "{err}");
    assert_eq!(rig.run(&["plugin", "load", "x", "--from", "/nothing"]).await.0, 1);
    assert_eq!(rig.run(&["plugin", "attach", "x"]).await.0, 2);
    assert_eq!(rig.run(&["plugin", "list", "--server", "nonsense"]).await.0, 3);
    assert_eq!(rig.run(&["plugin", "list", "--key-file", "/nothing"]).await.0, 3);
    assert_eq!(rig.run(&["model", "load", "x"]).await.0, 5);

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = run(&free.to_string(), &["plugin", "list"]).await;
    let begin = format!("sequor: no answer from the admin listener {free} (from SEQUOR_SERVER): ");
    assert!(code == 4 && err.starts_with(&begin), "{code} {err}");
    assert!(err.contains("`sequor serve` may not be running, or have its admin listener elsewhere"), "{err}");
}

#[tokio::test]
async fn commands_present_their_keys_and_client_certificates() {
    let certificates = TestCertificates::new();
    fs::write(certificates.path("keys"), "anna:first\n").unwrap();
    fs::write(certificates.path("wrong"), "second\n").unwrap();
    let [ca, cert, key, keys, wrong, server_cert, server_key] =
        ["ca.pem", "client.pem", "client.key", "keys", "wrong", "server.pem", "server.key"]
            .map(|file| certificates.path(file));
    let files = sequor::server::TlsFiles { cert: server_cert, key: server_key, client_ca: Some(ca.clone()) };
    let tls = Some(Tls::open(files).unwrap());
    let rig = Rig::new(RigOptions { keys: Some(&keys), tls, ..RigOptions::default() });
    let text = |path: &Path| path.display().to_string();
    let (ca, cert, key, keys, wrong) = (text(&ca), text(&cert), text(&key), text(&keys), text(&wrong));
    let trusts = ["plugin", "list", "--tls-ca", &ca];
    let shows = [&trusts[..], &["--tls-cert", &cert, "--tls-key", &key]].concat();
    assert_eq!(rig.run(&[&shows[..], &["--key-file", &keys]].concat()).await.0, 0);
    let (code, _, err) = rig.run(&[&shows[..], &["--key-file", &wrong]].concat()).await;
    assert!(code == 5 && err.starts_with("sequor: the key is not one of admin.keys_file\n"), "{code} {err}");
    let (code, _, err) = rig.run(&trusts).await;
    assert!(code == 4 && err.contains("add --tls-cert FILE and --tls-key FILE"), "{code} {err}");
    let others = TestCertificates::new();
    let of_others = ["client.pem", "client.key"].map(|file| text(&others.path(file)));
    let (code, _, err) =
        rig.run(&[&trusts[..], &["--tls-cert", &of_others[0], "--tls-key", &of_others[1]]].concat()).await;
    assert!(code == 4 && !err.contains("add --tls-cert"), "{code} {err}");
    let (code, _, err) = rig.run(&["plugin", "list"]).await;
    assert!(code == 4 && err.contains("If it speaks TLS, add --tls-ca FILE"), "{code} {err}");
    let plain = Rig::new(RigOptions::default());
    let (code, _, err) = plain.run(&trusts).await;
    assert!(code == 4 && err.contains("does not speak TLS"), "{code} {err}");
}

#[tokio::test]
async fn a_log_can_be_followed() {
    let (rig, folder) = (Rig::new(RigOptions { upload: true, ..RigOptions::default() }), tempfile::tempdir().unwrap());
    rig.output_of(&["plugin", "load", "fair", "--from", &component(folder.path(), "1.wasm", b"\0asm1")]).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.args(["plugin", "logs", "fair", "-f", "--output", "json"]).env("SEQUOR_SERVER", rig.admin.to_string());
    let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
    let (sender, mut lines) = tokio::sync::mpsc::channel(16);
    let out = BufReader::new(follower.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        out.lines().map_while(Result::ok).for_each(|line| sender.blocking_send(line).unwrap());
    });
    let mut next = async || {
        let line: Value = serde_json::from_str(&lines.recv().await.unwrap()).unwrap();
        line["message"].clone()
    };
    let first = next().await;
    rig.ask("POST /admin/plugins/fair/park", b"").await;
    let second = next().await;
    follower.kill().unwrap();
    follower.wait().unwrap();
    reader.join().unwrap();
    assert_eq!((first, second), ("loaded by local".into(), "parked by local".into()));
}

#[tokio::test]
async fn a_server_is_drained_and_waited_for() {
    let rig = Rig::new(RigOptions::default());
    let (out, drained) = (rig.output_of(&["drain", "--wait"]).await, rig.join().await);
    assert_eq!(out, "the server has closed its connections; its process ends once states are stored\n");
    assert_eq!(drained, sequor::server::Drained::Clean);
}
