//! Keeps the repository of OVMS's models up to date while it is served: it follows `config.json` and the folders of versions.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::file::{self, OvmsNotice};
use super::layout::{self, VersionFiles};
use super::model::OvmsModel;
use crate::config::model::versions::version_of;
use crate::error::RefusedModel;

/// The source of the models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OvmsModels {
    /// In `config.json`.
    File(PathBuf),
    /// On the command line.
    Given(Vec<OvmsModel>),
}

/// Why a refresh has not brought the repository up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefreshError {
    /// `config.json` cannot be read. The repository is unchanged.
    Unreadable(String),
    /// `config.json` is wrong. The repository is unchanged.
    Invalid(Vec<String>),
    /// These models stay as they were. All others are up to date.
    Models(Vec<RefusedModel>),
}

/// A repository generated from OVMS's models.
#[derive(Debug)]
pub struct OvmsRepository {
    folder: PathBuf,
    models: OvmsModels,
    /// Minutes between two scans for idle sequences; 0 turns scans off.
    scan_minutes: u32,
    /// The stamp of each model at the time when its directory was written.
    written: Mutex<BTreeMap<String, ModelStamp>>,
    /// Options without effect that the latest writes have found.
    notices: Mutex<Vec<OvmsNotice>>,
}

/// The sentence of OVMS, and what to do.
const TYPE_CHANGED: &str = "Model type cannot be changed after it is loaded (stateful is not what it was; give the model another name, or restart the server)";

/// The inputs from which a model's directory was written.
#[derive(Debug, PartialEq)]
struct ModelStamp {
    model: OvmsModel,
    /// The files of its base path and of its versions.
    files: Vec<(PathBuf, SystemTime, u64)>,
}

impl OvmsRepository {
    /// Creates the repository's description. Writes nothing yet.
    pub fn new(folder: &Path, models: OvmsModels, scan_minutes: u32) -> OvmsRepository {
        OvmsRepository {
            folder: folder.to_owned(),
            models,
            scan_minutes,
            written: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// The options without effect of the models that were written since the last call.
    pub fn take_notices(&self) -> Vec<OvmsNotice> {
        std::mem::take(&mut self.notices.lock())
    }

    /// The operator's file from which a file of the repository was made.
    pub fn original(&self, path: &Path) -> Option<PathBuf> {
        let mut parts = path.strip_prefix(&self.folder).ok()?.components();
        let model = parts.next()?.as_os_str().to_str()?;
        let original = self.written.lock().get(model)?.model.base_path.join(parts.as_path());
        original.is_file().then_some(original)
    }

    /// Scans the models once, and writes the changed ones. If a model cannot be written, its directory stays as it was.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        let models = match &self.models {
            OvmsModels::Given(models) => models.clone(),
            OvmsModels::File(path) => {
                let text = fs_err::read_to_string(path).map_err(|error| RefreshError::Unreadable(error.to_string()))?;
                let parsed = file::parse(path, &text);
                parsed.map_err(|faults| RefreshError::Invalid(faults.iter().map(ToString::to_string).collect()))?.models
            }
        };
        let mut written = self.written.lock();
        let gone: Vec<String> =
            written.keys().filter(|name| !models.iter().any(|model| model.name == **name)).cloned().collect();
        let removed = gone.into_iter().map(|name| {
            written.remove(&name);
            let removed = fs_err::remove_dir_all(self.folder.join(&name));
            removed.map_err(|error| RefusedModel { model: name, what: error.to_string() })
        });
        let mut wrong: Vec<RefusedModel> = removed.filter_map(Result::err).collect();
        for model in models {
            if let Err(what) = self.write(&model, &mut written) {
                wrong.push(RefusedModel { model: model.name, what });
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(RefreshError::Models(wrong)) }
    }

    fn write(&self, model: &OvmsModel, written: &mut BTreeMap<String, ModelStamp>) -> Result<(), String> {
        model.check_supported()?;
        // As in OVMS. Otherwise clients with or without sequences would get answers of the other kind of model.
        if written.get(&model.name).is_some_and(|stamp| stamp.model.stateful.is_some() != model.stateful.is_some()) {
            return Err(TYPE_CHANGED.to_owned());
        }
        let files = files(&model.base_path).map_err(|error| error.to_string())?;
        let stamp = ModelStamp { model: model.clone(), files };
        if written.get(&model.name) == Some(&stamp) {
            return Ok(());
        }
        let notices = layout::write_one(&self.folder, model, self.scan_minutes, VersionFiles::Link)?;
        let notice = |text: String| OvmsNotice { model: Some(model.name.clone()), text };
        self.notices.lock().extend(notices.into_iter().map(notice));
        written.insert(model.name.clone(), stamp);
        Ok(())
    }
}

/// The files of a base path and of its versions, and the names of other folders, sorted. A file that disappears meanwhile is left out,
/// and so are the files of a folder that cannot be read.
fn files(base_path: &Path) -> io::Result<Vec<(PathBuf, SystemTime, u64)>> {
    let mut files = Vec::new();
    let stamp = |path: PathBuf| {
        let metadata = fs_err::metadata(&path).ok()?;
        Some((path, metadata.modified().ok()?, metadata.len()))
    };
    for entry in fs_err::read_dir(base_path)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        if !path.is_dir() {
            files.extend(stamp(path));
        } else if name.to_str().and_then(version_of).is_some() {
            let within = fs_err::read_dir(&path).into_iter().flatten();
            files.extend(within.filter_map(|entry| stamp(entry.ok()?.path())));
        } else {
            // Their times change with their files and with the server's links.
            files.push((path, SystemTime::UNIX_EPOCH, 0));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(base: &Path, number: u32) {
        fs_err::create_dir_all(base.join(number.to_string())).unwrap();
        fs_err::write(base.join(number.to_string()).join("net.onnx"), "graph").unwrap();
    }

    /// All files of the repository, with their times.
    fn listed(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
        let mut all = Vec::new();
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => all.extend(listed(&path)),
                false => all.push((path.clone(), fs_err::metadata(&path).unwrap().modified().unwrap())),
            }
        }
        all.sort();
        all
    }

