//! The process and the machine as the search for ONNX Runtime's library sees them: variables, folders, files and their owners.
//! [`super::library`] defines the order of the search.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::probe::{Probe, probe};
use crate::config::trust;

/// The queries of the search.
pub trait Surroundings {
    fn variable(&self, name: &str) -> Option<OsString>;
    fn current_dir(&self) -> Option<PathBuf>;
    /// The folder of the running program.
    fn exe_dir(&self) -> Option<PathBuf>;
    /// The folders from which `python3` imports; empty without Python.
    fn python_path(&self) -> Vec<PathBuf>;
    /// The entries of a folder, in order of their names; none if it cannot be read.
    fn list(&self, dir: &Path) -> Vec<PathBuf>;
    fn probe(&self, path: &Path) -> Probe;
    /// Checks that only this user and root can change the file or folder. `Err` has the result to report.
    fn check_trusted(&self, path: &Path) -> Result<(), Probe>;
}

/// This process and this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Surroundings for System {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn current_dir(&self) -> Option<PathBuf> {
        std::env::current_dir().ok()
    }

    fn exe_dir(&self) -> Option<PathBuf> {
        std::env::current_exe().ok()?.parent().map(Path::to_owned)
    }

    fn python_path(&self) -> Vec<PathBuf> {
        let mut python = Command::new("python3");
        python.args(["-c", "import sys; print(*sys.path[1:], sep='\\n')"]).stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(output) = python.output() else {
            return Vec::new();
        };
        String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect()
    }

    fn list(&self, dir: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs_err::read_dir(dir) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    fn probe(&self, path: &Path) -> Probe {
        probe(path)
    }

    fn check_trusted(&self, path: &Path) -> Result<(), Probe> {
        trust::check_path(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Probe::Absent,
            _ => Probe::Untrusted(format!("{}: {error}", path.display())),
        })
    }
}
