//! A connection to Redis that is made again after a failure. It sends several commands at once and waits for all answers.

use std::fmt;
use std::time::{Duration, Instant};

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, Connection, ConnectionLike as _, IntoConnectionInfo as _, Pipeline, Value};

use super::commands::is_tried;
use super::scripts::{RecordScript, SCRIPTS};
use crate::state::tier::error::TierError;

/// Maximum time for a connection, and for the answers to one bundle of commands.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Idle time of a connection after which the system asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Maximum number of characters of a message of Redis, in the log and for clients.
const MAX_MESSAGE_CHARS: usize = 200;
/// What to do if Redis refuses a client without a password.
const PASSWORD_NEEDED: &str = "it asks for a password: redis://:PASSWORD@HOST:PORT/0, best in SEQUOR_STATE_URL";
/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(20);

/// Where Redis is, without a secret in any text.
#[derive(Clone)]
pub(super) struct RedisAddress {
    client: Client,
    password: Option<String>,
    pub(super) shown: String,
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisAddress").field(&self.shown).finish()
    }
}

impl RedisAddress {
    /// `shown` is the URL without its password.
    pub(super) fn new(url: &str, shown: &str) -> Result<RedisAddress, TierError> {
        let wrong = |e: redis::RedisError| TierError::Refused {
            address: shown.to_owned(),
            what: format!("it is no URL of a Redis: {}", e.category()),
        };
        let info = url.into_connection_info().map_err(wrong)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true).set_keepalive(keepalive));
        // A user with few rights may not name its library.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings);
        let password = info.redis_settings().password().filter(|password| !password.is_empty()).map(str::to_owned);
        let client = Client::open(info).map_err(wrong)?;
        Ok(RedisAddress { client, password, shown: shown.to_owned() })
    }

    /// The message of Redis, for the log and for clients: bounded, and without the password. A server repeats the arguments of a command that it
    /// does not know.
    fn plain(&self, message: &str) -> String {
        let message = message.split_once("with args").map_or(message, |(before, _)| before);
        let message =
            self.password.as_ref().map_or_else(|| message.to_owned(), |password| message.replace(password, "***"));
        message.chars().filter(|sign| !sign.is_control()).take(MAX_MESSAGE_CHARS).collect()
    }

    pub(super) fn failed(&self, error: &redis::RedisError) -> TierError {
        let (address, what) = (self.shown.clone(), self.what(error));
        if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
            TierError::Unreachable { address, what }
        } else {
            TierError::Refused { address, what }
        }
    }

    /// What has failed, as a sentence that names what to do if that is known.
    fn what(&self, error: &redis::RedisError) -> String {
        if error.code() == Some("NOAUTH") || error.to_string().contains("NOAUTH") {
            return PASSWORD_NEEDED.to_owned();
        }
        let is_late = error.is_timeout() || error.to_string().contains("os error 11)");
        if is_late { format!("no answer within {} s", PATIENCE.as_secs()) } else { self.plain(&error.to_string()) }
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Result<Connection, TierError> {
        let connection = self.client.get_connection_with_timeout(PATIENCE).map_err(|e| self.failed(&e))?;
        let timeouts =
            connection.set_read_timeout(Some(PATIENCE)).and_then(|()| connection.set_write_timeout(Some(PATIENCE)));
        timeouts.map_err(|e| self.failed(&e))?;
        Ok(connection)
    }
}

/// Commands that are sent together. Each has one answer.
#[derive(Default)]
pub(super) struct Bundle(Pipeline);

impl Bundle {
    pub(super) fn new() -> Bundle {
        Bundle(Pipeline::new())
    }

    pub(super) fn command(&mut self, name: &str, arguments: &[&[u8]]) -> &mut Bundle {
        debug_assert!(is_tried(name), "the right to {name} is not checked at the start");
        self.0.cmd(name);
        for argument in arguments {
            self.0.arg(*argument);
        }
        self
    }

