//! Tests a streaming transducer on a real server: an encoder with four states, and a guest that calls the decoder and the joiner. The guest
//! is a processor of the encoder, or a separate model.

use std::fs;

use crate::python::{self, prepared};
use crate::server::{Call, Server, copy, root};

/// A server with the example. The joiner waits this long for a batch, and this guest is behind the encoder.
fn server(guest: &str, delay_micros: u32) -> Server {
    let grants = ["decoder", "joiner"].map(|model| format!("{guest}=model:{model}"));
    let call = Call::serve("repository").environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
    let call = call.arguments(grants.map(|grant| format!("--plugins-grants={grant}")));
    let repository = call.folder.path().join("repository");
    copy(&root().join("examples/transducer/repository"), &repository);
    let replace = |file: &str, from: &str, to: &str| {
        let path = repository.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    replace("scorer/sequor.toml", "plugin = \"transducer-greedy\"", &format!("plugin = \"{guest}\"\ntime = \"10s\""));
    // A debug build is slow, and a late search would be a strike.
    replace("asr/sequor.toml", "use = \"transducer-greedy\"", &format!("use = \"{guest}\"\ntime = \"10s\""));
    let batching = format!("dynamic_batching {{ max_queue_delay_microseconds: {delay_micros} }}");
    replace("joiner/config.pbtxt", "dynamic_batching { }", &batching);
    call.environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).start()
}

#[test]
fn many_sequences_at_once_give_the_tokens_of_a_loop_over_onnx_runtime() {
    for delay in [0, 500] {
        let server = server("transducer-greedy", delay);
        println!("max_queue_delay_microseconds: {delay}");
        python::check("transducer.py", &server);
        assert_eq!(server.stop().code, Some(0));
    }
}

#[test]
fn the_encoder_and_the_scorer_may_be_called_as_separate_models() {
    let server = server("transducer-greedy", 500);
    python::check_with("transducer.py", &server, &["--members"]);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn the_guest_in_python_gives_the_same_tokens() {
    let server = server("transducer-greedy-python", 0);
    python::check_with("transducer.py", &server, &["--sequences", "2"]);
    assert_eq!(server.stop().code, Some(0));
}
