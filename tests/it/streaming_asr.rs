//! Tests the layout of public streaming repositories on a real server: an ensemble over a feature extractor and a scorer, and an encoder
//! with four states. Plug-ins replace the models in Python. The files `config.pbtxt` are unchanged; all models but the scorer ask for GPUs.

use std::fs;

use crate::python::{self, prepared};
use crate::server::{Call, copy, root};

const MODELS: [&str; 6] = ["decoder", "encoder", "feature_extractor", "joiner", "scorer", "transducer"];

/// A call of a server with the example.
fn call(cpu_only: bool) -> Call {
    let grants = ["decoder", "joiner"].map(|model| format!("--plugins-grants=transducer-greedy=model:{model}"));
    let call = Call::serve("repository").environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
    let call = call.arguments(grants).arguments(cpu_only.then_some("--cpu-only"));
    let repository = call.folder.path().join("repository");
    copy(&root().join("examples/streaming_asr/repository"), &repository);
    for model in ["feature_extractor", "scorer"] {
        // A debug build is slow, and a late call would be a strike.
        let path = repository.join(model).join("sequor.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("[model]\n", "[model]\ntime = \"10s\"\n")).unwrap();
    }
    call.environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"))
}

#[test]
fn many_sequences_at_once_give_the_transcripts_of_a_loop_over_onnx_runtime() {
    let server = call(true).start();
    python::check("streaming_asr.py", &server);
    let stopped = server.stop();
    assert_eq!(stopped.code, Some(0));
    for model in MODELS {
        let log = format!("{}{}", stopped.stdout, stopped.stderr);
        let moved = log.lines().filter(|line| line.contains("KIND_GPU runs on the CPU") && line.contains(model));
        let expected = usize::from(!["scorer", "transducer"].contains(&model));
        assert_eq!(moved.count(), expected, "{model}: {log}");
    }
}

#[test]
fn models_that_ask_for_a_gpu_are_refused_without_the_cpu_only_flag() {
    let stopped = call(false).start().stop();
    let log = format!("{}{}", stopped.stdout, stopped.stderr);
    let refused = |model: &str| {
        let mut lines = stopped.stdout.lines().filter(|line| line.trim_start().starts_with(model));
        lines.any(|line| line.contains("REFUSED")) || log.contains(&format!("{model}/config.pbtxt"))
    };
    for model in ["encoder", "decoder", "joiner", "feature_extractor"] {
        assert!(refused(model), "{model}: {log}");
    }
    assert!(!log.contains("runs on the CPU:"), "{log}");
}
