//! Tests speech: a model's answers to a sound in chunks equal ONNX Runtime's answers to the whole sound, bit for bit.

use crate::python;
use crate::server::Server;

#[test]
fn chunked_speech_gives_the_outputs_of_the_whole_alone_and_batched() {
    let server = Server::of_models();
    python::check("speech.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
