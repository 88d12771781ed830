//! What authors of plug-ins do, as docs/plugins.md tells it: every command of the page, in its order.

use std::path::Path;
use std::process::Command;

use crate::python::prepared;
use crate::server::{Call, SEQUOR, Server, copy, models, root, runtime};

/// The commands of a section, without those that start a server.
fn commands(section: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/plugins.md")).unwrap();
    let begin = page.find(&format!("\n## {section}\n")).unwrap();
    let rest = &page[begin + 4..];
    let section = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.flat_map(str::lines).map(str::to_owned).filter(|line| !line.is_empty()).collect()
}

/// Runs commands one after the other in a shell, as one would type them; what they print.
fn typed(commands: &[String], folder: &Path, server: Option<&Server>) -> String {
    let path = format!("{}:{}", Path::new(SEQUOR).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = format!("set -e\n{}\n", commands.join("\n"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder).env("PATH", path).env("ORT_DYLIB_PATH", runtime());
    let cache = prepared("SEQUOR_CACHE");
    // What is built is the same each time; the compiler need not find it out anew.
    shell.env("CARGO_TARGET_DIR", cache.join("target")).env("SEQUOR_CACHE", cache);
    if let Some(server) = server {
        shell.env("SEQUOR_SERVER", server.admin.unwrap().to_string());
    }
    let ended = shell.output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{script}\n{}\n{}", said(&ended.stdout), said(&ended.stderr));
    said(&ended.stdout)
}

#[test]
fn from_nothing_to_a_replaced_scheduler() {
    let (scratch, mut lines) = (tempfile::tempdir().unwrap(), commands("Ten minutes"));
    let serve = lines.iter().position(|line| line.starts_with("sequor serve")).unwrap();
    let call = Call::serve("models").arguments(lines.remove(serve).split_whitespace().skip(4));
    copy(&models().join("accumulator_int32"), &call.folder.path().join("models/accumulator_int32"));
    let server = call.start();
    let said = typed(&lines, scratch.path(), Some(&server));
    assert!(said.contains("mine.wasm   ok   mine 0.1.0, scheduler 0.1.0"), "{said}");
    assert!(said.contains("cases/burst.toml   ok"), "{said}");
    let built = typed(&["cd mine".to_owned(), "sequor plugin build --output json".to_owned()], scratch.path(), None);
    let built: serde_json::Value = serde_json::from_str(&built).unwrap();
    assert!(built[0]["file"] == "./mine.wasm" && built[0]["bytes"].as_u64().unwrap() > 1000, "{built}");
    assert!(said.contains("mine 0.2.0") && said.contains("mine 0.1.0") && said.contains("is back"), "{said}");
}

#[test]
fn a_plug_in_in_python() {
    let scratch = tempfile::tempdir().unwrap();
    let lines = commands("Python").into_iter().filter(|line| line != "cd ..").collect::<Vec<_>>();
    typed(&lines, scratch.path(), None);
    let component = std::fs::read(scratch.path().join("snake/snake.wasm")).unwrap();
    assert_eq!(&component[..8], b"\0asm\x0d\0\x01\0");
}

#[test]
fn dev_serves_every_change_and_puts_back_what_was() {
    let call = Call::serve("models").arguments(["--admin-upload=true"]);
    copy(&models().join("accumulator_int32"), &call.folder.path().join("models/accumulator_int32"));
    let server = call.start();
    let scratch = tempfile::tempdir().unwrap();
    // A name of its own: what is built lies where others build theirs.
    let folder = scratch.path().join("tended");
    typed(&["sequor plugin new tended".to_owned()], scratch.path(), None);
    let cache = prepared("SEQUOR_CACHE");
    let dev = Call::sequor().arguments(["plugin", "dev", "--model", "accumulator_int32"]).arguments([&folder]);
    let dev = dev.environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
    let mut dev = dev.environment("CARGO_TARGET_DIR", cache.join("target")).environment("SEQUOR_CACHE", &cache).begin();
    let first = dev.wait_for("tended-dev ").expect("it serves");
    let source = folder.join("src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, text.replace("deciding for", "deciding now for")).unwrap();
    let second = dev.wait_for("tended-dev ").expect("it serves the change");
    assert_ne!(first.get(..18), second.get(..18), "another component");
    dev.terminate();
    let ended = dev.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.ends_with("the built-in policy decides for accumulator_int32 again\n"), "{}", ended.stdout);
    let list = Call::sequor().arguments(["plugin", "list", "--output", "json"]);
    let list = list.environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).end();
    assert_eq!(list.stdout, "[]\n", "{}", list.stderr);
}