    #[test]
    fn the_repository_follows_the_file_and_the_versions() {
        let (work, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (base, config) = (work.path().join("base"), work.path().join("config.json"));
        version(&base, 1);
        let entry = |name: &str| serde_json::json!({ "config": { "name": name, "base_path": base } });
        let name = |names: &[&str]| {
            let list: Vec<_> = names.iter().map(|name| entry(name)).collect();
            fs_err::write(&config, serde_json::json!({ "model_config_list": list }).to_string()).unwrap();
        };
        let repository = OvmsRepository::new(folder.path(), OvmsModels::File(config.clone()), 5);
        let there = |path: &str| folder.path().join(path).exists();
        name(&["a"]);
        repository.refresh().unwrap();
        let before = listed(folder.path());
        repository.refresh().unwrap();
        assert_eq!((there("a/1/model.onnx"), listed(folder.path())), (true, before.clone()));
        // A new version does not touch the configuration.
        version(&base, 2);
        repository.refresh().unwrap();
        let after = listed(folder.path());
        let is_config = |path: &Path| path.extension().is_some_and(|end| end != "onnx");
        let kept = before.iter().filter(|(path, _)| is_config(path)).all(|file| after.contains(file));
        assert!(there("a/2/model.onnx") && !there("a/1") && kept, "{before:?} {after:?}");
        fs_err::remove_dir_all(base.join("1")).unwrap();
        name(&["a", "b"]);
        repository.refresh().unwrap();
        assert_eq!([there("a/1"), there("a/2/model.onnx"), there("b/2/model.onnx")], [false, true, true]);
        // A version that is still being copied changes nothing.
        fs_err::create_dir(base.join("3")).unwrap();
        fs_err::write(base.join("3/net.part"), "gra").unwrap();
        let Err(RefreshError::Models(wrong)) = repository.refresh() else { panic!("it has no file") };
        let names: Vec<&str> = wrong.iter().map(|refused| refused.model.as_str()).collect();
        assert_eq!(
            (names.as_slice(), there("a/2/model.onnx"), there("a/3")),
            (&["a", "b"][..], true, false),
            "{wrong:?}"
        );
        fs_err::remove_dir_all(base.join("3")).unwrap();
        // A wrong or missing `config.json` changes nothing either.
        fs_err::write(&config, "{").unwrap();
        assert!(matches!(repository.refresh(), Err(RefreshError::Invalid(_))));
        fs_err::remove_file(&config).unwrap();
        assert!(matches!(repository.refresh(), Err(RefreshError::Unreadable(_))));
        assert!(there("a/2/model.onnx") && there("b/2/model.onnx"));
        name(&["b"]);
        repository.refresh().unwrap();
        assert_eq!([there("a"), there("b/2/model.onnx")], [false, true]);
    }

    #[test]
    fn a_reload_cannot_change_stateful_of_a_served_model() {
        let (work, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (base, config) = (work.path().join("base"), work.path().join("config.json"));
        version(&base, 1);
        let write = |models: &[serde_json::Value]| {
            let list: Vec<_> = models.iter().map(|model| serde_json::json!({ "config": model })).collect();
            fs_err::write(&config, serde_json::json!({ "model_config_list": list }).to_string()).unwrap();
        };
        fs_err::write(base.join("config.pbtxt"), "backend: \"onnxruntime\" sequence_batching { }").unwrap();
        let model = |stateful: bool| serde_json::json!({ "name": "a", "base_path": base, "stateful": stateful });
        let repository = OvmsRepository::new(folder.path(), OvmsModels::File(config.clone()), 5);
        for first in [true, false] {
            write(&[model(first)]);
            repository.refresh().unwrap();
            let before = listed(folder.path());
            write(&[model(!first)]);
            let Err(RefreshError::Models(wrong)) = repository.refresh() else {
                panic!("the type of the model has changed")
            };
            assert!(wrong.len() == 1 && wrong[0].model == "a", "{wrong:?}");
            assert!(wrong[0].what.starts_with("Model type cannot be changed after it is loaded"), "{wrong:?}");
            assert_eq!(listed(folder.path()), before, "the model stays as it was");
            // A model that is as it was, or has other options of its kind, is accepted again.
            write(&[model(first)]);
            repository.refresh().unwrap();
            // A model that was absent counts as a new one.
            write(&[]);
            repository.refresh().unwrap();
        }
        write(&[model(true)]);
        repository.refresh().unwrap();
        let mut other = model(true);
        other["max_sequence_number"] = 7.into();
        write(&[other]);
        repository.refresh().unwrap();
    }

    #[test]
    fn folders_that_are_no_versions_do_not_matter() {
        use std::os::unix::fs::PermissionsExt as _;
        let (work, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = work.path().join("base");
        version(&base, 1);
        let closed = base.join("lost+found");
        fs_err::create_dir(&closed).unwrap();
        fs_err::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        let line = serde_json::json!({ "model_config_list": [{ "config": { "name": "a", "base_path": base } }] });
        let models = file::parse(Path::new("c.json"), &line.to_string()).unwrap().models;
        let repository = OvmsRepository::new(folder.path(), OvmsModels::Given(models), 5);
        assert_eq!(repository.refresh(), Ok(()));
        fs_err::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
        let before = listed(folder.path());
        fs_err::write(closed.join("other"), "").unwrap();
        assert_eq!((repository.refresh(), listed(folder.path())), (Ok(()), before));
    }

    #[test]
    fn a_file_of_the_repository_has_its_original() {
        let (work, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (base, config) = (work.path().join("base"), work.path().join("config.json"));
        version(&base, 1);
        fs_err::write(base.join("config.pbtxt"), "sequence_batching { }").unwrap();
        let line = serde_json::json!({ "name": "a", "base_path": base, "stateful": true });
        let list = serde_json::json!({ "model_config_list": [{ "config": line }] });
        fs_err::write(&config, list.to_string()).unwrap();
        let repository = OvmsRepository::new(folder.path(), OvmsModels::File(config), 5);
        repository.refresh().unwrap();
        let original = |name: &str| repository.original(&folder.path().join("a").join(name));
        assert_eq!(original("config.pbtxt"), Some(base.join("config.pbtxt")));
        assert_eq!((original("sequor.toml"), repository.original(&base)), (None, None));
        let notices: Vec<String> = repository.take_notices().iter().map(ToString::to_string).collect();
        assert!(notices[0].starts_with("model a: max_sequence_number is 500, but "), "{notices:?}");
        assert_eq!(repository.take_notices(), []);
    }
}
