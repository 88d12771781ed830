//! Checks who may call the listeners for clients: callers with a key, where `auth.keys_file` is set. The name of the key is the caller's name
//! from then on: in audit lines, and for the maxima of one client.

use std::sync::Arc;

use super::keys::{ApiKeys, shows_key};
use super::wrong_keys::WrongKeys;
use crate::api::{Caller, Check, RequestContext, RequestHead, Status, access, endpoint};
use crate::config::server::access::KeyedGroups;

/// The keys of clients, and which requests need one.
#[derive(Debug, Clone)]
pub struct ClientKeys {
    pub keys: ApiKeys,
    pub keyed: KeyedGroups,
}

/// The check of a listener for clients.
#[derive(Debug)]
pub(super) struct ClientKeyCheck {
    keys: ClientKeys,
    wrong_keys: WrongKeys,
}

impl ClientKeyCheck {
    pub(super) fn new(keys: ClientKeys) -> ClientKeyCheck {
        ClientKeyCheck { keys, wrong_keys: WrongKeys::default() }
    }
}

impl Check for ClientKeyCheck {
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        if let Some(name) = self.keys.keys.identify(head.headers) {
            context.caller = Arc::new(Caller { name, address: context.caller.address });
            return Ok(());
        }
        // Where no key is needed, `authorization` may be for a proxy.
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
