//! Tests plug-ins on a real server: loaded, attached, replaced and removed by the program's own commands, while sequences continue.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::python::prepared;
use crate::server::{Call, Ended, Server, copy, models, until};

/// A server with the running sum, whose sequences outlive the compilation of a plug-in in a debug build.
fn server() -> Server {
    let call = Call::serve("repository").arguments(["--admin-upload=true"]).environment("SEQUOR_DRAIN_FINISH", "0s");
    let call = call.environment("SEQUOR_PLUGINS_TIME", "1s");
    let model = call.folder.path().join("repository/accumulator_int32");
    copy(&models().join("accumulator_int32"), &model);
    fs::write(model.join("sequor.toml"), "schema = 1\n[sequence]\nidle = \"1h\"\n").unwrap();
    call.start()
}

fn command(server: &Server, arguments: &[&str]) -> Ended {
    Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).arguments(arguments).end()
}

fn output_of(server: &Server, arguments: &[&str]) -> String {
    let ended = command(server, arguments);
    let is_note = |line: &&str| line.starts_with("sequor: note: ");
    let wrong: Vec<&str> = ended.stderr.lines().filter(|line| !is_note(line)).collect();
    assert_eq!((ended.code, wrong), (Some(0), vec![]), "{arguments:?}");
    ended.stdout
}

/// The component of a guest that `cargo xtask test` built.
fn guest(name: &str) -> String {
    prepared("SEQUOR_GUESTS").join(format!("{name}.wasm")).display().to_string()
}

/// Sends a step of a sequence of the running sum. Returns the sum.
pub(crate) fn step(http: SocketAddr, id: u64, value: i64, start: bool) -> i64 {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value] });
    let parameters = json!({ "sequence_id": id, "sequence_start": start });
    let body = json!({ "parameters": parameters, "inputs": [input], "outputs": [{ "name": "OUTPUT" }] });
    let answer = post(http, "/v2/models/accumulator_int32/infer", &body);
    answer["outputs"][0]["data"][0].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

