//! Tests requests of Triton's own clients other than inference: health, metadata, configuration, and the texts of refusals.

use crate::python;
use crate::server::Server;

#[test]
fn tritons_clients_find_what_they_look_for() {
    let server = Server::of_models();
    python::check("surface.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
