//! Raw PCM in, probabilities out: a processor cuts packets of any size into the windows of the voice activity model.

use crate::python::{self, prepared};
use crate::server::{Call, Server, root};

/// A server of the example's model.
pub(crate) fn server() -> Server {
    let call =
        Call::serve(root().join("examples/pcm/repository")).environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    call.environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS")).start()
}

#[test]
fn packets_of_any_size_give_the_probabilities_of_onnx_runtime() {
    let server = server();
    python::check("pcm.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
