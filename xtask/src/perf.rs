//! Triton's own load generator, `perf_analyzer`, and its libraries: from PyPI by hash, into a separate folder.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{process, python};

fn folder() -> PathBuf {
    process::kept().join("perf_analyzer")
}

/// The path of the program. Exists once [`ensure`] has run. Its libraries are in `lib` next to the program's own folder.
pub(crate) fn program() -> PathBuf {
    folder().join("bin/perf_analyzer")
}

pub(crate) fn ensure() -> Result<String> {
    let source = process::root().join("tests/perf_analyzer/b64.c");
    let recipe = fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
    python::unpack("perf_analyzer", &recipe, |folder| {
        let lib = folder.join("lib");
        fs::create_dir_all(&lib)?;
        fs::copy(folder.join("nvidia/cuda_runtime/lib/libcudart.so.12"), lib.join("libcudart.so.12"))?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut link = process::command(compiler);
        link.args(["-shared", "-fPIC", "-Wl,-soname,libb64.so.0d", "-o"]).arg(lib.join("libb64.so.0d")).arg(&source);
        process::run(&mut link)
    })
}
