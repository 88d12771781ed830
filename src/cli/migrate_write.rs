//! Writes the files that a Triton repository lacks: a `sequor.toml` for each model with states whose batch axis config.pbtxt cannot
//! express.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::config::model::draft::{Draft, MovedState};
use crate::config::model::versions;
use crate::config::onnx;

/// The keys that a model's `sequor.toml` must have.
#[derive(Debug)]
pub(super) struct MissingKeys {
    pub(super) states: Vec<MovedState>,
    /// The current text of its `sequor.toml`; empty without one.
    present: String,
}

/// The keys that a model lacks, according to its configuration and its newest graph. `sequor check` reports a graph that cannot be read.
pub(super) fn missing(draft: &Draft) -> Option<MissingKeys> {
    let newest = versions::versions_in(&draft.directory).ok()?.into_iter().max()?;
    if !draft.has_states() {
        return None;
    }
    let inputs = onnx::input_dims(&fs_err::read(draft.file(newest)).ok()?).ok()?;
    let states = draft.moved_states(&inputs);
    let present = fs_err::read_to_string(draft.directory.join("sequor.toml")).unwrap_or_default();
    (!states.is_empty()).then_some(MissingKeys { states, present })
}

/// Writes `FOLDER/MODEL/sequor.toml`. An existing file is never replaced.
pub(super) fn write(folder: &Path, model: &str, missing: &MissingKeys) -> Result<PathBuf, String> {
    let MissingKeys { states, present } = missing;
    let path = folder.join(model).join("sequor.toml");
    let keys: String = states.iter().map(MovedState::toml).collect();
    let by_hand = |why: &str| format!("{}: {why}; add by hand: {}", path.display(), keys.trim().replace('\n', " "));
    if let Some(state) = states.iter().find(|state| state.has_table) {
        return Err(by_hand(&format!("the file has a table for state \"{}\" already", state.name)));
    }
    let begin = if present.is_empty() { "schema = 1" } else { present.trim_end() };
    let text = format!("{begin}\n\n{keys}");
    let create = || -> io::Result<()> {
        fs_err::create_dir_all(folder.join(model))?;
        let mut file = fs_err::OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.write_all(text.as_bytes())
    };
    match create() {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(by_hand("the file is there already")),
        Err(error) => Err(error.to_string()),
    }
}
