//! Merges defaults, file, environment and flags; each overrides the one before. Records the origin of each value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::file::{ServerFile, keys};
use super::flags::GivenFlags;
use super::key::Key;
use super::otlp_variables::{SAMPLER, VARIABLES, sampler};
use crate::config::fault::{Fault, code};
use crate::config::place::Place;
use crate::config::toml_file;
use crate::error::At;

/// The layer that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(At),
    /// The environment variable.
    Environment(String),
    /// The flag, as it was written.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(at) => f.write_str(at.to_string().trim_end_matches(':')),
            Origin::Environment(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

impl Origin {
    /// The place for a fault of such a value.
    pub(super) fn at(&self) -> At {
        match self {
            Origin::Default => At::default(),
            Origin::File(at) => at.clone(),
            Origin::Environment(name) | Origin::Flag(name) => Place::UNKNOWN.at(Path::new(name)),
        }
    }
}

/// The merged layers.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Layers {
    table: Table,
    /// The origin of each key that some layer sets.
    pub(super) origins: BTreeMap<&'static str, Origin>,
    pub(super) faults: Vec<Fault>,
    /// The file's path and text.
    file: Option<(PathBuf, String)>,
    /// The paths of the faulty entries of the file, which are not in the table.
    left_out: Vec<Vec<String>>,
}

/// Hides the values, because some are secrets.
impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").field("origins", &self.origins).field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl Layers {
    /// Merges the layers above the defaults.
    pub(super) fn of(
        file: Option<(&Path, &str)>,
        variable: &dyn Fn(&str) -> Option<String>,
        given: &GivenFlags,
    ) -> Layers {
        let mut layers = Layers::default();
        if let Some((path, text)) = file {
            layers.file(path, text);
        }
        layers.environment(variable);
        layers.flags(given);
        layers
    }

    /// Applies the file, the lowest layer above the defaults.
    fn file(&mut self, path: &Path, text: &str) {
        let toml_file::AcceptedEntries { table, faults, left_out } =
            toml_file::accepted::<ServerFile>(path, text, &is_offered);
        self.faults.extend(faults);
        (self.table, self.left_out) = (table, left_out);
        self.file = Some((path.to_owned(), text.to_owned()));
        for key in keys() {
            if let Some(place) = toml_file::find(text, &key.parts()) {
                self.origins.insert(key.path, Origin::File(place.at(path)));
            }
        }
    }

    fn environment(&mut self, variable: &dyn Fn(&str) -> Option<String>) {
        for key in keys() {
            for name in VARIABLES.iter().filter(|(path, _)| *path == key.path).flat_map(|(_, names)| names) {
                // OpenTelemetry defines an empty variable as one that is not set.
                if let Some(text) = variable(name).filter(|text| !text.is_empty()) {
                    self.set(key, Origin::Environment((*name).to_owned()), key.kind.read(&text));
                }
            }
            if key.path == "otlp.sample"
                && let Some(of) = sampler(variable)
            {
                let share = of.and_then(|sampler| key.kind.read(&sampler.share));
                self.set(key, Origin::Environment(SAMPLER.to_owned()), share);
            }
            let name = key.variable();
            if let Some(text) = variable(&name) {
                let value = key.kind.read(&text);
                self.set(key, Origin::Environment(name), value);
            }
        }
    }

    fn flags(&mut self, given: &GivenFlags) {
        for (flag, code, what) in &given.wrong {
            self.faults.push(Fault { at: Origin::Flag(flag.clone()).at(), code, what: what.clone() });
        }
        for (path, flag, texts) in &given.values {
            let Some(key) = keys().find(|key| key.path == *path) else { continue };
            let values: Result<Vec<Value>, String> = texts.iter().map(|text| key.kind.read(text)).collect();
            let value = values.map(one).transpose().unwrap_or_else(|| Err("no value".to_owned()));
            self.set(key, Origin::Flag(flag.clone()), value);
        }
    }

    /// Overrides one value, if the new one is valid.
    fn set(&mut self, key: &'static Key, origin: Origin, value: Result<Value, String>) {
        let checked = value.and_then(|value| {
            let mut alone = Table::new();
            insert(&mut alone, &key.parts(), value.clone());
            alone.try_into::<ServerFile>().map(|_| value).map_err(|e| e.message().to_owned())
        });
        match checked {
            Ok(value) => {
                insert(&mut self.table, &key.parts(), value);
                self.origins.insert(key.path, origin);
            }
            Err(what) => self.faults.push(Fault { at: origin.at(), code: code::VALUE, what }),
        }
    }

    /// All values, with defaults for the keys that no layer sets.
    pub(super) fn merged(&mut self) -> ServerFile {
        self.table.clone().try_into().unwrap_or_else(|e: toml::de::Error| {
            // Every value was checked alone before, so this should not happen. A fault is still better than silently using defaults.
            self.faults.push(Fault { at: At::default(), code: code::VALUE, what: e.message().to_owned() });
            ServerFile::default()
        })
    }

    /// The value that a layer sets, as it was written.
    pub(super) fn given(&self, key: &Key) -> Option<&Value> {
        let (first, rest) = key.path.split_once('.').map_or((key.path, None), |(section, name)| (section, Some(name)));
        let value = self.table.get(first)?;
        rest.map_or(Some(value), |name| value.get(name))
    }

    /// Takes the value of a key, and its origin, from other layers.
    pub(super) fn take_from(&mut self, other: &Layers, key: &'static Key) {
        match other.given(key) {
            Some(value) => insert(&mut self.table, &key.parts(), value.clone()),
            None => remove(&mut self.table, &key.parts()),
        }
        match other.origins.get(key.path) {
            Some(origin) => self.origins.insert(key.path, origin.clone()),
            None => self.origins.remove(key.path),
        };
    }

    pub(super) fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }

    /// The fault of a value, at the place that sets it.
    pub(super) fn fault(&self, path: &str, what: String) -> Fault {
        Fault { at: self.origin(path).at(), code: code::VALUE, what }
    }

    /// Whether an entry of this section of the file was left out, or may be one of it. The section of a key without one is "".
    pub(super) fn is_incomplete(&self, section: &str) -> bool {
        self.left_out.iter().any(|path| match path.first() {
            Some(name) => section_of(name).is_none_or(|of| of == section),
            None => true,
        })
    }

    /// The place of a key in the file.
    pub(super) fn file_at(&self, key: &[&str]) -> At {
        self.file.as_ref().map(|(path, text)| toml_file::place(text, key).at(path)).unwrap_or_default()
    }
}

