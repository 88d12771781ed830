//! Writes the repository for the measurements into a temporary folder.

use std::path::{Path, PathBuf};

/// Name, configuration, graph.
const MODELS: [(&str, &str, &str); 10] = [
    ("identity", include_str!("../models/identity.pbtxt"), "benches/models/identity.onnx"),
    ("direct", include_str!("../models/direct.pbtxt"), "models/accumulator_fp32/1/model.onnx"),
    ("oldest", include_str!("../models/oldest.pbtxt"), "models/accumulator_fp32/1/model.onnx"),
    ("wide_direct", include_str!("../models/wide_direct.pbtxt"), "benches/models/wide.onnx"),
    ("wide_oldest", include_str!("../models/wide_oldest.pbtxt"), "benches/models/wide.onnx"),
    ("cached", include_str!("../models/cached.pbtxt"), "benches/models/cached.onnx"),
    ("cached_direct", include_str!("../models/cached_direct.pbtxt"), "benches/models/cached_rows.onnx"),
    ("cached_compact", include_str!("../models/cached_compact.pbtxt"), "benches/models/cached_rows.onnx"),
    ("cached_oldest", include_str!("../models/cached_oldest.pbtxt"), "benches/models/cached_rows.onnx"),
    ("wide_identity", include_str!("../models/wide_identity.pbtxt"), "benches/models/wide_identity.onnx"),
];

/// `sequor.toml` of the models that need one.
const OWN: [(&str, &str); 2] = [
    ("cached", include_str!("../models/cached.toml")),
    ("cached_compact", "schema = 1\n[sequence]\nrows = \"compact\"\n"),
];

pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, config, graph) in MODELS {
        let model = folder.path().join(name);
        std::fs::create_dir_all(model.join("1")).expect("a folder");
        std::fs::write(model.join("config.pbtxt"), config).expect("a file");
        if let Some((_, own)) = OWN.iter().find(|(of, _)| *of == name) {
            std::fs::write(model.join("sequor.toml"), own).expect("a file");
        }
        std::fs::copy(root(graph), model.join("1/model.onnx")).expect("a graph");
    }
    folder
}

/// Adds the model `guided`: the model `oldest` with this plug-in as its scheduler.
pub(crate) fn guided(repository: &Path, plugin: &str) {
    let model = repository.join("guided");
    let config = include_str!("../models/oldest.pbtxt").replace("name: \"oldest\"", "name: \"guided\"");
    std::fs::create_dir_all(model.join("1")).expect("a folder");
    std::fs::write(model.join("config.pbtxt"), config).expect("a file");
    let feature = "[[feature]]\nname = \"tenant\"\nfrom = \"parameter\"\nkey = \"tenant\"\ntype = \"key\"\ndefault = \"anonymous\"\n";
    let settings = format!("{feature}[plugins.scheduler]\nuse = \"{plugin}\"\n");
    std::fs::write(model.join("sequor.toml"), settings).expect("a file");
    std::fs::copy(root("models/accumulator_fp32/1/model.onnx"), model.join("1/model.onnx")).expect("a graph");
}

/// One model of `models/`, alone in a repository.
pub(crate) fn only(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::os::unix::fs::symlink(root("models").join(name), folder.path().join(name)).expect("a link");
    folder
}
