//! The refusals of callers without the right to an endpoint, alike on every surface.

use super::{Code, Status};
use crate::config::server::access::WireProtocol;

/// The refusal of a request without the header that opens its group: Triton's sentence. Clients retry its code over gRPC by themselves, which
/// is of no use here.
pub fn restricted(protocol: WireProtocol, header: &str) -> Status {
    let what = match protocol {
        WireProtocol::Http => "API",
        WireProtocol::Grpc => "protocol",
    };
    let text = format!("This {what} is restricted, expecting header '{header}'");
    Status::new(Code::Restricted, "restricted", text).never_retry()
}

/// The refusal of a client without a key that `auth.keys_file` holds.
pub fn unauthenticated(shows_key: bool) -> Status {
    let text = match shows_key {
        true => "the key is not one of auth.keys_file",
        false => "this server needs a key: send authorization: Bearer KEY, or sequor-key: KEY",
    };
    Status::new(Code::Unauthenticated, "unauthenticated", text)
}
