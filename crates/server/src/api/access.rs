//! Refusals of callers without the right to an endpoint. They are the same on every surface.

use super::{Code, Status};
use crate::config::server::access::WireProtocol;

/// The refusal of a request without the header of its restricted group, in Triton's words. gRPC clients retry this code automatically,
/// although a retry cannot succeed.
pub fn restricted(protocol: WireProtocol, header: &str) -> Status {
    let what = match protocol {
        WireProtocol::Http => "API",
        WireProtocol::Grpc => "protocol",
    };
    let text = format!("This {what} is restricted, expecting header '{header}'");
    Status::new(Code::Restricted, "restricted", text).never_retry()
}

/// The refusal of a client without a key from `auth.keys_file`.
pub fn unauthenticated(shows_key: bool) -> Status {
    let text = match shows_key {
        true => "the key is not one of auth.keys_file",
        false => "this server needs a key: send authorization: Bearer KEY, or sequor-key: KEY",
    };
    Status::new(Code::Unauthenticated, "unauthenticated", text)
}
