//! The checks of every listener. A reload of the configuration replaces them; connections notice it at their next request.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;

use super::client_keys::{ClientKeyCheck, ClientKeys};
use super::guard::Guard;
use super::keys::ApiKeys;
use super::origin::OriginCheck;
use super::restricted::RestrictedCheck;
use super::wrong_keys::WrongKeyCounters;
use crate::api::{Check, RequestContext, RequestHead, Status};
use crate::config::server::access::{RestrictedGroups, WireProtocol};

/// Who may call which listener.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The keys of operators. If `None`, every caller that reaches the admin listener may do everything.
    pub operator_keys: Option<ApiKeys>,
    /// The keys of clients. If `None`, every caller may call all endpoints that are not restricted.
    pub client_keys: Option<ClientKeys>,
    /// Origins whose web pages may call the clients' listeners, besides the server's own.
    pub allowed_origins: Vec<String>,
    /// Groups of endpoints that need a header.
    pub restricted: RestrictedGroups,
}

type CheckList = Vec<Arc<dyn Check>>;

/// The checks of one listener. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ListenerChecks(Arc<ArcSwap<CheckList>>);

impl ListenerChecks {
    pub(crate) fn new(checks: CheckList) -> ListenerChecks {
        ListenerChecks(Arc::new(ArcSwap::from_pointee(checks)))
    }

    /// The checks for the requests of one connection.
    pub(super) fn of_connection(&self) -> ConnectionChecks {
        ConnectionChecks(RefCell::new(Cache::new(Arc::clone(&self.0))))
    }

    fn replace(&self, checks: CheckList) {
        self.0.store(Arc::new(checks));
    }
}

/// The checks as one connection uses them. Unless they have been replaced, a request costs one relaxed load.
#[derive(Clone)]
pub(crate) struct ConnectionChecks(RefCell<Cache<Arc<ArcSwap<CheckList>>, Arc<CheckList>>>);

impl std::fmt::Debug for ConnectionChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionChecks")
    }
}

impl ConnectionChecks {
    /// A request must pass the checks in their order.
    pub(super) fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        self.0.borrow_mut().load().iter().try_for_each(|check| check.check(context, head))
    }
}

/// The checks of all listeners, and what they are made of besides [`Access`].
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) http: ListenerChecks,
    pub(super) grpc: ListenerChecks,
    pub(super) admin: ListenerChecks,
    facts: ListenerFacts,
}

/// The facts about the listeners that a reload does not change.
#[derive(Debug, Clone)]
pub(super) struct ListenerFacts {
    /// Checks for every request of every listener, before all others.
    pub(super) always: CheckList,
    /// Whether TLS asks callers for a certificate.
    pub(super) asks_certificates: bool,
    pub(super) http: Option<SocketAddr>,
    pub(super) grpc: Option<SocketAddr>,
    pub(super) wrong_keys: WrongKeyCounters,
}

impl Checks {
    pub(super) fn new(facts: ListenerFacts, access: &Access) -> Checks {
        let [http, grpc] =
            [WireProtocol::Http, WireProtocol::Grpc].map(|of| ListenerChecks::new(facts.clients(access, of)));
        Checks { http, grpc, admin: ListenerChecks::new(facts.operators(access)), facts }
    }

    /// Replaces the checks. Each request passes either the old ones or the new ones of its listener.
    pub(super) fn set(&self, access: &Access) {
        self.http.replace(self.facts.clients(access, WireProtocol::Http));
        self.grpc.replace(self.facts.clients(access, WireProtocol::Grpc));
        self.admin.replace(self.facts.operators(access));
    }
}

impl ListenerFacts {
    /// The checks of a clients' listener: those of every listener, the check of web pages, and those of the settings.
    pub(super) fn clients(&self, access: &Access, listener: WireProtocol) -> CheckList {
        let Access { client_keys, allowed_origins, restricted, .. } = access;
        let (address, wrong) = match listener {
            WireProtocol::Http => (self.http, &self.wrong_keys.http),
            WireProtocol::Grpc => (self.grpc, &self.wrong_keys.grpc),
        };
        let is_open = client_keys.is_none() && !self.asks_certificates;
        let is_local = is_open && address.is_some_and(|address| address.ip().is_loopback());
        let mut checks = self.always.clone();
        checks.push(Arc::new(OriginCheck { allowed: allowed_origins.clone(), is_local }));
        if !restricted.is_empty() {
            checks.push(Arc::new(RestrictedCheck::new(restricted.clone(), listener, wrong.restricted.clone())));
        }
        let keyed = |keys| Arc::new(ClientKeyCheck::new(keys, wrong.keys.clone())) as Arc<dyn Check>;
        checks.extend(client_keys.clone().map(keyed));
        checks
    }

    fn operators(&self, access: &Access) -> CheckList {
        let mut checks = self.always.clone();
        checks.push(Arc::new(Guard::new(
            access.operator_keys.clone(),
            self.asks_certificates,
            self.wrong_keys.operators.clone(),
        )));
        checks
    }
}
