//! Access of web pages to the client listeners. A browser sends some requests of a page to any address on behalf of the user, and adds the
//! page's origin to them. Pages of the server's own address, and of allowed origins, may call. Other pages may not change anything, and may
//! not open WebSockets.

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN, UPGRADE};
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderName, Method};

use super::guard::check_host;
use crate::api::status::is_grpc;
use crate::api::{Check, Code, RequestContext, RequestHead, Status};

/// The header that browsers add to every request.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The setting that allows every origin.
const ANY: &str = "*";

/// Paths where a POST changes more than sequences. Pages must send JSON to them.
const MANAGEMENT: [&str; 5] =
    ["/v2/repository/", "/v2/logging", "/v2/trace/", "/v2/systemsharedmemory/", "/v2/cudasharedmemory/"];

/// Refuses requests of web pages that are not allowed.
#[derive(Debug, Clone)]
pub(super) struct OriginCheck {
    /// Origins such as `https://app.example.org`, or `*`.
    pub(super) allowed: Vec<String>,
    /// Whether only this machine reaches the listener, and clients need neither keys nor certificates. Then only pages of this machine's own
    /// names are the server's own: another name may have been made to resolve to it.
    pub(super) is_local: bool,
}

impl Check for OriginCheck {
    fn check(&self, _: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        let RequestHead { method, uri, headers } = head;
        if is_safe(method) && !headers.contains_key(UPGRADE) {
            return Ok(());
        }
        self.check_origin(headers, uri)?;
        // Only pages are checked, because other clients send any type. For example, libcurl sends that of a form.
        let is_page = || headers.contains_key(ORIGIN) || headers.contains_key(&SITE);
        if is_management(uri.path()) && is_page() && !is_grpc(headers) { check_json(headers) } else { Ok(()) }
    }
}

impl OriginCheck {
    fn check_origin(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Status> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let is_allowed =
            |allowed: &String| allowed == ANY || allowed.trim_end_matches('/').eq_ignore_ascii_case(origin);
        if self.allowed.iter().any(is_allowed) {
            return Ok(());
        }
        if is_same(origin, headers, uri) {
            return if self.is_local { check_host(headers, uri.authority()) } else { Ok(()) };
        }
        let text = format!("pages of the origin \"{origin}\" may not call this server: add it to http.allowed_origins");
        Err(Status::new(Code::Denied, "denied", text))
    }
}

/// Whether a browser lets any page send such a request, because it changes nothing.
fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn is_management(path: &str) -> bool {
    MANAGEMENT.iter().any(|prefix| path.starts_with(prefix))
        || (path.starts_with("/v2/models/") && path.ends_with("/trace/setting"))
}

/// Whether the page's origin is the address of the request.
fn is_same(origin: &str, headers: &HeaderMap, uri: &Uri) -> bool {
    let Ok(page) = origin.parse::<Uri>() else { return false };
    let default_port = match page.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return false,
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let (Some(page), Some(asked)) = (page.authority(), host.as_ref().or(uri.authority())) else { return false };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(default_port);
    page.host().eq_ignore_ascii_case(asked.host()) && port(page) == port(asked)
}

