//! Other servers that tests start: Redis and HAProxy. Installed ones, or Debian's, unpacked without installation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{debian, process};

/// A server, as Debian packages it.
pub(crate) struct OtherServer {
    package: &'static str,
    /// Its program within the package.
    path: &'static str,
    /// Programs that will do if they are installed.
    installed: &'static [&'static str],
    /// The argument that makes it print its version and end.
    version: &'static str,
}

pub(crate) const REDIS: OtherServer = OtherServer {
    package: "redis-server",
    path: "usr/bin/redis-server",
    installed: &["redis-server", "valkey-server"],
    version: "--version",
};
pub(crate) const HAPROXY: OtherServer =
    OtherServer { package: "haproxy", path: "usr/sbin/haproxy", installed: &["haproxy"], version: "-v" };

impl OtherServer {
    fn folder(&self) -> PathBuf {
        process::kept().join(self.package)
    }

    /// A script that starts it with its libraries. Exists once [`Self::ensure`] has run.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder().join(self.package)
    }

    pub(crate) fn ensure(&self) -> Result<String> {
        let (folder, program) = (self.folder(), self.program());
        if self.works(&program) {
            return Ok(format!("{} is already there", self.package));
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        if let Some(name) = self.installed.iter().find(|name| self.works(Path::new(name))) {
            debian::write_script(&program, &format!("#!/bin/sh\nexec {name} \"$@\"\n"))?;
            return Ok(format!("{name} is installed"));
        }
        let root = debian::unpack(self.package, &folder)?;
        let (lib, server) = (debian::libraries(&root), root.join(self.path));
        let script = format!("#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n", lib.display(), server.display());
        debian::write_script(&program, &script)?;
        if !self.works(&program) {
            bail!("{} does not start", program.display());
        }
        Ok(format!("unpacked {}", self.package))
    }

    fn works(&self, program: &Path) -> bool {
        process::succeeds(process::command(program).arg(self.version))
    }
}