    pub(super) fn script(&mut self, script: RecordScript, keys: &[&[u8]], arguments: &[&[u8]]) -> &mut Bundle {
        self.0.cmd("EVALSHA").arg(script.digest()).arg(keys.len());
        for argument in keys.iter().chain(arguments) {
            self.0.arg(*argument);
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A connection, if there is one.
pub(super) struct RedisLink {
    address: RedisAddress,
    connection: Option<Connection>,
    /// Since when Redis cannot be reached.
    away: Option<Instant>,
    /// For how long commands are tried again.
    retry: Duration,
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLink").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RedisLink {
    /// Commands that get no answer are sent again on a new connection, for this long after Redis went away. So all of them must have the same
    /// effect if they are sent twice.
    pub(super) fn new(address: RedisAddress, retry: Duration) -> RedisLink {
        RedisLink { address, connection: None, away: None, retry }
    }

    pub(super) fn address(&self) -> &RedisAddress {
        &self.address
    }

    /// Connects now, if there is no connection. Scripts can be sent once one link has been connected.
    pub(super) fn ready(&mut self) -> Result<(), TierError> {
        if self.connection.is_none() {
            self.connection = Some(prepared(&self.address)?);
        }
        Ok(())
    }

    /// Sends these commands and returns their answers. An answer may be an error of Redis. If this fails as [`TierError::Unanswered`], Redis may
    /// have done them all the same, or may do them later.
    pub(super) fn send(&mut self, bundle: &Bundle) -> Result<Vec<Value>, TierError> {
        if bundle.is_empty() {
            return Ok(Vec::new());
        }
        let mut is_sent = false;
        loop {
            match self.try_send(bundle, &mut is_sent) {
                Ok(answers) => {
                    self.away = None;
                    return Ok(answers);
                }
                Err(error) => {
                    self.connection = None;
                    let away = *self.away.get_or_insert_with(Instant::now);
                    if away.elapsed() >= self.retry {
                        return Err(if is_sent { error.sent() } else { error });
                    }
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    /// Sends these commands once. `is_sent` is set before Redis can get them.
    fn try_send(&mut self, bundle: &Bundle, is_sent: &mut bool) -> Result<Vec<Value>, TierError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(prepared(&self.address)?),
        };
        let (packed, count) = (bundle.0.get_packed_pipeline(), bundle.0.len());
        *is_sent = true;
        let answers = connection.req_packed_commands(&packed, 0, count).map_err(|e| self.address.failed(&e))?;
        // Redis was started anew or its scripts were dropped, or it is still reading its file: the next connection finds it ready.
        let is_not_ready = |answer: &Value| {
            let Value::ServerError(error) = answer else { return false };
            matches!(error.code(), "NOSCRIPT" | "LOADING" | "MASTERDOWN")
        };
        match answers.iter().find(|answer| is_not_ready(answer)) {
            Some(Value::ServerError(error)) => Err(TierError::Unreachable {
                address: self.address.shown.clone(),
                what: self.address.plain(&error.to_string()),
            }),
            _ => Ok(answers),
        }
    }

    /// The error for an unexpected answer of Redis.
    pub(super) fn unexpected(&self, answer: &Value) -> TierError {
        let what = match answer {
            Value::ServerError(error) => self.address.plain(&error.to_string()),
            other => format!("its answer is {}", kind(other)),
        };
        TierError::Refused { address: self.address.shown.clone(), what }
    }
}

/// The kind of an answer. The answer itself may be large, or a state.
fn kind(answer: &Value) -> &'static str {
    match answer {
        Value::Nil => "nothing",
        Value::Int(_) | Value::Double(_) | Value::BigNumber(_) | Value::Boolean(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. } | Value::Okay => "a text",
        Value::Array(_) | Value::Set(_) | Value::Map(_) => "a list",
        _ => "of an unknown kind",
    }
}

/// A connection that knows the scripts.
fn prepared(address: &RedisAddress) -> Result<Connection, TierError> {
    let mut connection = address.connect()?;
    let mut load = Pipeline::new();
    for (script, text) in SCRIPTS {
        load.cmd("SCRIPT").arg("LOAD").arg(text);
        let _ = script;
    }
    let digests: Vec<String> = load.query(&mut connection).map_err(|e| address.failed(&e))?;
    for ((script, _), digest) in SCRIPTS.iter().zip(digests) {
        script.set_digest(digest);
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_redis_is_bounded_and_has_no_password() {
        let address = RedisAddress::new("redis://user:s3cret@127.0.0.1:1", "redis://user:***@127.0.0.1:1").unwrap();
        let unknown = "ERR unknown command 'AUTH', with args beginning with: 'user' 's3cret-and-mo' ";
        assert_eq!(address.plain(unknown), "ERR unknown command 'AUTH', ");
        assert_eq!(address.plain("ERR s3cret\r\nis wrong"), "ERR ***is wrong");
        assert_eq!(address.plain(&"x".repeat(10_000)).len(), MAX_MESSAGE_CHARS);
        let refused = redis::parse_redis_value(b"-NOAUTH Authentication required.\r\n").unwrap();
        let Value::ServerError(refused) = refused else { panic!("it is an error") };
        assert!(address.failed(&refused.into()).to_string().contains("asks for a password: redis://:PASSWORD@HOST"));
        let late = redis::RedisError::from(std::io::Error::from_raw_os_error(11));
        let TierError::Unreachable { what, .. } = address.failed(&late) else { panic!("it may come back") };
        assert_eq!(what, "no answer within 2 s");
        let link = RedisLink::new(address, Duration::ZERO);
        let answer = Value::BulkString(b"a state of a sequence".repeat(1000));
        let TierError::Refused { what, .. } = link.unexpected(&answer) else { panic!("it is refused") };
        assert_eq!(what, "its answer is a text");
    }
}
