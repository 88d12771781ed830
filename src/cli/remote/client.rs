//! Sends requests to the admin listener of a server, and returns the answer or the reason why there is none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::ArgMatches;
use clap::parser::ValueSource;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use super::tls;
use crate::cli::Failed;

/// Maximum times for a connection and for an answer. The answer may take long, because the server compiles and tries a plug-in first.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(120);

/// A client for one server's admin listener.
pub(crate) struct Client {
    runtime: Runtime,
    host: String,
    port: u16,
    /// The source of the address, for error messages.
    origin: &'static str,
    tls: Option<ClientTls>,
    key: Option<String>,
}

struct ClientTls {
    config: Arc<ClientConfig>,
    /// Whether the client presents a certificate of its own.
    presents: bool,
}

/// The body of a request.
pub(crate) enum RequestPayload {
    Nothing,
    Json(Value),
    Bytes(Vec<u8>),
}

impl Client {
    /// Builds a client for the server that the arguments name.
    pub(crate) fn from_matches(matches: &ArgMatches) -> Result<Client, Failed> {
        let path = |name: &str| matches.get_one::<PathBuf>(name).map(PathBuf::as_path);
        let origin = super::text(matches, "server");
        let (is_https, rest) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => (false, origin),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = address(rest).ok_or_else(|| Failed::Configuration(no_address(rest)))?;
        let own = path("tls-cert").zip(path("tls-key"));
        let tls = match path("tls-ca") {
            Some(ca) => {
                let config = tls::config(ca, own).map_err(Failed::Configuration)?;
                Some(ClientTls { config, presents: own.is_some() })
            }
            None if is_https || own.is_some() => {
                let what = "TLS needs --tls-ca FILE: the authority that the server's certificate comes from";
                return Err(Failed::Configuration(what.to_owned()));
            }
            None => None,
        };
        let key = path("key-file").map(key).transpose()?;
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = built.map_err(|e| Failed::Failed(format!("no thread for sockets: {e}")))?;
        let origin = match matches.value_source("server") {
            Some(ValueSource::CommandLine) => "from --server",
            Some(ValueSource::EnvVariable) => "from SEQUOR_SERVER",
            _ => "the default",
        };
        Ok(Client { runtime, host, port, origin, tls, key })
    }

