//! Checks the callers of the admin listener. If keys are set, callers need one. Calls of web pages are refused: any with an `Origin`, and
//! any from another site. Such pages act without their reader's knowledge.

use std::sync::Arc;

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue};

use super::keys::{ApiKeys, shows_key};
use super::wrong_keys::WrongKeys;
use crate::api::{Caller, Check, Code, RequestContext, RequestHead, Status};

#[derive(Debug, Clone)]
pub(super) struct Guard {
    keys: Option<ApiKeys>,
    /// Whether TLS has already checked a certificate of every caller.
    certificates: bool,
    wrong_keys: WrongKeys,
}

impl Check for Guard {
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        let admitted = self.admit(head.headers, head.uri.authority());
        if let Err(status) = &admitted
            && status.code == Code::Unauthenticated
            && shows_key(head.headers)
        {
            self.wrong_keys.report(context.caller.address, &status.message);
        }
        if let Some(name) = admitted? {
            context.caller = Arc::new(Caller { name, address: context.caller.address });
        }
        Ok(())
    }
}

impl Guard {
    pub(super) fn new(keys: Option<ApiKeys>, certificates: bool, wrong_keys: WrongKeys) -> Guard {
        Guard { keys, certificates, wrong_keys }
    }

    /// Admits a request. Returns the name of its key, if keys are set.
    fn admit(&self, headers: &HeaderMap, authority: Option<&Authority>) -> Result<Option<String>, Status> {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if headers.contains_key(ORIGIN) || site.is_some_and(|site| !matches!(site, b"none" | b"same-origin")) {
            let text = "pages in a browser may not call this: it is for operators and their tools";
            return Err(Status::new(Code::Denied, "denied", text));
        }
        if let Some(keys) = &self.keys {
            let text = match shows_key(headers) {
                true => "the key is not one of admin.keys_file",
                false => "this server needs a key: --key-file FILE; over HTTP, the header sequor-key: KEY",
            };
            let stranger = || Status::new(Code::Unauthenticated, "unauthenticated", text);
            return keys.identify(headers).map(Some).ok_or_else(stranger);
        }
        if self.certificates { Ok(None) } else { check_host(headers, authority).map(|()| None) }
    }
}

/// Refuses a request whose Host is not this machine's loopback name. A site's name can be made to resolve to this address, and a browser
/// then treats the server as that site. Without keys and certificates, this check is the only guard.
pub(super) fn check_host(headers: &HeaderMap, authority: Option<&Authority>) -> Result<(), Status> {
    let named = headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or_default());
    let named = named.chain(authority.map(Authority::as_str));
    let mut count = 0;
    for host in named {
        count += 1;
        if !host.parse::<Authority>().is_ok_and(|authority| is_own(&authority)) {
            let text = format!("\"{host}\" is not this server's address: call it by localhost, 127.0.0.1 or [::1]");
            return Err(Status::new(Code::Denied, "denied", text));
        }
    }
    let text = "the request has no Host header: call this server by localhost, 127.0.0.1 or [::1]";
    if count > 0 { Ok(()) } else { Err(Status::new(Code::Denied, "denied", text)) }
}

/// Whether a host is a loopback name. Without keys and certificates, the listener is on a loopback address.
fn is_own(authority: &Authority) -> bool {
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host).map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    port.is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok())
        && (host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(keys: Option<ApiKeys>, certificates: bool) -> Guard {
        Guard::new(keys, certificates, WrongKeys::default())
    }

    fn refused(guard: &Guard, headers: &[(&'static str, &str)]) -> Option<u16> {
        let of = |(name, value): &(&'static str, &str)| {
            (axum::http::HeaderName::from_static(name), value.parse().expect("a value"))
        };
        let headers = headers.iter().map(of).collect();
        guard.admit(&headers, None).err().map(|status| status.code.http())
    }

    #[test]
    fn pages_of_a_browser_may_not_act_for_an_operator() {
        let open = guard(None, false);
        let own = ("host", "127.0.0.1:8003");
        assert_eq!(refused(&open, &[own]), None);
        assert_eq!(refused(&open, &[("host", "localhost:8003")]), None);
        assert_eq!(refused(&open, &[("host", "[::1]:8003")]), None);
        assert_eq!(refused(&open, &[own, ("sec-fetch-site", "none")]), None);
        assert_eq!(refused(&open, &[own, ("sec-fetch-site", "cross-site")]), Some(403));
        assert_eq!(refused(&open, &[own, ("origin", "http://example.org")]), Some(403));
        let rebound = [("host", "rebound.example.org:8003")];
        assert_eq!(refused(&open, &rebound), Some(403));
        assert_eq!(refused(&guard(None, true), &rebound), None);
    }

    #[test]
    fn without_keys_only_a_host_that_is_this_machine_is_served() {
        let open = guard(None, false);
        assert_eq!(refused(&open, &[]), Some(403), "none");
        for host in [
            "",
            " ",
            "local host",
            "a:b:c",
            "localhost:port",
            "user@localhost",
            "0.0.0.0:8003",
            "192.0.2.1",
            "localhost.example.org",
            "[::1",
            "@",
        ] {
            assert_eq!(refused(&open, &[("host", host)]), Some(403), "{host:?}");
        }
        for host in ["LOCALHOST", "127.0.0.2:1", "[::1]"] {
            assert_eq!(refused(&open, &[("host", host)]), None, "{host:?}");
        }
        let admit = |authority: &str| open.admit(&HeaderMap::new(), Some(&authority.parse().expect("an authority")));
        assert_eq!((admit("localhost:8003").is_ok(), admit("rebound.example.org").is_ok()), (true, false));
        let mut two = HeaderMap::new();
        for host in ["localhost", "example.org"] {
            two.append(HOST, host.parse().expect("a value"));
        }
        assert!(open.admit(&two, None).is_err());
    }

    #[test]
    fn a_key_is_required_if_keys_are_configured() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs_err::write(file.path(), "anna:one").expect("written");
        let with_keys = guard(Some(ApiKeys::open(file.path()).expect("keys")), false);
        assert_eq!(refused(&with_keys, &[("host", "127.0.0.1")]), Some(401));
        assert_eq!(refused(&with_keys, &[("host", "127.0.0.1"), ("sequor-key", "two")]), Some(401));
        assert_eq!(refused(&with_keys, &[("host", "admin.example.org"), ("sequor-key", "one")]), None);
        assert_eq!(refused(&with_keys, &[("sequor-key", "one"), ("origin", "http://admin.example.org")]), Some(403));
    }
}
