//! Tests the tree's state initializers in front of a real model. Sequences start with a tenant's states, with the state after a prompt, or
//! with another sequence's state. The answers equal those of ONNX Runtime bit for bit.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize};

use crate::python::{self, prepared};
use crate::server::{Call, Server, copy, models};

/// Writes the GRU under this name with this `sequor.toml`.
fn write_model(repository: &Path, name: &str, toml: &str) {
    let model = repository.join(name);
    copy(&models().join("gru"), &model);
    let config = fs::read_to_string(model.join("config.pbtxt")).unwrap();
    fs::write(model.join("config.pbtxt"), config.replace("name: \"gru\"", &format!("name: \"{name}\""))).unwrap();
    fs::write(model.join("sequor.toml"), toml).unwrap();
}

fn feature(name: &str) -> String {
    format!("[[feature]]\nname = \"{name}\"\nfrom = \"parameter\"\nkey = \"{name}\"\ntype = \"key\"\n")
}

fn initializer(name: &str, more: &str) -> String {
    format!("[plugins.initializer]\nuse = \"{name}\"\ntime = \"2s\"\n{more}\n")
}

/// A tenant's state: multiples of 1/16, starting at this number.
fn state(from: i32) -> Vec<u8> {
    (0..16).flat_map(|n| ((from + n) as f32 / 16.0).to_le_bytes()).collect()
}

/// A server with the GRU behind each of the guests, and without one.
fn server() -> Server {
    let call = Call::serve("repository").environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    let repository = call.folder.path().join("repository");
    let (tenant, prompt, parent) = (feature("tenant"), feature("prompt"), feature("parent"));
    write_model(&repository, "plain", "");
    let files = "files = [\"tenants.safetensors\"]";
    write_model(&repository, "tenants", &format!("{tenant}{}", initializer("tenant-state", files)));
    let (gold, free) = (state(1), state(-7));
    let view = |bytes| TensorView::new(Dtype::F32, vec![16], bytes).unwrap();
    let table = HashMap::from([("gold/H", view(&gold[..])), ("free/H", view(&free[..]))]);
    fs::write(repository.join("tenants/tenants.safetensors"), serialize(table, None).unwrap()).unwrap();
    let more = "files = [\"prompts.json\"]\nconfig = { input = \"INPUT\", width = 16 }";
    write_model(&repository, "prompts", &format!("{prompt}{}", initializer("prompt", more)));
    let greeting: Vec<f32> = (0..96u8).map(|n| f32::from(n % 11) / 8.0 - 0.5).collect();
    fs::write(repository.join("prompts/prompts.json"), serde_json::json!({ "greeting": greeting }).to_string())
        .unwrap();
    let more = "copy_if_same = [\"tenant\"]";
    write_model(&repository, "forks", &format!("{tenant}{parent}{}", initializer("fork", more)));
    call.environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS")).start()
}

#[test]
fn first_states_are_those_of_onnx_runtime() {
    let server = server();
    python::check("initializers.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