    /// Whether the server is on this machine, so that it can read files by their paths.
    pub(crate) fn is_here(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, Failed> {
        self.ask(&Method::GET, path, RequestPayload::Nothing)
    }

    pub(crate) fn post(&self, path: &str, body: RequestPayload) -> Result<Value, Failed> {
        self.ask(&Method::POST, path, body)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Value, Failed> {
        self.ask(&Method::DELETE, path, RequestPayload::Nothing)
    }

    pub(crate) fn put(&self, path: &str, body: RequestPayload) -> Result<Value, Failed> {
        self.ask(&Method::PUT, path, body)
    }

    /// The answer's bytes, unchanged.
    pub(crate) fn fetch(&self, path: &str) -> Result<Bytes, Failed> {
        self.send(&Method::GET, path, RequestPayload::Nothing)
    }

    /// The same for a POST request, which the server may answer late.
    pub(crate) fn fetch_by_post(&self, path: &str) -> Result<Bytes, Failed> {
        self.send(&Method::POST, path, RequestPayload::Nothing)
    }

    /// Whether something accepts connections at the address.
    pub(crate) fn is_there(&self) -> bool {
        self.runtime.block_on(self.connect()).is_ok()
    }

    fn ask(&self, method: &Method, path: &str, body: RequestPayload) -> Result<Value, Failed> {
        Ok(serde_json::from_slice(&self.send(method, path, body)?).unwrap_or(Value::Null))
    }

    /// Sends a request. Returns the body of a successful answer.
    fn send(&self, method: &Method, path: &str, body: RequestPayload) -> Result<Bytes, Failed> {
        let request = self.request(method, path, body)?;
        let answered = async {
            let exchanged = tokio::time::timeout(ANSWER, self.exchange(request)).await;
            exchanged.map_err(|_| self.unreachable(&format!("no answer within {} s", ANSWER.as_secs())))?
        };
        let (status, bytes) = self.runtime.block_on(answered)?;
        if (200..300).contains(&status) {
            return Ok(bytes);
        }
        let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
        let field = |name: &str| answer.as_ref().and_then(|answer| answer.get(name)?.as_str());
        if status == 404 && field("reason").is_none() {
            return Err(self.not_the_admin_listener(path));
        }
        let text = field("error").map_or_else(|| format!("the server answers with status {status}"), str::to_owned);
        let help = field("reason").map(|reason| format!("docs/troubleshoot.md#{reason}"));
        Err(Failed::Refused { text, help })
    }

    fn request(&self, method: &Method, path: &str, body: RequestPayload) -> Result<Request<Full<Bytes>>, Failed> {
        let mut builder =
            Request::builder().method(method).uri(path).header(HOST, format!("{}:{}", self.host, self.port));
        if let Some(key) = &self.key {
            builder = builder.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let bytes = match body {
            RequestPayload::Nothing => Bytes::new(),
            RequestPayload::Bytes(bytes) => bytes.into(),
            RequestPayload::Json(value) => {
                builder = builder.header(CONTENT_TYPE, "application/json");
                value.to_string().into()
            }
        };
        builder.body(Full::new(bytes)).map_err(|e| Failed::Failed(format!("{path} cannot be asked for: {e}")))
    }

    async fn connect(&self) -> Result<TcpStream, Failed> {
        let connecting = TcpStream::connect((self.host.trim_matches(['[', ']']), self.port));
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.nobody_there(&error.to_string())),
            Err(_) => Err(self.nobody_there(&format!("no connection within {} s", CONNECT.as_secs()))),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), Failed> {
        let stream = self.connect().await?;
        let Some(tls) = &self.tls else { return self.talk(stream, request).await };
        let name = ServerName::try_from(self.host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|e| Failed::Configuration(format!("{}: {e}", self.host)))?;
        let shaken = TlsConnector::from(Arc::clone(&tls.config)).connect(name, stream).await;
        self.talk(shaken.map_err(|e| self.unreachable(&tls::refusal(&e, tls.presents)))?, request).await
    }

    async fn talk<S>(&self, stream: S, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| self.broken(&e))?;
        let connection = tokio::spawn(connection);
        let answered = async move {
            let answer: Response<Incoming> = sender.send_request(request).await?;
            let status = answer.status().as_u16();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
        };
        match answered.await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                // If the connection has failed, it knows why.
                let of_connection = connection.await.ok().and_then(Result::err);
                Err(self.broken(&of_connection.unwrap_or(error)))
            }
        }
    }

    /// The error if a connection has ended before the answer.
    fn broken(&self, error: &hyper::Error) -> Failed {
        let why = match &self.tls {
            None => Some(format!("{error}. If it speaks TLS, add --tls-ca FILE")),
            Some(tls) => tls::refusal_after_handshake(error, tls.presents),
        };
        self.unreachable(&why.unwrap_or_else(|| error.to_string()))
    }

    fn nobody_there(&self, why: &str) -> Failed {
        self.unreachable(&format!(
            "{why}. `sequor serve` may not be running, or have its admin listener elsewhere (its start line says where): --server \
             HOST:PORT, or SEQUOR_SERVER"
        ))
    }

    /// The error if the address answers, but not as an admin listener.
    fn not_the_admin_listener(&self, path: &str) -> Failed {
        let (host, port, origin) = (&self.host, self.port, self.origin);
        Failed::Unreachable(format!(
            "{host}:{port} ({origin}) answers, but has no {path}: it is not an admin listener, or of another version. The admin listener \
             is port 8003 by default; `sequor serve` prints its address"
        ))
    }

    fn unreachable(&self, why: &str) -> Failed {
        let (host, port, origin) = (&self.host, self.port, self.origin);
        Failed::Unreachable(format!("no answer from the admin listener {host}:{port} ({origin}): {why}"))
    }
}

/// Splits an address into host (an IPv6 address in brackets) and port.
fn address(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_host = !host.is_empty() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
    Some((host.to_owned(), port.parse().ok()?)).filter(|_| is_host)
}

/// Why a text is not a server's address.
fn no_address(text: &str) -> String {
    match text.contains(':') || text.is_empty() {
        true => format!("\"{text}\" is no HOST:PORT of a server"),
        false => format!("\"{text}\" has no port; write HOST:PORT, for example {text}:8003"),
    }
}

/// Reads the key from a file: the first line that is not empty or a comment, without its name.
pub(crate) fn key(path: &Path) -> Result<String, Failed> {
    let text = fs_err::read_to_string(path).map_err(|e| Failed::Configuration(e.to_string()))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next().unwrap_or_default();
    let key = line.split_once(':').map_or(line, |(_, key)| key.trim());
    if key.is_empty() {
        return Err(Failed::Configuration(format!("{} holds no key", path.display())));
    }
    Ok(key.to_owned())
}

/// Escapes a name for use in a path.
pub(crate) fn segment(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes().map(|b| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_read() {
        assert_eq!(address("127.0.0.1:8003"), Some(("127.0.0.1".to_owned(), 8003)));
        assert_eq!(address("[::1]:8003"), Some(("[::1]".to_owned(), 8003)));
        for wrong in ["localhost", "::1:8003", ":8003", "a:99999", ""] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
        assert_eq!(no_address("far"), "\"far\" has no port; write HOST:PORT, for example far:8003");
        assert_eq!(no_address("::1:8003"), "\"::1:8003\" is no HOST:PORT of a server");
        assert_eq!(segment("a b/ä.wasm"), "a%20b%2F%C3%A4.wasm");
    }

    #[test]
    fn a_key_is_the_whole_line_or_the_part_after_the_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            fs_err::write(file.path(), text).unwrap();
            key(file.path()).ok()
        };
        assert_eq!(read("s3cret\n").as_deref(), Some("s3cret"));
        assert_eq!(read("# mine\nanna:s3cret:1\nbert:x\n").as_deref(), Some("s3cret:1"));
        assert_eq!((read(""), read("anna:")), (None, None));
    }
}
