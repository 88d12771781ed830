//! Tests requests of Triton's own clients other than inference: health, metadata, configuration, and the texts of refusals.

use crate::python;
use crate::server::Server;

#[test]
fn tritons_clients_get_health_metadata_configuration_and_error_texts() {
    let server = Server::of_models();
    python::check("surface.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
