//! Transfers a plug-in's file to the server: into its folder, if that is on this machine, or over HTTP.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::advice;
use super::client::{Client, RequestPayload, segment};
use crate::cli::Failed;
use crate::config::trust;

/// Sends a request for `path` with the component of this file. Without a file, the server uses the file in its folder with the plug-in's
/// name.
pub(in crate::cli) fn send_component(
    client: &Client,
    path: &str,
    name: &str,
    file: Option<&Path>,
) -> Result<Value, Failed> {
    let Some(file) = file else { return named(client, path, &format!("{name}.wasm")) };
    let bytes = fs_err::read(file).map_err(|e| Failed::Failed(e.to_string()))?;
    handed_over(client, path, name, bytes).map_err(advice::of_file(name, &file.display().to_string()))
}

fn handed_over(client: &Client, path: &str, name: &str, bytes: Vec<u8>) -> Result<Value, Failed> {
    let Some(folder) = folder(client) else { return client.post(path, RequestPayload::Bytes(bytes)) };
    // If the server refuses the component, its next start must not find it. So the file gets its final name only after success.
    let (tried, kept) = (format!(".{name}.{}.new", std::process::id()), folder.join(format!("{name}.wasm")));
    let beside = folder.join(&tried);
    let made = File::create_new(&beside).and_then(|mut file| file.write_all(&bytes));
    if made.is_err() {
        return client.post(path, RequestPayload::Bytes(bytes));
    }
    let answer = named(client, path, &tried);
    let settled = if answer.is_ok() { fs_err::rename(&beside, &kept) } else { fs_err::remove_file(&beside) };
    settled.map_err(|e| Failed::Failed(e.to_string()))?;
    answer
}

/// Removes the file that [`send_component`] put into the server's folder.
pub(in crate::cli) fn sweep(client: &Client, name: &str) {
    if let Some(folder) = folder(client) {
        let _ = fs_err::remove_file(folder.join(format!("{name}.wasm")));
    }
}

fn named(client: &Client, path: &str, file: &str) -> Result<Value, Failed> {
    client.post(&format!("{path}?from={}", segment(file)), RequestPayload::Nothing)
}

/// The folder of the server's plug-ins, if it is on this machine.
pub(in crate::cli) fn folder(client: &Client) -> Option<PathBuf> {
    if !client.is_here() {
        return None;
    }
    let settings = client.get("/admin/config").ok()?;
    let of = |row: &Value| row.get("key").and_then(Value::as_str) == Some("plugins.dir");
    let value = settings.as_array()?.iter().find(|row| of(row))?.get("value")?.as_str()?;
    // The value is written as in the settings file, with quotation marks.
    let folder = PathBuf::from(value.parse::<toml::Value>().ok()?.as_str()?);
    if !folder.is_absolute() || !folder.is_dir() {
        return None;
    }
    // An unknown program on that port could name any folder.
    if let Err(why) = trust::check_path(&folder) {
        eprintln!("sequor: {} is not written to: {why}; sending the file to the server instead", folder.display());
        return None;
    }
    Some(folder)
}
