//! Writes a model of OVMS as a directory of a model repository: `config.pbtxt`, `sequor.toml`, and links to its versions.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::model::OvmsModel;
use crate::config::onnx::{self, NamedState, Transformed};

/// How the files of a version get into the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionFiles {
    Link,
    Copy,
}

/// Writes these models into an empty folder. `scan_minutes` is the time between two scans for idle sequences; 0 turns scans off.
pub fn write(folder: &Path, models: &[OvmsModel], scan_minutes: u32, files: VersionFiles) -> Result<(), Vec<String>> {
    let write = |model: &OvmsModel| {
        let fault = |what: String| format!("model {}: {what}", model.name);
        write_one(folder, model, scan_minutes, files).map_err(fault)
    };
    let wrong: Vec<String> = models.iter().filter_map(|model| write(model).err()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Why this model cannot be served, as far as its files show.
pub fn check(model: &OvmsModel) -> Result<(), String> {
    model.check_supported()?;
    let versions = versions(&model.base_path).map_err(|error| error.to_string())?;
    plan(model, &versions).map(|_| ())
}

/// The path at which operators may put their own configuration of a model.
fn own_config(model: &OvmsModel) -> PathBuf {
    model.base_path.join("config.pbtxt")
}

fn has_own_config(model: &OvmsModel) -> bool {
    own_config(model).is_file()
}

/// The configuration of a model, and its changed graphs.
struct LayoutPlan {
    config: String,
    /// Graphs with their states as inputs and outputs, by version and file name.
    graphs: Vec<(u64, String, Vec<u8>)>,
}

fn plan(model: &OvmsModel, versions: &[(u64, PathBuf)]) -> Result<LayoutPlan, String> {
    let as_text = |error: io::Error| error.to_string();
    let newest = versions.last().ok_or_else(|| format!("{} has no version to serve", model.base_path.display()))?;
    let own = own_config(model);
    let low_latency = model.stateful.is_some_and(|stateful| stateful.low_latency_transformation);
    if has_own_config(model) && low_latency {
        return Err(format!(
            "low_latency_transformation makes the configuration of its states itself: remove {}, or the option",
            own.display()
        ));
    }
    if has_own_config(model) {
        return Ok(LayoutPlan { config: fs_err::read_to_string(&own).map_err(as_text)?, graphs: Vec::new() });
    }
    let file = onnx_file(&newest.1)?;
    let Some(stateful) = model.stateful else {
        return Ok(LayoutPlan { config: config(model, &file), graphs: Vec::new() });
    };
    if !stateful.low_latency_transformation {
        return Err(format!(
            "the states of a stateful model must be named: write sequence_batching with its states into {}, or set \
             low_latency_transformation, which names those of LSTM, GRU and RNN nodes",
            own.display()
        ));
    }
    let mut graphs = Vec::new();
    let mut newest = None;
    for (number, path) in versions {
        let name = onnx_file(path)?;
        let bytes = fs_err::read(path.join(&name)).map_err(as_text)?;
        let transformed = onnx::transform(&bytes).map_err(|e| format!("{}: {e}", path.join(&name).display()))?;
        graphs.push((*number, name, transformed.model.clone()));
        newest = Some(transformed);
    }
    let states = newest.map(|transformed| sequences(&transformed, stateful.max_sequence_number)).unwrap_or_default();
    Ok(LayoutPlan { config: config(model, &file) + &states, graphs })
}

/// Writes or updates the directory of a model. Unchanged files keep their modification times.
pub(super) fn write_one(
    folder: &Path,
    model: &OvmsModel,
    scan_minutes: u32,
    files: VersionFiles,
) -> Result<(), String> {
    let as_text = |error: io::Error| error.to_string();
    if model.name.contains(['/', '\0']) || matches!(model.name.as_str(), "." | "..") {
        return Err("the name must be that of a folder".to_owned());
    }
    let directory = folder.join(&model.name);
    let versions = versions(&model.base_path).map_err(as_text)?;
    let LayoutPlan { config, graphs } = plan(model, &versions)?;
    fs_err::create_dir_all(&directory).map_err(as_text)?;
    write_file(&directory.join("config.pbtxt"), config.as_bytes()).map_err(as_text)?;
    let toml = sequor_toml(model, scan_minutes, has_own_config(model));
    write_file(&directory.join("sequor.toml"), toml.as_bytes()).map_err(as_text)?;
    let is_gone = |name: &OsStr| {
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        number.is_some_and(|number| !versions.iter().any(|(of, _)| *of == number))
    };
    remove_entries(&directory, is_gone).map_err(as_text)?;
    for (number, path) in &versions {
        let path = std::path::absolute(path).map_err(as_text)?;
        let to = directory.join(number.to_string());
        let graph = graphs.iter().find(|(of, ..)| of == number);
        match (graph, files) {
            (None, VersionFiles::Link) => link(&path, &to).map_err(as_text)?,
            (graph, files) => version(&path, &to, graph.map(|(_, name, bytes)| (name.as_str(), bytes)), files)?,
        }
    }
    Ok(())
}

/// Creates a version's folder. A changed graph is written; every other file is linked or copied.
fn version(from: &Path, to: &Path, graph: Option<(&str, &Vec<u8>)>, files: VersionFiles) -> Result<(), String> {
    let as_text = |error: io::Error| error.to_string();
    if to.is_symlink() {
        remove(to).map_err(as_text)?;
    }
    fs_err::create_dir_all(to).map_err(as_text)?;
    remove_entries(to, |name| !from.join(name).exists()).map_err(as_text)?;
    for entry in fs_err::read_dir(from).map_err(as_text)? {
        let entry = entry.map_err(as_text)?;
        let (name, path) = (entry.file_name(), entry.path());
        match graph.filter(|(graph, _)| name.to_str() == Some(graph)) {
            Some((_, bytes)) => write_file(&to.join(name), bytes).map_err(as_text)?,
            None if files == VersionFiles::Link => link(&path, &to.join(name)).map_err(as_text)?,
            None if path.is_file() => fs_err::copy(path, to.join(name)).map(|_| ()).map_err(as_text)?,
            None => {}
        }
    }
    Ok(())
}

/// Writes a file unless it already has this content, because a new modification time makes the server reload the model.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if !path.is_symlink() && fs_err::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    remove(path)?;
    fs_err::write(path, bytes)
}

/// Creates a link to a file or folder, unless it exists.
fn link(target: &Path, at: &Path) -> io::Result<()> {
    if fs_err::read_link(at).is_ok_and(|there| there == target) {
        return Ok(());
    }
    remove(at)?;
    symlink(target, at)
}

/// Removes a file, a link or a folder, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs_err::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs_err::remove_dir_all(path),
        Ok(_) => fs_err::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Removes the entries of a folder whose names match.
fn remove_entries(folder: &Path, is_gone: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if is_gone(&entry.file_name()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The `sequence_batching` section for a graph whose states were made inputs and outputs. Each request runs alone, as in OVMS.
fn sequences(transformed: &Transformed, most: u32) -> String {
    let mut text = "max_batch_size: 0\nsequence_batching {\n".to_owned();
    let most = i32::try_from(most).unwrap_or(i32::MAX).max(1);
    let _ = writeln!(text, "  oldest {{ max_candidate_sequences: {most} }}");
    if let Some(start) = &transformed.start {
        let control = "kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ]";
        let _ = writeln!(text, "  control_input [ {{ name: {} control [ {{ {control} }} ] }} ]", quoted(start));
    }
    for NamedState { input, output, dtype, dims } in &transformed.states {
        let _ = writeln!(
            text,
            "  state [ {{ input_name: {} output_name: {} data_type: {} dims: {dims:?} }} ]",
            quoted(input),
            quoted(output),
            dtype.config_name(),
        );
    }
    text + "}\n"
}

/// The folders of the versions, sorted by version.
fn versions(base_path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut versions = Vec::new();
    for entry in fs_err::read_dir(base_path)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|number| *number > 0);
        versions.extend(number.filter(|_| entry.path().is_dir()).map(|number| (number, entry.path())));
    }
    versions.sort_unstable();
    Ok(versions)
}

/// The remedy for a model in another format.
const EXPORT: &str = "export the original model to ONNX, with its states as inputs and outputs";

/// The name of the only ONNX file in a folder.
fn onnx_file(version: &Path) -> Result<String, String> {
    let entries = fs_err::read_dir(version).map_err(|error| error.to_string())?;
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let onnx: Vec<&String> = names.iter().filter(|name| name.ends_with(".onnx")).collect();
    let has = |endings: &[&str]| names.iter().any(|name| endings.iter().any(|ending| name.ends_with(ending)));
    match onnx.as_slice() {
        [name] => Ok((*name).clone()),
        [] if has(&[".xml"]) => Err(format!(
            "OpenVINO IR (ReadValue, Assign, TensorIterator) is not served; {EXPORT}. For LSTM, GRU and RNN nodes of that file \
             low_latency_transformation makes the states"
        )),
        [] if has(&[".nnet", ".mdl", ".raw", ".ark"]) => Err(format!("Kaldi models are not served; {EXPORT}")),
        _ => Err(format!("{} does not have exactly one .onnx file", version.display())),
    }
}

/// A configuration that leaves inputs and outputs to the graph.
fn config(model: &OvmsModel, file: &str) -> String {
    let mut text = format!("name: {}\nbackend: \"onnxruntime\"\n", quoted(&model.name));
    let _ = writeln!(text, "default_model_filename: {}", quoted(file));
    let _ = writeln!(text, "instance_group [ {{ count: {} kind: KIND_CPU }} ]", model.nireq.unwrap_or(1));
    if let Some(policy) = &model.version_policy {
        let _ = writeln!(text, "version_policy: {{ {policy} }}");
    }
    text
}

fn sequor_toml(model: &OvmsModel, scan_minutes: u32, has_own_config: bool) -> String {
    let mut text = "schema = 1\n".to_owned();
    if !has_own_config {
        // OVMS runs each request alone, with any number of rows that the graph takes.
        text += "default_max_batch_size = 0\n";
    }
    if let Some(stateful) = model.stateful {
        let _ = writeln!(text, "[sequence]\nrules = \"ovms\"\nmax_live = {}", stateful.max_sequence_number.max(1));
        let scan = match stateful.idle_sequence_cleanup && scan_minutes > 0 {
            true => format!("idle_scan = \"{scan_minutes}m\""),
            false => "idle = \"never\"".to_owned(),
        };
        let _ = writeln!(text, "{scan}");
    }
    text
}

/// A text in the syntax of protobuf's text format.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::super::model::OvmsSequences;
    use super::*;

    const LINK: VersionFiles = VersionFiles::Link;

    fn model(base_path: &Path, stateful: Option<OvmsSequences>) -> OvmsModel {
        let (name, base_path) = ("m".to_owned(), base_path.to_owned());
        OvmsModel {
            name,
            base_path,
            nireq: Some(2),
            version_policy: Some("all { }".to_owned()),
            stateful,
            unsupported: None,
        }
    }

    /// A folder with two versions of a model.
    fn base() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        for version in ["1", "3", "notes"] {
            fs_err::create_dir(base.path().join(version)).unwrap();
            fs_err::write(base.path().join(version).join("net.onnx"), "graph").unwrap();
        }
        base
    }

    #[test]
    fn a_model_becomes_a_directory_of_a_repository() {
        let (base, folder) = (base(), tempfile::tempdir().unwrap());
        write(folder.path(), &[model(base.path(), None)], 5, VersionFiles::Link).unwrap();
        let read = |path: &str| fs_err::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!((read("m/1/net.onnx"), read("m/3/net.onnx")), ("graph".to_owned(), "graph".to_owned()));
        assert!(!folder.path().join("m/notes").exists());
        let config = read("m/config.pbtxt");
        let config = crate::config::model::text::parse(Path::new("config.pbtxt"), &config).unwrap();
        assert_eq!((config.name.as_str(), config.default_model_filename.as_str()), ("m", "net.onnx"));
        assert_eq!((config.instance_group[0].count, config.version_policy.is_some()), (2, true));
        assert_eq!(read("m/sequor.toml"), "schema = 1\ndefault_max_batch_size = 0\n");
    }

    #[test]
    fn a_stateful_model_needs_the_names_of_its_states() {
        let sequences = |cleanup, low_latency| OvmsSequences {
            idle_sequence_cleanup: cleanup,
            max_sequence_number: 7,
            low_latency_transformation: low_latency,
        };
        let (base, folder) = (base(), tempfile::tempdir().unwrap());
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, false)))], 5, LINK).unwrap_err();
        assert!(refused[0].starts_with("model m: the states of a stateful model must be named"), "{refused:?}");
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, true)))], 5, LINK).unwrap_err();
        assert!(refused[0].contains("is not an ONNX model"), "{refused:?}");
        fs_err::write(base.path().join("config.pbtxt"), "backend: \"onnxruntime\"").unwrap();
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, true)))], 5, LINK).unwrap_err();
        assert!(refused[0].contains("makes the configuration of its states itself"), "{refused:?}");
        for (cleanup, minutes, idle) in
            [(true, 5, "idle_scan = \"5m\""), (true, 0, "idle = \"never\""), (false, 5, "idle = \"never\"")]
        {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &[model(base.path(), Some(sequences(cleanup, false)))], minutes, LINK).unwrap();
            let toml = fs_err::read_to_string(folder.path().join("m/sequor.toml")).unwrap();
            assert_eq!(toml, format!("schema = 1\n[sequence]\nrules = \"ovms\"\nmax_live = 7\n{idle}\n"));
        }
    }

    #[test]
    fn models_of_openvino_are_refused_with_the_way_to_convert_them() {
        let (base, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs_err::create_dir(base.path().join("1")).unwrap();
        for (file, sentence) in [("net.xml", "OpenVINO IR"), ("net.nnet", "Kaldi models are not served")] {
            let path = base.path().join("1").join(file);
            fs_err::write(&path, "").unwrap();
            let refused = write(folder.path(), &[model(base.path(), None)], 5, LINK).unwrap_err();
            assert!(refused[0].contains(sentence) && refused[0].contains("to ONNX"), "{refused:?}");
            fs_err::remove_file(path).unwrap();
        }
    }
}
