//! Tests the reload of the configuration: at SIGHUP, and by `sequor config reload`. The server is the program itself.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::operator::ask;
use crate::server::{Call, Ended, Server, models, sequor, until};

/// A server with a settings file.
struct Configured {
    folder: TempDir,
    server: Server,
}

impl Configured {
    fn start(text: &str, change: impl FnOnce(Call) -> Call) -> Configured {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sequor.toml");
        fs::write(&file, text).unwrap();
        let call = Call::serve(models()).arguments(["--config".as_ref(), file.as_os_str()]);
        Configured { folder, server: change(call).start() }
    }

    fn new(text: &str) -> Configured {
        Configured::start(text, |call| call)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("sequor.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    fn hang_up(&self) {
        let pid = self.server.process.pid().to_string();
        assert!(Command::new("sh").args(["-c", "kill -HUP \"$0\"", &pid]).status().unwrap().success());
    }

    /// Runs `sequor config` against the server.
    fn config(&self, arguments: &[&str]) -> Ended {
        let admin = self.server.admin.unwrap().to_string();
        Call::new(sequor()).arguments(["config"]).arguments(arguments).environment("SEQUOR_SERVER", admin).end()
    }

    /// The row of a setting.
    fn setting(&self, key: &str) -> Value {
        let (status, body) = ask(self.server.admin.unwrap(), "GET", "/admin/config", "", b"");
        assert_eq!(status, 200, "{body}");
        let rows: Vec<Value> = serde_json::from_str(&body).unwrap();
        rows.into_iter().find(|row| row["key"] == key).unwrap()
    }

    /// The value of a metric without labels, or with these labels.
    fn metric(&self, series: &str) -> String {
        let (_, text) = ask(self.server.metrics, "GET", "/metrics", "", b"");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{series} ")));
        line.unwrap_or_else(|| panic!("no {series}: {text}")).to_owned()
    }

    /// The answer to a request with two inputs, of which the model has one.
    fn infer_two_inputs(&self) -> String {
        let input = |name: &str| format!("{{\"name\":\"{name}\",\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[1]}}");
        let body = format!("{{\"inputs\":[{},{}]}}", input("INPUT"), input("OTHER"));
        let path = "/v2/models/accumulator_fp32/infer";
        ask(self.server.http, "POST", path, "application/json", body.as_bytes()).1
    }
}

#[test]
fn sighup_applies_a_limit_and_a_key_file() {
    let configured = Configured::new("[limits]\ninputs = 2\n");
    assert!(!configured.infer_two_inputs().contains("limits.inputs"));
    assert_eq!(configured.server.get("/v2").0, 200);
    let keys = configured.folder.path().join("keys");
    fs::write(&keys, "anna:s3cret\n").unwrap();
    configured.write(&format!("[limits]\ninputs = 1\n[auth]\nkeys_file = \"{}\"\n", keys.display()));
    configured.hang_up();
    until("a request without a key is refused", || configured.server.get("/v2").0 == 401);
    assert_eq!(configured.setting("limits.inputs")["value"], "1");
    configured.write("[limits]\ninputs = 1\n");
    configured.hang_up();
    until("no key is needed any more", || configured.server.get("/v2").0 == 200);
    let refusal = configured.infer_two_inputs();
    assert!(refusal.contains("limits.inputs"), "{refusal}");
    assert_eq!(configured.metric("sequor_config_reloads_total{outcome=\"applied\"}"), "2");
    let ended = configured.server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let lines: Vec<&str> =
        ended.stderr.lines().filter(|line| line.contains("the configuration was reloaded")).collect();
    assert!(lines.len() == 2 && lines[0].contains("auth.keys_file, limits.inputs"), "{lines:?}");
    let audit = ended.stderr.lines().find(|line| line.contains("sequor::audit") && line.contains("config reload"));
    assert!(audit.is_some_and(|line| line.contains("SIGHUP")), "{}", ended.stderr);
    assert!(!ended.stderr.contains("s3cret"));
}

#[test]
fn a_faulty_file_leaves_everything_as_it_is_and_says_why() {
    let configured = Configured::new("[limits]\ninputs = 2\n");
    configured.write("[limits]\ninputs = 1\nin_flight = 0\n");
    let place = format!("{}:3:1: limits.in_flight must be more than 0", configured.file().display());
    let refused = configured.config(&["reload"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(5), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("nothing was reloaded: {place}")), "{}", refused.stderr);
    let (status, body) = ask(configured.server.admin.unwrap(), "POST", "/admin/config/reload", "", b"");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["reason"]), (400, &Value::from("invalid")));
    configured.hang_up();
    let refusals = "sequor_config_reloads_total{outcome=\"refused\"}";
    until("the signal is refused as well", || configured.metric(refusals) == "3");
    assert_eq!(configured.metric("sequor_config_last_reload_successful"), "0");
    assert_eq!(configured.setting("limits.inputs")["value"], "2");
    assert!(!configured.infer_two_inputs().contains("limits.inputs"));
    // A file that is gone is a fault as well.
    fs::remove_file(configured.file()).unwrap();
    assert!(configured.config(&["reload"]).stderr.contains("sequor.toml"));
    configured.write("[limits]\ninputs = 1\n");
    let reloaded = configured.config(&["reload"]);
    assert_eq!((reloaded.code, reloaded.stdout.as_str()), (Some(0), "changed: limits.inputs\n"), "{}", reloaded.stderr);
    assert_eq!(configured.metric("sequor_config_last_reload_successful"), "1");
    let ended = configured.server.stop();
    assert!(ended.stderr.contains(&place), "{}", ended.stderr);
}

