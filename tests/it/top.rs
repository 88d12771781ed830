//! Tests `sequor top` on a real server: rates under load, screen after screen, and a terminal that it restores.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::tcgetattr;
use serde_json::{Value, json};

use crate::plugins::post;
use crate::server::{Call, Server, models, sequor};

fn top(server: &Server, arguments: &[&str]) -> Call {
    let call = Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
    call.arguments(["top"]).arguments(arguments)
}

/// A server of the models `accumulator_fp32`, which gets a step after the other while `work` runs, and one wrong request.
fn under_load<T>(work: impl FnOnce(&Server) -> T) -> T {
    let server = Call::serve(models()).start();
    let step = |value: &str, start: bool| {
        let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": value, "data": [1.0] });
        let body = json!({ "parameters": { "sequence_id": 7, "sequence_start": start }, "inputs": [input] });
        post(server.http, "/v2/models/accumulator_fp32/infer", &body)
    };
    assert_eq!(step("FP64", true)["reason"], "bad_input");
    step("FP32", true);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                step("FP32", false);
            }
        });
        let outcome = work(&server);
        is_done.store(true, Ordering::Relaxed);
        outcome
    })
}

#[test]
fn one_screen_under_load_has_the_rates_between_two_readings() {
    let (text, figures) = under_load(|server| {
        let text = top(server, &["--once"]).end();
        let figures = top(server, &["--once", "--interval", "500ms", "--output", "json"]).end();
        assert_eq!((text.code, figures.code), (Some(0), Some(0)), "{text:?} {figures:?}");
        (text.stdout, figures.stdout)
    });
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("  serving for 00:") && lines[0].contains("   rates over 1"), "{text}");
    let heads =
        ["MODEL", "V", "STATE", "LIVE", "SLOTS", "WAITING", "QUEUE", "REQ/S", "EXEC/S", "BATCH", "FAILED/S", "STATES"];
    let at = lines.iter().position(|line| line.starts_with("MODEL ")).unwrap();
    assert_eq!(lines[at].split_whitespace().take(12).collect::<Vec<_>>(), heads);
    let busiest: Vec<&str> = lines[at + 1].split_whitespace().collect();
    assert_eq!(busiest[..5], ["accumulator_fp32", "1", "ready", "1", "1/32"], "{text}");
    assert_eq!(busiest[9], "1.0", "one request is in each batch: {text}");
    assert!(lines[at + 1].contains("run ") && lines[at + 1].contains('%'), "{text}");
    let refused = lines.iter().skip_while(|line| !line.starts_with("REFUSED")).nth(1).unwrap();
    assert_eq!(refused.split_whitespace().collect::<Vec<_>>(), ["bad_input", "accumulator_fp32", "0", "1"]);

    let figures: Value = serde_json::from_str(&figures).unwrap();
    let busiest = &figures["models"][0];
    let rate = |name: &str| busiest[name].as_f64().unwrap();
    assert!(figures["seconds"].as_f64().unwrap() >= 0.5, "{figures}");
    assert!(rate("requests_per_second") > 1.0 && rate("executions_per_second") > 1.0, "{busiest}");
    let shares: f64 = busiest["phases"].as_array().unwrap().iter().map(|of| of["share"].as_f64().unwrap()).sum();
    assert!((0.95..=1.0001).contains(&shares), "{busiest}");
}

#[test]
fn without_a_terminal_one_screen_follows_the_other_until_a_signal() {
    let server = Call::serve(models()).arguments(["--model-control-mode=explicit"]).start();
    let mut process = top(&server, &["--interval", "100ms"]).begin();
    for _ in 0..3 {
        assert!(process.wait_for("MODEL  V  STATE").is_some());
    }
    process.terminate();
    let ended = process.ended();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(!ended.stdout.contains('\x1b'), "{:?}", ended.stdout);
    let mut process = top(&server, &["--interval", "100ms"]).begin();
    assert!(process.wait_for("MODEL  V  STATE").is_some());
    server.stop();
    let ended = process.ended();
    assert!(ended.code == Some(4) && ended.stderr.contains("no answer from the admin listener"), "{ended:?}");
}

/// A terminal of 60 columns and 12 rows, and the end that a program gets.
fn terminal() -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: 12, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: the pointers are to places on this stack, or null where the call allows that.
    let failed = unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call has just opened both, and nothing else owns them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Reads until the text has this part.
fn read_until(from: &mut File, part: &str, all: &mut String) {
    let mut bytes = [0; 4096];
    while !all.contains(part) {
        let count = from.read(&mut bytes).unwrap();
        all.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[test]
fn a_terminal_is_redrawn_until_q_and_then_restored() {
    let server = Call::serve(models()).arguments(["--model-control-mode=explicit"]).start();
    for key in ["q", "\x03"] {
        let (mut ours, theirs) = terminal();
        let before = tcgetattr(&theirs).unwrap();
        let stdio = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(sequor());
        command.args(["top", "--interval", "100ms", "--server", &server.admin.unwrap().to_string()]);
        let mut child = command.stdin(stdio()).stdout(stdio()).stderr(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        read_until(&mut ours, "q leaves", &mut text);
        assert!(text.starts_with("\x1b[?1049h\x1b[?25l\x1b[H"), "{text:?}");
        assert_ne!(tcgetattr(&theirs).unwrap().local_modes, before.local_modes, "keys come at once");
        text.clear();
        read_until(&mut ours, "q leaves", &mut text);
        let widest = text.split("\r\n").map(|line| line.replace("\x1b[K", "").chars().count()).max();
        assert!(widest <= Some(60 + "\x1b[H".len()) && text.split("\r\n").count() <= 12, "{text:?}");
        ours.write_all(key.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        read_until(&mut ours, "\x1b[?25h\x1b[?1049l", &mut text);
        assert_eq!(tcgetattr(&theirs).unwrap().local_modes, before.local_modes);
    }
}

#[test]
fn a_terminal_reports_an_absent_server_and_stays() {
    let server = Call::serve(models()).arguments(["--model-control-mode=explicit"]).start();
    let (mut ours, theirs) = terminal();
    let stdio = || Stdio::from(theirs.try_clone().unwrap());
    let mut command = Command::new(sequor());
    command.args(["top", "--interval", "100ms", "--server", &server.admin.unwrap().to_string()]);
    let mut child = command.stdin(stdio()).stdout(stdio()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    read_until(&mut ours, "q leaves", &mut text);
    server.stop();
    text.clear();
    read_until(&mut ours, "! no answer from the admin listener", &mut text);
    ours.write_all(b"q").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