/// The section of an entry with this name at the top of the file. `None` if there is none.
fn section_of(name: &str) -> Option<&str> {
    keys().find_map(|key| match key.path.split_once('.') {
        Some((section, _)) if section == name => Some(name),
        None if key.path == name => Some(""),
        _ => None,
    })
}

/// Whether to suggest this name for a misspelled one: it is part of the path of a key.
fn is_offered(name: &str) -> bool {
    name == "schema" || keys().any(|key| key.path.split('.').any(|part| part == name))
}

/// Merges several values of one flag: lists are joined; of other types the last value counts.
fn one(values: Vec<Value>) -> Option<Value> {
    values.into_iter().reduce(|mut joined, value| match (&mut joined, value) {
        (Value::Array(all), Value::Array(more)) => {
            all.extend(more);
            joined
        }
        (_, last) => last,
    })
}

fn insert(table: &mut Table, path: &[&str], value: Value) {
    match path {
        [name] => {
            table.insert((*name).to_owned(), value);
        }
        [section, rest @ ..] => {
            let inner = table.entry((*section).to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
        [] => {}
    }
}

fn remove(table: &mut Table, path: &[&str]) {
    match path {
        [name] => {
            table.remove(*name);
        }
        [section, rest @ ..] => {
            if let Some(Value::Table(inner)) = table.get_mut(*section) {
                remove(inner, rest);
            }
        }
        [] => {}
    }
}