#[test]
fn what_waits_for_a_restart_is_shown() {
    let configured = Configured::new("[log]\nformat = \"text\"\n");
    configured.write("[log]\nformat = \"json\"\nlevel = \"debug\"\n");
    let reloaded = configured.config(&["reload"]);
    assert_eq!(
        reloaded.stdout, "changed: log.level\nwaits for a restart: log.format = \"json\"\n",
        "{}",
        reloaded.stderr
    );
    let running = configured.config(&["running"]).stdout;
    let row = |key: &str| {
        let line = running.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap_or_else(|| panic!("{key}: {running}")).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let at = |line: u32| format!("{}:{line}:1", configured.file().display());
    assert_eq!(row("log.format"), ["log.format", "\"text\"", &at(2), "\"json\""]);
    assert_eq!(row("log.level"), ["log.level", "\"debug\"", &at(3)]);
    assert_eq!(configured.metric("sequor_config_settings_pending_restart"), "1");
    configured.write("[log]\nformat = \"text\"\nlevel = \"debug\"\n");
    assert_eq!(configured.config(&["reload"]).stdout, "no setting has changed\n");
    assert_eq!(configured.setting("log.format").get("pending"), None);
    assert_eq!(configured.metric("sequor_config_settings_pending_restart"), "0");
}

#[test]
fn a_flag_of_the_start_wins_over_a_reloaded_file() {
    let configured = Configured::start("[limits]\ninputs = 2\n", |call| call.arguments(["--limits-inputs", "3"]));
    configured.write("[limits]\ninputs = 1\noutputs = 7\n");
    assert_eq!(configured.config(&["reload"]).stdout, "changed: limits.outputs\n");
    let setting = configured.setting("limits.inputs");
    assert_eq!((&setting["value"], &setting["origin"]), (&Value::from("3"), &Value::from("--limits-inputs")));
    assert!(!configured.infer_two_inputs().contains("limits.inputs"));
}

/// The environment of a `Type=notify` service.
#[test]
fn systemd_is_notified_of_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let next = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    let configured = Configured::start("", |call| call.environment("NOTIFY_SOCKET", &path));
    assert_eq!(next(), "READY=1");
    configured.write("[limits]\ninputs = 0\n");
    configured.hang_up();
    let begun = next();
    assert!(begun.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{begun}");
    assert_eq!(next(), "READY=1", "also after a refused reload");
    configured.server.process.terminate();
    assert_eq!(next(), "STOPPING=1");
}

#[test]
fn config_show_quiet_checks_a_file_and_prints_nothing() {
    let show = |text: &str| {
        let call = Call::sequor();
        fs::write(call.folder.path().join("s.toml"), text).unwrap();
        call.arguments(["config", "show", "--quiet", "--config", "s.toml"]).end()
    };
    let good = show("[limits]\ninputs = 1\n");
    assert_eq!((good.code, good.stdout.as_str(), good.stderr.as_str()), (Some(0), "", ""));
    for (text, place) in [
        ("[limits]\ninputs = 0\n", "s.toml:2:1: limits.inputs must"),
        ("[log]\nlevel = \"loud\"\n", "s.toml:2:1: log.level: \"loud\""),
        ("[auth]\nkeys_file = \"/nowhere\"\n", "s.toml:2:1: auth.keys_file: "),
    ] {
        let wrong = show(text);
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(3), ""), "{text}");
        assert!(wrong.stderr.contains(place), "{}", wrong.stderr);
    }
}

#[test]
fn config_show_quiet_reports_faults_of_values_and_of_files_together() {
    let show = |text: &str, more: &[&str]| {
        let call = Call::sequor();
        fs::write(call.folder.path().join("s.toml"), text).unwrap();
        call.arguments(["config", "show", "--quiet", "--config", "s.toml"]).arguments(more).end()
    };
    let text = "[http]\nport = 70000\n[auth]\nkeys_file = \"/nowhere/keys\"\n[tls]\ncert = \"/nowhere/cert\"\n";
    let places = |stderr: &str| {
        let line =
            |line: &str| line.split(": ").nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned();
        stderr.lines().map(line).collect::<Vec<_>>()
    };
    let wrong = show(&format!("{text}key = \"/nowhere/key\"\n[model]\nrepository = [\"/nowhere/models\"]\n"), &[]);
    assert_eq!(wrong.code, Some(3));
    let want = ["s.toml:2:8", "s.toml:4:1", "s.toml:9:1", "s.toml:6:1", "s.toml:7:1"];
    assert_eq!(places(&wrong.stderr), want, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("s.toml:9:1: the model repository cannot be read: "), "{}", wrong.stderr);
    // A file whose name is the fault is not opened, and what a reload leaves out is left out.
    let half = show(&format!("{text}key = 7\n"), &[]);
    assert_eq!(places(&half.stderr), ["s.toml:2:8", "s.toml:7:7", "s.toml:4:1", "s.toml:6:1"], "{}", half.stderr);
    let reload = show(&format!("{text}[model]\nrepository = [\"/nowhere/models\"]\n"), &["--without-certificates"]);
    assert!(
        !reload.stderr.contains("/nowhere/models") && !reload.stderr.contains("/nowhere/cert"),
        "{}",
        reload.stderr
    );
    let model = models().join("accumulator_int32");
    let of_model = show(&format!("[model]\nrepository = [\"{}\"]\n", model.display()), &[]);
    assert!(of_model.code == Some(3) && of_model.stderr.contains("is the folder of one model"), "{}", of_model.stderr);
}
