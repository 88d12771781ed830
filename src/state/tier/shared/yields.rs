//! Hears which sequences other servers want, and asks the models to give them up. A sequence that is busy is asked for again, until the
//! other server waits no longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Connection;

use super::host::{HandoverState, StopSign, handover_wait};
use super::keys;
use super::link::RedisAddress;
use super::shared_tier::SharedTier;
use crate::state::tier::record::TierKey;

/// Time between two looks at a sequence that is busy, and between two looks at the stop sign.
const BUSY: Duration = Duration::from_millis(2);
const QUIET: Duration = Duration::from_millis(100);
/// Maximum number of sequences that are given up at one time. Servers that want others ask again.
const MOST: usize = 4096;

/// Sequences that are wanted elsewhere.
struct WantedSequences {
    tier: Arc<SharedTier>,
    lease: Duration,
    all: Vec<(TierKey, Instant)>,
}

pub(super) fn run(tier: &Arc<SharedTier>, address: &RedisAddress, lease: Duration, stop: &StopSign) {
    let mut wanted = WantedSequences { tier: Arc::clone(tier), lease, all: Vec::new() };
    while !stop.is_set() {
        let listened = address.connect(QUIET).map_err(|error| error.to_string());
        let ended = listened.and_then(|mut connection| listen(&mut connection, &mut wanted, stop));
        if let Err(error) = ended {
            tracing::debug!(error, "other servers cannot ask for sequences of this server at present");
        }
        wanted.go_on();
        if stop.wait(QUIET) {
            return;
        }
    }
}

/// Listens until the connection fails or the server stops.
fn listen(connection: &mut Connection, wanted: &mut WantedSequences, stop: &StopSign) -> Result<(), String> {
    let mut heard = connection.as_pubsub();
    heard.subscribe(keys::channel(&wanted.tier.run)).map_err(|error| error.to_string())?;
    while !stop.is_set() {
        let wait = if wanted.all.is_empty() { QUIET } else { BUSY };
        heard.set_read_timeout(Some(wait)).map_err(|error| error.to_string())?;
        match heard.get_message() {
            Ok(message) => wanted.add(message.get_payload_bytes()),
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error.to_string()),
        }
        wanted.go_on();
    }
    Ok(())
}

impl WantedSequences {
    fn add(&mut self, key: &[u8]) {
        let Some(key) = TierKey::decode(key) else { return };
        if self.all.len() < MOST && !self.all.iter().any(|(of, _)| *of == key) {
            self.all.push((key, Instant::now() + handover_wait(self.lease)));
        }
    }

    fn go_on(&mut self) {
        let Some(host) = self.tier.host().cloned() else { return };
        host.release_unused(false);
        let now = Instant::now();
        self.all.retain(|(key, until)| {
            if host.hand_over(key) == HandoverState::Done {
                return false;
            }
            let is_over = now >= *until;
            if is_over {
                host.keep(key);
            }
            !is_over
        });
    }
}
