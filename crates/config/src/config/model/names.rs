//! Resolves a model's name, platform, backend and file. Each can follow from the others, or from the files in the version directory.

use sequor_proto::ModelConfig;

use crate::config::fault::code;

use super::graphless;
use super::report::Report;
use super::stateful::STATEFUL;

pub(super) const ONNXRUNTIME: &str = "onnxruntime";

/// A backend, with pairs of platform and default file. The first pair is the default.
struct KnownBackend {
    backend: &'static str,
    kinds: &'static [(&'static str, &'static str)],
}

/// The known backends, in the order in which they are tried.
const KNOWN: [KnownBackend; 7] = [
    KnownBackend {
        backend: "tensorflow",
        kinds: &[("tensorflow_savedmodel", "model.savedmodel"), ("tensorflow_graphdef", "model.graphdef")],
    },
    KnownBackend { backend: "tensorrt", kinds: &[("tensorrt_plan", "model.plan")] },
    KnownBackend { backend: ONNXRUNTIME, kinds: &[("onnxruntime_onnx", "model.onnx")] },
    KnownBackend { backend: "openvino", kinds: &[("", "model.xml")] },
    KnownBackend { backend: "pytorch", kinds: &[("pytorch_libtorch", "model.pt"), ("torch_aoti", "model.pt2")] },
    KnownBackend { backend: "python", kinds: &[("", "model.py")] },
    KnownBackend { backend: STATEFUL, kinds: &[("", "model.onnx")] },
];

impl KnownBackend {
    /// The pair that the configuration means, if it means this backend.
    fn meant(&self, config: &ModelConfig, files: &[String]) -> Option<&'static (&'static str, &'static str)> {
        let says = |(platform, file): &&(&str, &str)| {
            (!config.platform.is_empty() && *platform == config.platform) || *file == config.default_model_filename
        };
        let nothing = config.platform.is_empty() && config.default_model_filename.is_empty();
        let lies_there = |(_, file): &&(&str, &str)| nothing && files.iter().any(|f| f == file);
        if config.backend == self.backend {
            return self.kinds.iter().find(says).or_else(|| self.kinds.first());
        }
        let open = config.backend.is_empty();
        self.kinds.iter().find(|kind| open && (says(kind) || lies_there(kind)))
    }
}

/// Fills in missing names. `files` are the names in the first version directory.
pub(super) fn fill(config: &mut ModelConfig, directory: &str, files: &[String]) {
    if config.name.is_empty() {
        directory.clone_into(&mut config.name);
    }
    if is_ensemble(config) {
        return;
    }
    if let Some((known, kind)) = KNOWN.iter().find_map(|k| k.meant(config, files).map(|kind| (k, kind))) {
        known.backend.clone_into(&mut config.backend);
        fill_empty(&mut config.platform, kind.0);
        fill_empty(&mut config.default_model_filename, kind.1);
    } else if config.backend.is_empty()
        && config.platform.is_empty()
        && let Some((_, backend)) = config.name.split_once('.').filter(|(_, backend)| !backend.is_empty())
    {
        config.backend = backend.to_owned();
        if config.default_model_filename.is_empty() {
            config.default_model_filename = format!("model.{backend}");
        }
    }
}

fn fill_empty(field: &mut String, with: &str) {
    if field.is_empty() {
        with.clone_into(field);
    }
}

pub(super) fn is_ensemble(config: &ModelConfig) -> bool {
    use sequor_proto::model_config::SchedulingChoice::EnsembleScheduling;
    config.platform == "ensemble" || matches!(config.scheduling_choice, Some(EnsembleScheduling(_)))
}

/// Faults of the names, after [`fill`].
pub(super) fn check(report: &mut Report<'_>, directory: &str) {
    let config = report.config;
    let name = &config.name;
    if name.is_empty() {
        report.fault("name", code::NAME, "model configuration must specify 'name'");
    } else if name != directory {
        let what = format!("the configuration is of a model '{name}', but its directory is '{directory}'");
        report.fault("name", code::NAME, what);
    }
    if is_ensemble(config) {
        return;
    }
    if report.toml.keys.model.is_some() {
        graphless::check_backend(report);
        return;
    }
    if config.backend.is_empty() {
        no_backend(report);
        return;
    }
    let known = KNOWN.iter().find(|k| k.backend == config.backend);
    let fits =
        |platform: &str| known.is_none_or(|k| platform.is_empty() || k.kinds.iter().any(|(p, _)| *p == platform));
    if config.backend != ONNXRUNTIME && config.backend != STATEFUL {
        not_served(report);
    } else if !fits(&config.platform) {
        let what = format!("unexpected 'platform' and 'backend' pair, got:{}, {}", config.platform, config.backend);
        report.fault("platform", code::BACKEND, what);
    }
    if leaves_directory(&config.default_model_filename) {
        let what = format!("default_model_filename '{}' leaves the version directory", config.default_model_filename);
        report.fault("default_model_filename", code::BACKEND, what);
    }
}

