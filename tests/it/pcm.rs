//! Tests raw PCM input: a processor cuts packets of any size into windows for the voice activity model.

use std::path::Path;

use crate::python::{self, prepared};
use crate::server::{Call, Server, copy, root};

/// A server with the example's model.
pub(crate) fn server() -> Server {
    let call = Call::serve("repository").environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    let model = call.folder.path().join("repository/vad_pcm");
    copy(&root().join("examples/pcm/repository/vad_pcm"), &model);
    give_time(&model);
    call.environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS")).start()
}

/// Raises the time limit of the example's processor, because other tests use the machine's cores too.
fn give_time(model: &Path) {
    let file = model.join("sequor.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.trim_end().ends_with("config = { rate = 16000 }"), "{text}");
    std::fs::write(&file, text + "time = \"10s\"\n").unwrap();
}

#[test]
fn packets_of_any_size_give_the_probabilities_of_onnx_runtime() {
    let server = server();
    python::check("pcm.py", &server);
    assert_eq!(server.stop().code, Some(0));
}

/// The name of each copy of the example's model, and the configuration of its processor.
const FORMATS: [(&str, &str); 4] = [
    ("pcm_8", "rate = 8000"),
    ("pcm_16", "format = \"mulaw\""),
    ("pcm_48", "rate = 48000"),
    ("mulaw_8", "rate = 8000, format = \"mulaw\""),
];

#[test]
fn other_rates_and_mu_law_give_the_probabilities_of_onnx_runtime() {
    let call = Call::serve("repository").environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
    let example = root().join("examples/pcm/repository/vad_pcm");
    for (name, config) in FORMATS {
        let model = call.folder.path().join("repository").join(name);
        copy(&example, &model);
        give_time(&model);
        for (file, from, to) in [("config.pbtxt", "vad_pcm", name), ("sequor.toml", "rate = 16000", config)] {
            let text = std::fs::read_to_string(model.join(file)).unwrap();
            assert!(text.contains(from), "{file}");
            std::fs::write(model.join(file), text.replace(from, to)).unwrap();
        }
    }
    let server = call.environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).start();
    python::check("pcm_formats.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