/// The answer to a JSON body.
pub(crate) fn post(http: SocketAddr, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(http).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

pub(crate) fn shown(server: &Server, name: &str) -> Value {
    serde_json::from_str(&output_of(server, &["plugin", "show", name, "--output", "json"])).unwrap()
}

#[test]
fn a_plugin_is_attached_replaced_and_removed_while_a_sequence_continues() {
    let server = server();
    assert_eq!(step(server.http, 7, 1, true), 1);
    output_of(&server, &["plugin", "load", "mine", "--from", &guest("single")]);
    output_of(&server, &["plugin", "attach", "mine", "--model", "accumulator_int32"]);
    assert_eq!(step(server.http, 7, 10, false), 11);
    let mine = shown(&server, "mine");
    let (at, first) = (&mine["attached"][0], mine["sha256"].clone());
    assert_eq!(
        (&at["state"], &at["model"], &at["from_file"]),
        (&json!("active"), &json!("accumulator_int32"), &json!(false))
    );
    assert!(at["calls"].as_u64().unwrap() >= 1 && at["fallbacks"] == 0, "{mine}");
    assert!(output_of(&server, &["plugin", "list"]).contains("runtime (not in sequor.toml)"));

    output_of(&server, &["plugin", "replace", "mine", "--from", &guest("edf")]);
    assert_eq!(step(server.http, 7, 100, false), 111);
    assert_ne!(shown(&server, "mine")["sha256"], first);
    output_of(&server, &["plugin", "rollback", "mine"]);
    assert_eq!(shown(&server, "mine")["sha256"], first);
    output_of(&server, &["plugin", "park", "mine"]);
    assert_eq!(step(server.http, 7, 1000, false), 1111);
    assert_eq!(shown(&server, "mine")["attached"][0]["state"], "parked");
    output_of(&server, &["plugin", "unpark", "mine"]);
    assert_eq!(command(&server, &["plugin", "unload", "mine"]).code, Some(5), "it is attached");
    output_of(&server, &["plugin", "detach", "mine", "--model", "accumulator_int32"]);
    assert_eq!(step(server.http, 7, 10_000, false), 11_111);
    output_of(&server, &["plugin", "unload", "mine"]);
    let log = server.stop().stderr;
    for what in ["load", "attach", "replace", "rollback", "park", "unpark", "detach", "unload"] {
        assert!(log.contains(&format!("what=\"plugin {what}\" on=\"mine\"")), "{what}: {log}");
    }
}

#[test]
fn an_invalid_plugin_is_refused_and_a_failing_plugin_is_shown() {
    let server = server();
    let not = crate::server::root().join("README.md").display().to_string();
    let ended = command(&server, &["plugin", "load", "mine", "--from", &not]);
    let message = format!(
        "sequor: {not} is no WebAssembly; sequor plugin build makes a component\nhelp: docs/troubleshoot.md#invalid\n"
    );
    assert_eq!((ended.code, ended.stderr), (Some(5), message));
    output_of(&server, &["plugin", "load", "bad", "--from", &guest("hostile-trap")]);
    let attached = command(&server, &["plugin", "attach", "bad", "--model", "accumulator_int32", "--set", "after=2"]);
    assert_eq!(attached.code, Some(0), "{}", attached.stderr);
    for n in 1..=20 {
        assert_eq!(step(server.http, 9, 1, n == 1), n, "no request is lost to it");
    }
    let bad = shown(&server, "bad");
    assert!(bad["attached"][0]["fallbacks"].as_u64().unwrap() > 0, "{bad}");
    assert_eq!(bad["attached"][0]["last_fault"]["kind"], "trap", "{bad}");
    assert!(!output_of(&server, &["plugin", "logs", "bad"]).is_empty());
}

#[test]
fn errors_of_plugin_commands_suggest_the_next_command() {
    let server = server();
    let single = guest("single");
    let refused = |arguments: &[&str]| {
        let ended = command(&server, arguments);
        assert_eq!(ended.code, Some(5), "{arguments:?}: {}", ended.stderr);
        let (text, help) = ended.stderr.trim_end().split_once('\n').unwrap();
        assert!(help.starts_with("help: docs/troubleshoot.md#"), "{help}");
        text.strip_prefix("sequor: ").unwrap().to_owned()
    };
    assert_eq!(refused(&["plugin", "show", "z"]), "there is no plug-in \"z\" on this server; it has none");
    let without = "the server has no folder of plug-ins: hand the file over (`--from FILE`; ";
    assert!(refused(&["plugin", "load", "z"]).starts_with(without));
    output_of(&server, &["plugin", "load", "mine", "--from", &single]);
    for verb in ["show", "logs", "park", "unpark", "rollback", "unload"] {
        let message = refused(&["plugin", verb, "z"]);
        assert_eq!(message, "there is no plug-in \"z\" on this server; there is mine", "{verb}");
    }
    let again = refused(&["plugin", "load", "mine", "--from", &guest("edf")]);
    assert!(again.ends_with(&format!("; sequor plugin replace mine --from {}", guest("edf"))), "{again}");
    let unknown = refused(&["plugin", "attach", "mine", "--model", "nosuch"]);
    assert_eq!(unknown, "no model \"nosuch\" is served; sequor model list shows those that are");
}

#[test]
fn the_plugins_dir_may_be_a_relative_path() {
    let call = Call::serve(models()).arguments(["--plugins-dir=plugins", "--model-control-mode=explicit"]);
    let folder = call.folder.path().join("plugins");
    fs::create_dir(&folder).unwrap();
    let server = call.start();
    output_of(&server, &["plugin", "load", "mine", "--from", &guest("single")]);
    assert!(folder.join("mine.wasm").is_file());
    let ended = command(&server, &["plugin", "load", "other"]);
    let message = "sequor: there is no other.wasm in plugins.dir: put it there, or hand it over (`--from FILE`; ";
    assert!(ended.code == Some(5) && ended.stderr.starts_with(message), "{}", ended.stderr);
}

#[test]
fn a_local_plugin_file_is_copied_to_the_plugins_dir_once_it_is_accepted() {
    let plugins = tempfile::tempdir().unwrap();
    let folder = plugins.path().canonicalize().unwrap();
    let call = Call::serve(models()).arguments(["--plugins-dir".as_ref(), folder.as_os_str()]);
    let server = call.arguments(["--model-control-mode=explicit"]).start();
    let there = || {
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>()
    };
    let not = crate::server::root().join("README.md").display().to_string();
    assert_eq!(command(&server, &["plugin", "load", "mine", "--from", &not]).code, Some(5));
    assert_eq!(there(), Vec::<String>::new(), "nothing is left of what was refused");
    // Uploads are not allowed, and are not needed.
    output_of(&server, &["plugin", "load", "mine", "--from", &guest("single")]);
    assert_eq!(there(), ["mine.wasm"]);
    output_of(&server, &["plugin", "replace", "mine", "--from", &guest("edf")]);
    assert_eq!(fs::read(folder.join("mine.wasm")).unwrap(), fs::read(guest("edf")).unwrap());
    fs::copy(guest("single"), folder.join("other.wasm")).unwrap();
    output_of(&server, &["plugin", "load", "other"]);
    let list = output_of(&server, &["plugin", "list"]);
    assert!(list.lines().count() == 3 && list.contains("mine ") && list.contains("other "), "{list}");
}

#[test]
fn an_uploaded_and_saved_plugin_is_active_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let (repository, folder) = (home.path().join("repository"), home.path().join("plugins"));
    copy(&models().join("accumulator_int32"), &repository.join("accumulator_int32"));
    fs::create_dir(&folder).unwrap();
    let start = |arguments: &[&str]| Call::serve(&repository).arguments(arguments).start();
    let in_folder = format!("--plugins-dir={}", folder.display());
    let save = ["plugin", "attach", "mine", "--model", "accumulator_int32", "--save"];

    let server = start(&["--admin-upload=true"]);
    output_of(&server, &["plugin", "load", "mine", "--from", &guest("single")]);
    let ended = command(&server, &save);
    let message = "sequor: not saved: the next start would not find mine, which came over the wire. Set [plugins] dir to a folder that the server may write\nhelp: docs/troubleshoot.md#denied\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(5), message));
    assert!(shown(&server, "mine")["attached"].as_array().unwrap().is_empty(), "a refusal changes nothing");
    let log = server.stop().stderr;
    let tried = log.lines().find(|line| line.contains("plug-in not changed")).unwrap_or_else(|| panic!("{log}"));
    for part in
        ["sequor::audit", "what=\"attach\"", "plugin=\"mine\"", "model=\"accumulator_int32\"", "why=\"not saved: "]
    {
        assert!(tried.contains(part), "{part}: {tried}");
    }

    let server = start(&["--admin-upload=true", &in_folder]);
    crate::operator::load(&server, "mine", &fs::read(guest("single")).unwrap());
    assert!(fs::read_dir(&folder).unwrap().next().is_none(), "it came over the wire");
    output_of(&server, &save);
    assert_eq!(fs::read(folder.join("mine.wasm")).unwrap(), fs::read(guest("single")).unwrap());
    let was = shown(&server, "mine");
    server.stop();

    let server = start(&[&in_folder]);
    assert_eq!((step(server.http, 7, 1, true), step(server.http, 7, 10, false)), (1, 11));
    let is = shown(&server, "mine");
    let at = &is["attached"][0];
    assert_eq!((&at["state"], &at["from_file"], &is["sha256"]), (&json!("active"), &json!(true), &was["sha256"]));
    assert!(at["calls"].as_u64().unwrap() >= 2, "{is}");
}

