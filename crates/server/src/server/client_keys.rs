//! Checks the callers of the clients' listeners. If `auth.keys_file` is set, callers need a key. The key's name is then the caller's name
//! in audit lines and for the limits of one client.

use std::sync::Arc;

use super::keys::{ApiKeys, shows_key};
use super::wrong_keys::WrongKeys;
use crate::api::{Caller, Check, RequestContext, RequestHead, Status, access, endpoint};
use crate::config::server::access::KeyedGroups;

/// The keys of clients, and the groups that need one.
#[derive(Debug, Clone)]
pub struct ClientKeys {
    pub keys: ApiKeys,
    pub keyed: KeyedGroups,
}

/// The key check of a listener for clients.
#[derive(Debug)]
pub(super) struct ClientKeyCheck {
    keys: ClientKeys,
    wrong_keys: WrongKeys,
}

impl ClientKeyCheck {
    pub(super) fn new(keys: ClientKeys, wrong_keys: WrongKeys) -> ClientKeyCheck {
        ClientKeyCheck { keys, wrong_keys }
    }
}

impl Check for ClientKeyCheck {
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        if let Some(name) = self.keys.keys.identify(head.headers) {
            context.caller = Arc::new(Caller { name, address: context.caller.address });
            return Ok(());
        }
        // If no key is needed, `authorization` may be meant for a proxy.
        if !self.keys.keyed.need_key(endpoint(head.uri.path()).group) {
            return Ok(());
        }
        let is_wrong = shows_key(head.headers);
        let status = access::unauthenticated(is_wrong);
        if is_wrong {
            self.wrong_keys.report(context.caller.address, &status.message);
        }
        Err(status)
    }
}
