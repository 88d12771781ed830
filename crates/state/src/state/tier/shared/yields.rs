//! Hears which sequences other servers want, and asks the models to give them up. A sequence that is busy is asked for again, until the
//! other server waits no longer.
//!
//! One thread hears and another one asks, because a short time-out of a socket may be ten times as long as it was set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use redis::{Connection, PubSub, Value};

use super::claims::Claims;
use super::host::{HandoverState, StopSign, handover_wait};
use super::keys;
use super::link::{PATIENCE, RedisAddress};
use super::shared_tier::SharedTier;
use crate::state::tier::record::TierKey;

/// Time between two looks at a sequence that is busy, and between two looks at the stop sign.
const BUSY: Duration = Duration::from_millis(1);
const QUIET: Duration = Duration::from_millis(100);
/// Time without a message after which Redis is asked whether it is there.
const PING: Duration = Duration::from_secs(3);
/// Number of failures in a row after which the log says so.
const FAILURES: u32 = 5;
/// Maximum number of sequences that are given up at one time. Servers that want others ask again.
const MOST: usize = 4096;

/// Sequences that other servers have asked for just now.
#[derive(Debug, Default)]
pub(super) struct HeardKeys {
    keys: Mutex<Vec<TierKey>>,
    added: Condvar,
}

/// Sequences that are given up.
struct WantedSequences {
    tier: Arc<SharedTier>,
    claims: Claims,
    lease: Duration,
    all: Vec<(TierKey, Instant)>,
}

// === the thread that hears ===

pub(super) fn hear(tier: &SharedTier, address: &RedisAddress, heard: &HeardKeys, stop: &StopSign) {
    let mut failures = 0;
    while !stop.is_set() {
        let connected = address.connect().map_err(|error| error.to_string());
        let ended = connected.and_then(|mut connection| listen(tier, &mut connection, heard, (stop, &mut failures)));
        if let Err(error) = ended {
            failures += 1;
            if failures == FAILURES {
                tracing::warn!(
                    error,
                    "other servers cannot ask for sequences of this server: they wait until they refuse the step"
                );
            }
            tracing::debug!(error, failures, "the connection on which other servers ask for sequences has failed");
        }
        if stop.wait(QUIET) {
            return;
        }
    }
}

/// Listens until the connection fails or the server stops.
fn listen(
    tier: &SharedTier,
    connection: &mut Connection,
    heard: &HeardKeys,
    (stop, failures): (&StopSign, &mut u32),
) -> Result<(), String> {
    let mut messages = connection.as_pubsub();
    messages.subscribe(keys::channel(&tier.run)).map_err(|error| error.to_string())?;
    if std::mem::take(failures) >= FAILURES {
        tracing::info!("other servers can ask for sequences of this server again");
    }
    messages.set_read_timeout(Some(QUIET)).map_err(|error| error.to_string())?;
    let mut last = Instant::now();
    while !stop.is_set() {
        match messages.get_message() {
            Ok(message) => {
                heard.add(message.get_payload_bytes());
                last = Instant::now();
            }
            Err(error) if error.is_timeout() && last.elapsed() < PING => {}
            Err(error) if error.is_timeout() => {
                ping(&mut messages).map_err(|error| error.to_string())?;
                last = Instant::now();
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// A connection whose other end is gone looks like one without messages.
fn ping(messages: &mut PubSub<'_>) -> redis::RedisResult<()> {
    messages.set_read_timeout(Some(PATIENCE))?;
    messages.ping::<Value>()?;
    messages.set_read_timeout(Some(QUIET))
}

impl HeardKeys {
    fn add(&self, key: &[u8]) {
        let Some(key) = TierKey::decode(key) else { return };
        let mut keys = self.keys.lock();
        if keys.len() < MOST {
            keys.push(key);
            self.added.notify_one();
        }
    }

    /// The keys that were added, once there are any or this time is over.
    fn take(&self, wait: Duration) -> Vec<TierKey> {
        let mut keys = self.keys.lock();
        if keys.is_empty() {
            self.added.wait_for(&mut keys, wait);
        }
        std::mem::take(&mut keys)
    }
}

// === the thread that asks ===

pub(super) fn give_up(tier: &Arc<SharedTier>, claims: &Claims, lease: Duration, heard: &HeardKeys, stop: &StopSign) {
    let mut wanted = WantedSequences { tier: Arc::clone(tier), claims: claims.clone(), lease, all: Vec::new() };
    while !stop.is_set() {
        let wait = if wanted.all.is_empty() { QUIET } else { BUSY };
        heard.take(wait).into_iter().for_each(|key| wanted.add(key));
        wanted.go_on();
    }
}

impl WantedSequences {
    fn add(&mut self, key: TierKey) {
        if self.all.len() < MOST && !self.all.iter().any(|(of, _)| *of == key) {
            self.all.push((key, Instant::now() + handover_wait(self.lease)));
        }
    }

    fn go_on(&mut self) {
        let Some(host) = self.tier.host().cloned() else { return };
        host.release_unused(false);
        let now = Instant::now();
        self.all.retain(|(key, until)| {
            let epoch = self.tier.held.epoch_of(key);
            match host.hand_over(key) {
                HandoverState::Done => return false,
                // In Redis this server owns it, but no model here would ever release it.
                HandoverState::Absent => {
                    self.claims.disown(key.clone(), epoch);
                    return false;
                }
                HandoverState::Busy => {}
            }
            let is_over = now >= *until;
            if is_over {
                host.keep(key);
            }
            !is_over
        });
    }
}
