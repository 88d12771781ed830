//! Restricted groups of endpoints. A request needs the header of its group, as with Triton's `--http-restricted-api` and
//! `--grpc-restricted-protocol`.
//!
//! Triton has a port for each protocol, but each listener here serves both. A group that is restricted for one protocol must not be open to
//! the other protocol on the same port. Therefore the restriction of the listener's own protocol applies there.

use axum::http::HeaderMap;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::wrong_keys::WrongKeys;
use crate::api::{Check, Endpoint, RequestContext, RequestHead, Status, access, endpoint};
use crate::config::server::access::{RestrictedGroups, Restriction, WireProtocol};

/// The restriction check of one listener.
#[derive(Debug)]
pub(super) struct RestrictedCheck {
    groups: RestrictedGroups,
    /// The protocol for which the listener is configured.
    listener: WireProtocol,
    wrong_values: WrongKeys,
}

impl RestrictedCheck {
    pub(super) fn new(groups: RestrictedGroups, listener: WireProtocol, wrong_values: WrongKeys) -> RestrictedCheck {
        RestrictedCheck { groups, listener, wrong_values }
    }
}

impl Check for RestrictedCheck {
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        let Endpoint { protocol, group } = endpoint(head.uri.path());
        let of = |protocol| self.groups.of(protocol).of(group?);
        match of(protocol).or_else(|| of(self.listener)) {
            Some(restriction) if !opens(restriction, head.headers) => {
                let status = access::restricted(protocol, &restriction.header);
                if head.headers.contains_key(&restriction.header) {
                    self.wrong_values.report(context.caller.address, &status.message);
                }
                Err(status)
            }
            _ => Ok(()),
        }
    }
}

/// Whether the headers have the secret. Digests are compared in constant time, so the time reveals nothing about the secret.
fn opens(restriction: &Restriction, headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(&restriction.header) else { return false };
    let digest = |bytes: &[u8]| <[u8; 32]>::from(Sha256::digest(bytes));
    digest(value.as_bytes()).ct_eq(&digest(restriction.secret.expose().as_bytes())).into()
}
