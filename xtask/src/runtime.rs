//! ONNX Runtime: the server knows where it looks and how to get one; a recipe only asks.

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