/// A server with a saved plug-in, and the flag with its folder of plug-ins.
fn with_one_saved(home: &std::path::Path) -> (Server, String) {
    let (repository, folder) = (home.join("repository"), home.join("plugins"));
    copy(&models().join("accumulator_int32"), &repository.join("accumulator_int32"));
    fs::create_dir(&folder).unwrap();
    let in_folder = format!("--plugins-dir={}", folder.display());
    let server = Call::serve(&repository).arguments(["--admin-upload=true", &in_folder]).start();
    crate::operator::load(&server, "mine", &fs::read(guest("single")).unwrap());
    output_of(&server, &["plugin", "attach", "mine", "--model", "accumulator_int32", "--save"]);
    (server, in_folder)
}

#[test]
fn a_replacement_of_a_saved_plugin_is_active_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let (repository, file) = (home.path().join("repository"), home.path().join("plugins/mine.wasm"));
    let (server, in_folder) = with_one_saved(home.path());
    let again = |server: Server| {
        server.stop();
        Call::serve(&repository).arguments(["--admin-upload=true", &in_folder]).start()
    };
    let is = |server: &Server, name: &str| {
        assert_eq!(step(server.http, 7, 1, true), 1);
        let (shown, component) = (shown(server, "mine"), fs::read(guest(name)).unwrap());
        let at = &shown["attached"][0];
        assert_eq!((&at["state"], &at["from_file"]), (&json!("active"), &json!(true)), "{shown}");
        assert_eq!(fs::read(&file).unwrap(), component, "{name}");
        let toml = fs::read_to_string(repository.join("accumulator_int32/sequor.toml")).unwrap();
        assert!(toml.contains(shown["sha256"].as_str().unwrap()), "{toml}");
    };
    // Replaces the plug-in with an upload.
    crate::operator::replace(&server, "mine", &fs::read(guest("edf")).unwrap());
    is(&server, "edf");
    let server = again(server);
    is(&server, "edf");
    // Replaces the plug-in with another file, and back.
    let message = output_of(&server, &["plugin", "replace", "mine", "--from", &guest("lru-evict")]);
    assert!(
        message.ends_with("has taken over, also after the next start: the sequor.toml of accumulator_int32 names it\n"),
        "{message}"
    );
    let server = again(server);
    is(&server, "lru-evict");
    output_of(&server, &["plugin", "replace", "mine", "--from", &guest("single")]);
    output_of(&server, &["plugin", "rollback", "mine"]);
    is(&server, "lru-evict");
    let server = again(server);
    is(&server, "lru-evict");
    let message = output_of(&server, &["plugin", "detach", "mine", "--model", "accumulator_int32"]);
    assert!(
        message.ends_with("is detached from accumulator_int32 until the next start: its sequor.toml names it\n"),
        "{message}"
    );
    is(&again(server), "lru-evict");
}

#[test]
fn a_changed_plugin_file_is_ignored_if_its_hash_is_pinned() {
    let home = tempfile::tempdir().unwrap();
    let (server, _) = with_one_saved(home.path());
    let was = shown(&server, "mine")["sha256"].clone();
    fs::copy(guest("edf"), home.path().join("plugins/mine.wasm")).unwrap();
    let line = "not replaced: mine.wasm of plugins.dir has changed (";
    until("the change is logged", || output_of(&server, &["plugin", "logs", "mine"]).contains(line));
    assert_eq!(shown(&server, "mine")["sha256"], was);
    assert_eq!(step(server.http, 7, 1, true), 1);
}
