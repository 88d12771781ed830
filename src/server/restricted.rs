//! Restricted groups of endpoints: a request needs the header of its group, as Triton's `--http-restricted-api` and
//! `--grpc-restricted-protocol` have it.
//!
//! Each listener serves both protocols, where Triton has a port for each. A group that only one protocol restricts must not be open to the other
//! protocol on the same port, so there the restriction of the listener's own protocol holds.

use axum::http::HeaderMap;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::wrong_keys::WrongKeys;
use crate::api::{Check, Endpoint, RequestContext, RequestHead, Status, access, endpoint};
use crate::config::server::access::{RestrictedGroups, Restriction, WireProtocol};

/// The check of one listener.
#[derive(Debug)]
pub(super) struct RestrictedCheck {
    groups: RestrictedGroups,
    /// The protocol that the listener is for.
    listener: WireProtocol,
    wrong_values: WrongKeys,
}

impl RestrictedCheck {
    pub(super) fn new(groups: RestrictedGroups, listener: WireProtocol) -> RestrictedCheck {
        RestrictedCheck { groups, listener, wrong_values: WrongKeys::default() }
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

/// Whether the headers hold the secret. The time that it takes says nothing of how much of a value was right.
fn opens(restriction: &Restriction, headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(&restriction.header) else { return false };
    let digest = |bytes: &[u8]| <[u8; 32]>::from(Sha256::digest(bytes));
    digest(value.as_bytes()).ct_eq(&digest(restriction.secret.expose().as_bytes())).into()
}