/// Requires JSON. For this type, a browser asks the server first before it sends the request.
fn check_json(headers: &HeaderMap) -> Result<(), Status> {
    let named = headers.get(CONTENT_TYPE).map_or(Ok(""), |kind| kind.to_str()).unwrap_or_default();
    let essence = named.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let text = format!("pages send content-type: application/json to this path, not \"{named}\"");
    Err(Status::new(Code::InvalidArgument, "bad_input", text))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn refused(allowed: &[&str], verb_and_path: &str, headers: &[(&'static str, &'static str)]) -> Option<u16> {
        refused_at(false, allowed, verb_and_path, headers)
    }

    fn refused_at(
        is_local: bool,
        allowed: &[&str],
        verb_and_path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Option<u16> {
        let (verb, path) = verb_and_path.split_once(' ').expect("a verb");
        let uri: Uri = path.parse().expect("a path");
        let of = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = headers.iter().map(of).collect();
        let method = Method::from_bytes(verb.as_bytes()).expect("a verb");
        let allowed = allowed.iter().map(|&origin| origin.to_owned()).collect();
        let check = OriginCheck { allowed, is_local };
        let caller = crate::api::Caller { name: String::new(), address: crate::server::local(1) };
        let mut context =
            RequestContext::new(&std::sync::Arc::new(caller), &crate::api::ConnectionOrder::default(), &headers);
        let head = RequestHead { method: &method, uri: &uri, headers: &headers };
        check.check(&mut context, &head).err().map(|status| status.code.http())
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:8000");
    const FOREIGN: (&str, &str) = ("origin", "http://example.org");

    #[test]
    fn a_foreign_page_changes_nothing_and_opens_no_websocket() {
        let (socket, json) = (("upgrade", "websocket"), ("content-type", "application/json"));
        assert_eq!(refused(&[], "GET /v2", &[HOST, FOREIGN]), None);
        assert_eq!(refused(&[], "GET /v2/models/m/stream", &[HOST, FOREIGN, socket]), Some(403));
        assert_eq!(refused(&[], "POST /v2/logging", &[HOST, FOREIGN, json]), Some(403));
        assert_eq!(refused(&[], "POST /v2/models/m/infer", &[HOST, FOREIGN]), Some(403));
        assert_eq!(refused(&[], "POST /v2/models/m/infer", &[HOST, ("origin", "null")]), Some(403));
        for own in ["http://127.0.0.1:8000", "HTTP://127.0.0.1:8000"] {
            assert_eq!(refused(&[], "POST /v2/logging", &[HOST, ("origin", own), json]), None, "{own}");
        }
        assert_eq!(refused(&[], "POST /v2/logging", &[HOST, ("origin", "http://127.0.0.1:9000")]), Some(403));
        assert_eq!(refused(&[], "POST /v2/logging", &[("host", "a.org"), ("origin", "https://a.org:443"), json]), None);
        assert_eq!(refused(&["http://example.org/"], "GET /s", &[HOST, FOREIGN, socket]), None);
        assert_eq!(refused(&["*"], "GET /s", &[HOST, ("origin", "null"), socket]), None);
        assert_eq!(refused(&["http://example.com"], "GET /s", &[HOST, FOREIGN, socket]), Some(403));
    }

    #[test]
    fn on_loopback_a_page_of_another_name_is_foreign() {
        let json = ("content-type", "application/json");
        let rebound = [("host", "evil.example:8000"), ("origin", "http://evil.example:8000"), json];
        fn local(allowed: &[&str], headers: &[(&'static str, &'static str)]) -> Option<u16> {
            refused_at(true, allowed, "POST /v2/logging", headers)
        }
        assert_eq!(local(&[], &rebound), Some(403));
        assert_eq!(refused_at(true, &[], "GET /s", &[rebound[0], rebound[1], ("upgrade", "websocket")]), Some(403));
        assert_eq!(local(&["http://evil.example:8000"], &rebound), None);
        assert_eq!(refused(&[], "POST /v2/logging", &rebound), None, "a server that others reach has any name");
        let own = ["http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"];
        for origin in own {
            let host = origin.trim_start_matches("http://");
            assert_eq!(local(&[], &[("host", host), ("origin", origin), json]), None, "{origin}");
        }
        assert_eq!(local(&[], &[("host", "evil.example:8000"), json]), None, "no page");
    }

    #[test]
    fn pages_send_json_to_management_paths() {
        let own = ("origin", "http://127.0.0.1:8000");
        let with = |path, kind| refused(&[], path, &[HOST, own, ("content-type", kind)]);
        let paths = [
            "POST /v2/logging",
            "POST /v2/trace/setting",
            "POST /v2/models/m/trace/setting",
            "POST /v2/repository/index",
        ];
        for path in paths {
            assert_eq!(with(path, "text/plain"), Some(400), "{path}");
            assert_eq!(with(path, "application/x-www-form-urlencoded"), Some(400), "{path}");
            assert_eq!(with(path, "application/json; charset=utf-8"), None, "{path}");
            assert_eq!(refused(&[], path, &[HOST, ("sec-fetch-site", "same-origin")]), Some(400), "{path}");
            let form = ("content-type", "application/x-www-form-urlencoded");
            assert_eq!(refused(&[], path, &[HOST, form]), None, "{path}");
        }
        assert_eq!(with("POST /v2/models/m/infer", "application/octet-stream"), None);
    }
}