fn no_backend(report: &mut Report<'_>) {
    let (name, platform) = (report.model(), &report.config.platform);
    let what = if platform.is_empty() {
        format!(
            "Invalid model name: Could not determine backend for model '{name}' with no backend in model configuration. \
             (put a model.onnx into a version directory, or set backend: \"onnxruntime\" and default_model_filename)"
        )
    } else {
        format!("unexpected platform type '{platform}' for {name}")
    };
    report.fault("platform", code::BACKEND, what);
}

fn not_served(report: &mut Report<'_>) {
    let what = match report.config.backend.as_str() {
        "python" => "backend \"python\" is not served: only ONNX models are (backend \"onnxruntime\"). Replace the model by a plug-in \
                     ([model] plugin in sequor.toml), export it to ONNX, or keep it on Triton and call it from your client"
            .to_owned(),
        other => format!("backend \"{other}\" is not served: only ONNX models are (backend \"onnxruntime\")"),
    };
    let field = if report.has("backend") { "backend" } else { "platform" };
    report.fault(field, code::BACKEND, what);
}

/// Whether a file name from the configuration leads out of its folder.
pub(super) fn leaves_directory(file: &str) -> bool {
    use std::path::Component;
    !std::path::Path::new(file).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(config: ModelConfig, directory: &str, files: &[&str]) -> (String, String, String) {
        let mut config = config;
        let files: Vec<String> = files.iter().map(|f| (*f).to_owned()).collect();
        fill(&mut config, directory, &files);
        (config.backend, config.platform, config.default_model_filename)
    }

    fn names(backend: &str, platform: &str, file: &str) -> (String, String, String) {
        (backend.to_owned(), platform.to_owned(), file.to_owned())
    }

    fn config(backend: &str, platform: &str, file: &str) -> ModelConfig {
        let (backend, platform, default_model_filename) = names(backend, platform, file);
        ModelConfig { backend, platform, default_model_filename, ..ModelConfig::default() }
    }

    #[test]
    fn backend_platform_and_file_name_complete_each_other() {
        let onnx = names("onnxruntime", "onnxruntime_onnx", "model.onnx");
        assert_eq!(filled(config("onnxruntime", "", ""), "m", &[]), onnx);
        assert_eq!(filled(config("", "onnxruntime_onnx", ""), "m", &[]), onnx);
        assert_eq!(filled(config("", "", "model.onnx"), "m", &[]), onnx);
        assert_eq!(filled(config("", "", ""), "m", &["model.onnx"]), onnx);
        assert_eq!(filled(config("", "", ""), "m", &["model.onnx", "model.plan"]).0, "tensorrt");
        assert_eq!(filled(config("onnxruntime", "", "enc.onnx"), "m", &[]).2, "enc.onnx");
        assert_eq!(filled(config("", "", "model.pt2"), "m", &[]), names("pytorch", "torch_aoti", "model.pt2"));
        assert_eq!(filled(config("", "", ""), "m", &["model.py"]), names("python", "", "model.py"));
    }

    #[test]
    fn a_model_name_with_a_dot_names_a_custom_backend() {
        assert_eq!(filled(config("", "", ""), "m.a.b", &[]), names("a.b", "", "model.a.b"));
        assert_eq!(filled(config("", "", ""), "m", &[]), names("", "", ""));
        assert_eq!(filled(config("other", "", ""), "m", &["model.onnx"]), names("other", "", ""));
    }

    #[test]
    fn file_names_that_leave_the_model_directory_are_detected() {
        assert!(leaves_directory("../x") && leaves_directory("/x") && leaves_directory("a/../../x"));
        assert!(!leaves_directory("model.onnx") && !leaves_directory("./a/b") && !leaves_directory(""));
    }
}
