//! Debian's packages, unpacked and not installed, which needs no root. Lists of packages are fetched into a folder of our own: those of the machine
//! are as old as its last `apt-get update`, and may name what is too old or no longer there. What packages are for is nothing to this file.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::AuthorError;
use super::machine::{ask, run};

/// Debian's packages as they are today.
#[derive(Debug)]
pub(super) struct Apt {
    lists: TempDir,
}

impl Apt {
    /// Fetches the lists, about 20 MB, into a scratch folder within `scratch`.
    pub(super) fn update(scratch: &Path) -> Result<Apt, AuthorError> {
        let lists = tempfile::Builder::new().prefix("apt-").tempdir_in(scratch)?;
        for folder in ["lists/partial", "archives/partial"] {
            std::fs::create_dir_all(lists.path().join(folder))?;
        }
        let apt = Apt { lists };
        run(apt.command("apt-get").arg("update"), "; is there a network?")?;
        Ok(apt)
    }

    /// A folder that is gone when this is.
    pub(super) fn scratch(&self) -> &Path {
        self.lists.path()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = |name: &str, at: &str| format!("Dir::{name}={}", self.lists.path().join(at).display());
        for option in [
            folder("State::Lists", "lists"),
            folder("Cache", "."),
            // Another user's, who may not write here.
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

    /// The package whose name begins like this that another one depends on.
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
    fn packages_are_found_through_what_others_depend_on() {
        let listed = "libstd-rust-web-1.96\n  Depends: libc6\n  Depends: libllvm22\n  Conflicts: <rustup>\n";
        assert_eq!(dependency(listed, "libllvm"), Some("libllvm22".to_owned()));
        assert_eq!(dependency(listed, "libstd"), None);
    }
}
