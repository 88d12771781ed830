//! Downloads and unpacks Debian packages without installing them, which needs no root. It fetches the package lists into its own folder.
//! The machine's lists are as old as its last `apt-get update`, and may name packages that are too old or gone. This file does not know
//! what the packages are for.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::AuthorError;
use super::machine::{ask, run};

/// Debian's current package lists.
#[derive(Debug)]
pub(super) struct Apt {
    lists: TempDir,
}

impl Apt {
    /// Fetches the lists, about 20 MB, into a temporary folder within `scratch`.
    pub(super) fn update(scratch: &Path) -> Result<Apt, AuthorError> {
        let lists = tempfile::Builder::new().prefix("apt-").tempdir_in(scratch)?;
        for folder in ["lists/partial", "archives/partial"] {
            std::fs::create_dir_all(lists.path().join(folder))?;
        }
        let apt = Apt { lists };
        run(apt.command("apt-get").arg("update"), "; is there a network?")?;
        Ok(apt)
    }

    /// A temporary folder that is deleted with this object.
    pub(super) fn scratch(&self) -> &Path {
        self.lists.path()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = |name: &str, at: &str| format!("Dir::{name}={}", self.lists.path().join(at).display());
        for option in [
            folder("State::Lists", "lists"),
            folder("Cache", "."),
            // Do not switch to apt's own user, who may not write here.
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Retries=2".to_owned(),
            "Acquire::http::Timeout=30".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        if program == "apt-get" {
            command.arg("-qq");
        }
        command
    }

    /// The dependency of a package whose name begins with this prefix.
    pub(super) fn depends(&self, package: &str, prefix: &str) -> Option<String> {
        dependency(&ask(self.command("apt-cache").args(["depends", package]))?, prefix)
    }

    /// Fetches packages and unpacks them into a folder.
    pub(super) fn unpack(&self, packages: &[String], into: &Path) -> Result<(), AuthorError> {
        run(self.command("apt-get").arg("download").args(packages).current_dir(into), "")?;
        for entry in std::fs::read_dir(into)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "deb") {
                run(Command::new("dpkg").arg("-x").arg(&path).arg(into), "")?;
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

fn dependency(listed: &str, prefix: &str) -> Option<String> {
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.starts_with(prefix)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_versioned_package_is_found_in_the_dependencies_of_another() {
        let listed = "libstd-rust-web-1.96\n  Depends: libc6\n  Depends: libllvm22\n  Conflicts: <rustup>\n";
        assert_eq!(dependency(listed, "libllvm"), Some("libllvm22".to_owned()));
        assert_eq!(dependency(listed, "libstd"), None);
    }
}
