//! Tests failures before a server serves: each has a sentence with a remedy, and an exit code for scripts.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::cache::metric;
use crate::server::{Call, Ended, copy, models, root, sequor};

/// Checks for one line on standard error, and no panic.
fn assert_refused(ended: &Ended, code: i32, sentence: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(ended.stderr, format!("sequor: {sentence}\n"));
}

// === ONNX Runtime ===

#[test]
fn a_library_that_was_named_and_is_not_there_is_an_error() {
    let ended = Call::serve(models()).environment("ORT_DYLIB_PATH", "/nothing").end();
    let message = "no usable ONNX Runtime (1.23 or newer). $ORT_DYLIB_PATH names /nothing (absent). Correct it or leave it empty. \
        To get one: sequor runtime install";
    assert_refused(&ended, 1, message);
}

#[test]
fn a_file_that_is_no_library_is_an_error() {
    let call = Call::serve(models());
    let file = call.folder.path().join("libonnxruntime.so");
    fs::write(&file, "no library\n".repeat(100)).unwrap();
    let ended = call.environment("ORT_DYLIB_PATH", &file).end();
    let message = "no usable ONNX Runtime (1.23 or newer). $ORT_DYLIB_PATH names FILE (not a library: invalid ELF header). \
        Correct it or leave it empty. To get one: sequor runtime install";
    assert_refused(&ended, 1, &message.replace("FILE", &file.display().to_string()));
}

#[test]
fn the_error_lists_every_place_searched_if_there_is_no_library() {
    // A search path without any program.
    let rig = tempfile::tempdir().unwrap();
    let bin = rig.path().canonicalize().unwrap().join("bin");
    fs::create_dir(&bin).unwrap();
    let program = bin.join("sequor");
    fs::copy(sequor(), &program).unwrap();
    for command in [&["serve", "--model-repository", "/nowhere"][..], &["demo"], &["runtime", "path"]] {
        let call = Call::new(&program).arguments(command);
        let here = call.folder.path().canonicalize().unwrap();
        let mut call = call.arguments(match command[0] {
            "serve" => &["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--admin-port", "0"][..],
            _ => &[],
        });
        call.command.env_clear().env("HOME", &here).env("PATH", "/nowhere");
        let ended = call.end();
        let local = ".sequor/lib/libonnxruntime.so";
        let message = [
            "no usable ONNX Runtime (1.23 or newer). Tried: $ORT_DYLIB_PATH (not set)".to_owned(),
            format!("{}/libonnxruntime.so (absent)", bin.display()),
            format!("{}/lib/libonnxruntime.so (absent)", bin.parent().unwrap().display()),
            format!("{local} in {} (absent)", here.display()),
            "python3 onnxruntime (absent)".to_owned(),
            "libonnxruntime.so on the system's library path (absent). To get one: sequor runtime install".to_owned(),
        ];
        assert_refused(&ended, 1, &message.join("; "));
    }
}

// === ports, folders, settings ===

#[test]
fn the_error_for_a_taken_port_names_the_process_that_uses_it() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let me = fs::read_to_string("/proc/self/comm").unwrap();
    let call = Call::sequor().arguments([
        "serve",
        "--http-port",
        "0",
        "--metrics-port",
        "0",
        "--admin-port",
        "0",
        "--grpc-address",
        "127.0.0.1",
    ]);
    let call = call.arguments(["--grpc-port", &address.port().to_string(), "--model-repository", "/nowhere"]);
    let ended = call.end();
    let message =
        format!("grpc {address} is taken (pid {}, {}). --grpc-port N, or stop it.", std::process::id(), me.trim_end());
    assert_refused(&ended, 1, &message);
}

#[test]
fn a_repository_that_cannot_be_read_is_an_error() {
    let message = "the model repository cannot be read: /nothing: No such file or directory (os error 2)";
    assert_refused(&Call::serve("/nothing").end(), 3, message);
    let file = root().join("Cargo.toml");
    let message = format!("the model repository cannot be read: {}: Not a directory (os error 20)", file.display());
    assert_refused(&Call::serve(&file).end(), 3, &message);
    let message =
        "no model repository: name one with --model-repository DIR, or [model] repository in the configuration file";
    assert_refused(&Call::sequor().arguments(["serve"]).end(), 3, message);
}

#[test]
fn an_unknown_flag_or_command_exits_with_the_usage_code() {
    let ended = Call::sequor().arguments(["serve", "--http-prot", "8000"]).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.starts_with("error: unexpected argument '--http-prot' found\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("a similar argument exists: '--http-port'"), "{}", ended.stderr);
    for none in [&[][..], &["nonsense"], &["runtime"]] {
        assert_eq!(Call::sequor().arguments(none).end().code, Some(2), "{none:?}");
    }
}

#[test]
fn an_unknown_key_in_the_settings_file_is_refused_with_its_line() {
    let call = Call::serve(models()).arguments(["--config", "here.toml"]);
    fs::write(call.folder.path().join("here.toml"), "schema = 1\n\n[http]\nprot = 8000\n").unwrap();
    assert_refused(&call.end(), 3, "here.toml:4:1: unknown field `prot`; did you mean \"port\"?");
}

#[test]
fn a_settings_file_that_is_not_there_is_an_error() {
    let ended = Call::serve(models()).arguments(["--config", "absent.toml"]).end();
    assert_refused(&ended, 3, "failed to open file `absent.toml`: No such file or directory (os error 2)");
}

// === models ===

/// Broken models next to a good one. Each folder of `tests/cases/refused` is one: its configuration, and in `refused.txt` the beginnings of
/// its faults.
fn broken_repository(into: &Path) -> Vec<(String, Vec<String>)> {
    let good = models().join("accumulator_fp32");
    copy(&good, &into.join("accumulator_fp32"));
    let mut cases = Vec::new();
    for case in fs::read_dir(root().join("tests/cases/refused")).unwrap().map(|entry| entry.unwrap().path()) {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let model = into.join(&name);
        copy(&good, &model);
        copy(&case, &model);
        let message = fs::read_to_string(model.join("refused.txt")).unwrap();
        cases.push((name, message.lines().map(str::to_owned).collect()));
    }
    let name = "no_version".to_owned();
    fs::create_dir(into.join(&name)).unwrap();
    fs::write(into.join(&name).join("config.pbtxt"), "backend: \"onnxruntime\"\n").unwrap();
    cases.push((name, vec!["repository/no_version: has no version to serve: ".to_owned()]));
    cases.sort();
    cases
}

fn refusals(stdout: &str) -> Vec<(String, String)> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(" -  REFUSED  "));
    lines.map(|(model, fault)| (model.trim_end().to_owned(), fault.to_owned())).collect()
}

