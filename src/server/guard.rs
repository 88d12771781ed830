//! Who may call what is for operators: whoever has a key, where there are keys; and never a page that a browser shows, for it acts for
//! somebody who knows nothing of it.

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::keys::Keys;
use crate::api::admin::Caller;
use crate::api::{Code, Status};

#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) keys: Option<Keys>,
    /// Whoever gets here has shown a certificate.
    pub(super) certificates: bool,
}

/// Lets a request through, with the name of whoever asks, or refuses it.
pub(super) async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let admitted = guard.admit(request.headers(), request.uri().authority());
    match admitted {
        Ok(None) => next.run(request).await,
        Ok(Some(name)) => {
            if let Some(caller) = request.extensions_mut().get_mut::<Caller>() {
                caller.name = name;
            }
            next.run(request).await
        }
        Err(status) => refuse(request.headers(), status),
    }
}

impl Guard {
    /// The name of the key, if keys are asked for.
    fn admit(&self, headers: &HeaderMap, authority: Option<&Authority>) -> Result<Option<String>, Status> {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if headers.contains_key(ORIGIN) || site.is_some_and(|site| !matches!(site, b"none" | b"same-origin")) {
            let text = "pages in a browser may not call this: it is for operators and their tools";
            return Err(Status::new(Code::Denied, "denied", text));
        }
        if let Some(keys) = &self.keys {
            let text = "a key is needed here (admin.keys_file): authorization: Bearer KEY, or sequor-key: KEY";
            let stranger = || Status::new(Code::Unauthenticated, "unauthenticated", text);
            return keys.who(headers).map(Some).ok_or_else(stranger);
        }
        match host(headers, authority) {
            Some(host) if !self.certificates && !is_own(&host) => {
                // A site whose name was made to lead to this address is answered as itself by a browser.
                let text = format!("\"{host}\" is not this server's address: call it by localhost or its IP address");
                Err(Status::new(Code::Denied, "denied", text))
            }
            _ => Ok(None),
        }
    }
}

/// What the client thinks it calls, without the port.
fn host(headers: &HeaderMap, authority: Option<&Authority>) -> Option<String> {
    let said = headers.get(HOST).and_then(|value| value.to_str().ok()?.parse::<Authority>().ok());
    said.as_ref().or(authority).map(|authority| authority.host().to_owned())
}

fn is_own(host: &str) -> bool {
    host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

fn refuse(headers: &HeaderMap, status: Status) -> Response {
    let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc { tonic::Status::from(status).into_http::<axum::body::Body>() } else { status.into_response() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(guard: &Guard, headers: &[(&'static str, &str)]) -> Option<u16> {
        let of = |(name, value): &(&'static str, &str)| {
            (axum::http::HeaderName::from_static(name), value.parse().expect("a value"))
        };
        let headers = headers.iter().map(of).collect();
        guard.admit(&headers, None).err().map(|status| status.code.http())
    }

    #[test]
    fn pages_of_a_browser_may_not_act_for_an_operator() {
        let open = Guard { keys: None, certificates: false };
        let own = ("host", "127.0.0.1:8003");
        assert_eq!(refused(&open, &[own]), None);
        assert_eq!(refused(&open, &[("host", "localhost:8003")]), None);
        assert_eq!(refused(&open, &[("host", "[::1]:8003")]), None);
        assert_eq!(refused(&open, &[own, ("sec-fetch-site", "none")]), None);
        assert_eq!(refused(&open, &[own, ("sec-fetch-site", "cross-site")]), Some(403));
        assert_eq!(refused(&open, &[own, ("origin", "http://example.org")]), Some(403));
        let rebound = [("host", "rebound.example.org:8003")];
        assert_eq!(refused(&open, &rebound), Some(403));
        assert_eq!(refused(&Guard { keys: None, certificates: true }, &rebound), None);
    }

    #[test]
    fn where_there_are_keys_one_is_needed() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs_err::write(file.path(), "anna:one").expect("written");
        let guard = Guard { keys: Some(Keys::open(file.path()).expect("keys")), certificates: false };
        assert_eq!(refused(&guard, &[("host", "127.0.0.1")]), Some(401));
        assert_eq!(refused(&guard, &[("host", "127.0.0.1"), ("sequor-key", "two")]), Some(401));
        assert_eq!(refused(&guard, &[("host", "admin.example.org"), ("sequor-key", "one")]), None);
        assert_eq!(refused(&guard, &[("sequor-key", "one"), ("origin", "http://admin.example.org")]), Some(403));
    }
}
