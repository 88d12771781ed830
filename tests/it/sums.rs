//! Tests running sums: many more sequences at once than slots, with every answer checked.

use crate::python;
use crate::server::Server;

#[test]
fn many_sequences_at_once_over_few_slots_add_up() {
    let server = Server::of_models();
    python::check("sums.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