/// The call, and the expected faults of each broken model.
fn of_broken_models() -> (Call, Vec<(String, Vec<String>)>) {
    let call = Call::serve("repository");
    let cases = broken_repository(&call.folder.path().join("repository"));
    (call, cases)
}

#[test]
fn broken_models_are_reported_and_do_not_stop_other_models() {
    let (call, cases) = of_broken_models();
    assert!(cases.len() >= 6);
    let server = call.start();
    assert_eq!(server.get("/v2/models/accumulator_fp32/ready").0, 200);
    assert_eq!(server.get("/v2/health/ready").0, 400, "not every wanted model is ready");
    assert_eq!(server.get("/v2/health/live").0, 200);
    let status =
        Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).arguments(["status"]).end();
    assert_eq!((status.code, status.stderr.as_str()), (Some(1), "sequor: the server is not ready\n"));
    assert!(status.stdout.lines().next().unwrap().contains("  not ready for 00:"), "{}", status.stdout);
    assert_eq!(metric(&server, "sequor_ready"), 0.0);
    for (model, _) in &cases {
        assert!(status.stdout.lines().any(|line| line.starts_with(model.as_str())), "{model}: {}", status.stdout);
        assert_ne!(server.get(&format!("/v2/models/{model}/ready")).0, 200, "{model}");
    }
    let ended = server.stop();
    assert_eq!(ended.code, Some(0));
    let message = refusals(&ended.stdout);
    let wanted: Vec<(&String, &String)> =
        cases.iter().flat_map(|(m, faults)| faults.iter().map(move |f| (m, f))).collect();
    assert_eq!(message.len(), wanted.len(), "{message:#?}");
    for ((model, fault), (of, begin)) in message.iter().zip(wanted) {
        assert!(model == of && fault.starts_with(begin.as_str()), "{of}: want {begin}\n{model}: got {fault}");
        assert!(ended.stderr.contains(fault.as_str()), "{fault} is not in the log");
    }
    assert!(ended.stdout.contains(&format!("serving 1 of {} models after ", cases.len() + 1)), "{}", ended.stdout);
}

#[test]
fn the_folder_of_one_model_is_not_a_repository() {
    let message = "MODELS/vad is the folder of one model; name the repository above it: --model-repository MODELS";
    let above = models().canonicalize().unwrap();
    assert_refused(&Call::serve(above.join("vad")).end(), 3, &message.replace("MODELS", &above.display().to_string()));
}

#[test]
fn a_repository_without_models_is_reported_at_the_start() {
    let empty = tempfile::tempdir().unwrap();
    let ended = Call::serve(empty.path()).start().stop();
    let message = format!("{} holds no model: a model is a folder with 1/model.onnx in it.", empty.path().display());
    assert!(ended.stdout.contains("with 0 of 0 models. ") && ended.stdout.contains(&message), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("WARN") && ended.stderr.contains("the repository holds no model"),
        "{}",
        ended.stderr
    );
    let ended = Call::serve(empty.path()).arguments(["--model-control-mode=poll"]).start().stop();
    assert!(ended.stdout.contains(" holds no model yet; it is scanned every 15s"), "{}", ended.stdout);
}

#[test]
fn readiness_need_not_be_strict() {
    let (call, _) = of_broken_models();
    let server = call.arguments(["--strict-readiness=false"]).start();
    assert_eq!(server.get("/v2/health/ready").0, 200);
    assert_eq!(server.get("/v2/models/accumulator_fp32/ready").0, 200);
    let message = server.stop().stdout;
    assert!(message.contains(" models (--strict-readiness=false): "), "{message}");
}

#[test]
fn exit_on_error_ends_the_server_if_a_model_is_broken() {
    let (call, cases) = of_broken_models();
    let ended = call.arguments(["--exit-on-error"]).end();
    assert_eq!(ended.code, Some(1));
    let last = ended.stderr.lines().last().unwrap_or_default();
    let names = last.strip_prefix("sequor: exit_on_error is set, and these models did not load: ").expect(last);
    let named: BTreeSet<&str> = names.split(", ").collect();
    assert_eq!(named, cases.iter().map(|(name, _)| name.as_str()).collect());
    assert_eq!(refusals(&ended.stdout).len(), cases.iter().map(|(_, faults)| faults.len()).sum::<usize>());
}

#[test]
fn the_cases_are_folders_with_a_configuration() {
    let cases: Vec<PathBuf> =
        fs::read_dir(root().join("tests/cases/refused")).unwrap().map(|e| e.unwrap().path()).collect();
    for case in cases {
        for file in ["config.pbtxt", "refused.txt"] {
            assert!(case.join(file).is_file(), "{} has no {file}", case.display());
        }
    }
}
