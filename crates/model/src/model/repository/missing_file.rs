//! Explains the failure to load a model whose file is absent: which key names the file, and which files the version directory has.

use std::path::{Path, PathBuf};

use crate::error::LoadError;

/// Maximum number of files that a message lists.
const LISTED: usize = 5;

/// Adds advice to each fault of a file that is absent. `version` is the version directory, `key` the key of `config.pbtxt` that names the
/// file.
pub(super) fn explained(faults: Vec<LoadError>, version: &Path, key: &str) -> Vec<LoadError> {
    let explain = |fault| match fault {
        LoadError::File { path, what } if is_absent(&path) => {
            let what = format!("{what}. {}", advice(&path, version, key));
            LoadError::File { path, what }
        }
        other => other,
    };
    faults.into_iter().map(explain).collect()
}

/// Whether the file is certainly absent. A file in a directory that this process may not read is not.
fn is_absent(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

fn advice(path: &Path, version: &Path, key: &str) -> String {
    let wanted = path.strip_prefix(version).unwrap_or(path).display();
    let files = names_in(version);
    let models: Vec<&PathBuf> = files.iter().filter(|name| is_graph(name)).collect();
    match models.as_slice() {
        [] if files.is_empty() => {
            format!("The version directory has no files: put the model there as {wanted}, or set {key} in config.pbtxt")
        }
        [] => {
            format!(
                "The version directory has no .onnx file, only {}: put the model there as {wanted}, or set {key} in config.pbtxt",
                listed(&files)
            )
        }
        [only] => {
            let name = only.to_string_lossy();
            format!("The version directory has {name:?}: set {key} in config.pbtxt to it, or rename it to {wanted}")
        }
        several => {
            let names: Vec<PathBuf> = several.iter().map(|name| (*name).clone()).collect();
            format!("The version directory has {}: set {key} in config.pbtxt to one of them", listed(&names))
        }
    }
}

/// The names in a directory, sorted. Hidden files are left out.
fn names_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| PathBuf::from(entry.file_name()));
    let mut names: Vec<PathBuf> = names.filter(|name| !name.to_string_lossy().starts_with('.')).collect();
    names.sort();
    names
}

fn is_graph(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx") || extension == "ort")
}

fn listed(names: &[PathBuf]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("{:?}", name.to_string_lossy())).collect();
    let more = names.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message about an absent `model.onnx` in a version directory with these files.
    fn message(files: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            fs_err::write(folder.path().join(file), "").unwrap();
        }
        let fault = LoadError::File { path: folder.path().join("model.onnx"), what: "absent".to_owned() };
        match explained(vec![fault], folder.path(), "default_model_filename").remove(0) {
            LoadError::File { what, .. } => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_absent_model_file_is_explained_by_the_files_that_are_there() {
        let messages = [
            message(&[]),
            message(&["encoder.onnx", "encoder.onnx.data", ".hidden.onnx"]),
            message(&["b.ONNX", "a.onnx"]),
            message(&["a", "b", "c", "d", "e", "f.pt", "g"]),
        ];
        insta::assert_snapshot!(messages.join("\n"), @r#"
        absent. The version directory has no files: put the model there as model.onnx, or set default_model_filename in config.pbtxt
        absent. The version directory has "encoder.onnx": set default_model_filename in config.pbtxt to it, or rename it to model.onnx
        absent. The version directory has "a.onnx", "b.ONNX": set default_model_filename in config.pbtxt to one of them
        absent. The version directory has no .onnx file, only "a", "b", "c", "d", "e" and 2 more: put the model there as model.onnx, or set default_model_filename in config.pbtxt
        "#);
    }

    #[test]
    fn a_file_that_is_there_but_wrong_keeps_its_message() {
        assert_eq!(message(&["model.onnx", "other.onnx"]), "absent");
    }
}
