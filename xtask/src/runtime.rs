//! ONNX Runtime. The server knows where to look for it and how to install it; a recipe only calls the server.

use std::path::Path;

use anyhow::Result;

use crate::process;

/// Installs ONNX Runtime if the server finds none.
pub(crate) fn ensure(sequor: &Path) -> Result<String> {
    if process::succeeds(process::command(sequor).args(["runtime", "path"])) {
        return Ok("already there".to_owned());
    }
    process::run(process::command(sequor).args(["runtime", "install"]))?;
    Ok("installed".to_owned())
}
