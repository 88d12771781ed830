//! What Triton's own clients ask of a server beside answers: health, metadata, configuration, the sentences it refuses with.

use crate::python;
use crate::server::Server;

#[test]
fn tritons_clients_find_what_they_look_for() {
    let server = Server::of_models();
    python::check("surface.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
