//! Who says which models are served: what lies in the repository at the start, what lies there now, or the requests of clients.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::server::file::ControlMode;
use crate::error::{self, Failure, LoadError};
use crate::model::catalog::Fingerprint;

use super::control::Control;
use super::facade::{Entry, Repository};
use super::loading::model_directories;

impl Repository {
    /// Says who loads models. To be called once, before any request.
    pub fn govern(&self, control: Control) {
        if self.0.control.set(control).is_err() {
            tracing::error!("who loads models was settled before");
        }
    }

    /// Loads a model because a client asked for it, or what has changed of it.
    pub fn load_by_request(&self, model: &str, config: Option<&str>) -> Result<(), Failure> {
        let control = self.explicit()?;
        let absent = || Failure::Control(error::Control::Absent { model: model.to_owned() });
        let directory = control.locate(model).ok_or_else(absent)?;
        self.bring(model, &directory, config, false).map_err(|faults| {
            let why = faults.iter().map(LoadError::to_string).collect();
            Failure::Control(error::Control::Failed { model: model.to_owned(), why })
        })
    }

    /// Unloads a model because a client asked for it. What is not loaded is unloaded already.
    pub fn unload_by_request(&self, model: &str) -> Result<(), Failure> {
        self.explicit()?;
        self.unload(model);
        Ok(())
    }

    fn explicit(&self) -> Result<&Control, Failure> {
        let explicit = self.0.control.get().filter(|control| control.mode == ControlMode::Explicit);
        explicit.ok_or(Failure::Control(error::Control::NotExplicit))
    }

    /// Loads these models at the start; `*` is all. What fails is told in [`Repository::statuses`].
    pub fn load_wanted(&self, models: &[String]) -> Result<(), LoadError> {
        let Some(control) = self.0.control.get() else { return Ok(()) };
        if models.iter().any(|name| name == "*") {
            return control.directories.iter().try_for_each(|directory| self.load_all(directory));
        }
        for name in models {
            match control.locate(name) {
                Some(directory) => self.load(&directory),
                None => self.miss(name, &control.directories),
            }
        }
        Ok(())
    }

    /// Notes that a wanted model is nowhere.
    fn miss(&self, name: &str, directories: &[PathBuf]) {
        let path = directories.first().cloned().unwrap_or_default().join(name);
        let fault = LoadError::File { path, what: "there is no such model".to_owned() };
        self.edit(name, |entry| {
            entry.wanted = true;
            entry.fail(name, vec![fault], Duration::ZERO);
        });
    }

    /// Takes a model out of service at once: what lives on it ends, what runs is answered.
    pub(in crate::model) fn unload(&self, name: &str) {
        let Some(gate) = self.0.models.read().get(name).map(|entry| Arc::clone(&entry.gate)) else { return };
        let _held = gate.lock();
        let model = {
            let mut models = self.0.models.write();
            let Some(entry) = models.get_mut(name) else { return };
            entry.close();
            entry.model.clone()
        };
        let Some(model) = model else { return };
        let now = model.now();
        let keys: Vec<_> = model.loads().iter().map(|load| load.key).collect();
        for key in keys {
            model.retire(key, now);
        }
        tracing::info!(model = name, "unloaded");
    }

    // === polling ===

    /// Looks at the repository once: loads what is new or changed, unloads what is gone.
    pub fn poll(&self) {
        let Some(control) = self.0.control.get() else { return };
        let (mut present, mut complete) = (BTreeSet::new(), true);
        for directory in &control.directories {
            match model_directories(directory) {
                Ok(models) => models.iter().for_each(|path| self.poll_one(path, &mut present)),
                Err(error) => {
                    tracing::error!(%error, "the model repository cannot be read");
                    complete = false;
                }
            }
        }
        // What cannot be seen just now is not gone.
        if complete {
            let gone: Vec<String> =
                self.0.models.read().keys().filter(|name| !present.contains(*name)).cloned().collect();
            gone.iter().for_each(|name| self.unload(name));
        }
    }

    fn poll_one(&self, path: &Path, present: &mut BTreeSet<String>) {
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else { return };
        if !present.insert(name.clone()) {
            return;
        }
        let tried = self.0.models.read().get(&name).filter(|entry| entry.is_settled()).and_then(|e| e.tried.clone());
        if tried.is_some() && Fingerprint::of(path, None).ok() == tried {
            return;
        }
        if let Err(faults) = self.bring(&name, path, None, true) {
            for fault in faults {
                tracing::error!(model = name, "{fault}");
            }
        }
    }
}

impl Entry {
    fn close(&mut self) {
        (self.open, self.wanted, self.status, self.served, self.tried) = (false, false, None, None, None);
        self.faults.clear();
    }

    /// Whether it was loaded, or could not be, and was not unloaded since.
    fn is_settled(&self) -> bool {
        self.status.is_some()
    }
}
