//! Keeps the lease of this server, and frees the sequences of servers that are gone.
//!
//! If a heartbeat comes too late, other servers may have taken sequences over. Then this server first sends a heartbeat, which stops that, and
//! asks Redis which sequences are still its own. Only after that it has a lease again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::host::StopSign;
use super::keys;
use super::lease::LeaseClock;
use super::link::{Bundle, RedisLink};
use super::scripts::{RecordScript, text};
use super::shared_tier::SharedTier;
use crate::state::tier::error::TierError;

/// Leases that pass without a heartbeat before a server's sequences are freed. A claim does not wait for that.
const GONE: u32 = 10;
/// Maximum number of sequences that are freed at a time.
const PORTION: usize = 64;
/// Time between two looks for sequences that this server owns and does not use.
const UNUSED: Duration = Duration::from_secs(10);
/// Longest time between two attempts while Redis is away.
const AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Heartbeat {
    tier: Arc<SharedTier>,
    lease: Arc<LeaseClock>,
    link: RedisLink,
    node: String,
    stop: Arc<StopSign>,
    /// Whether the lease ended since the sequences were checked.
    has_lapsed: bool,
    /// Whether the last heartbeat failed.
    is_away: bool,
    /// Servers without a heartbeat, and since when.
    gone: HashMap<String, Instant>,
    swept: Instant,
    tidied: Instant,
}

impl Heartbeat {
    pub(super) fn new(
        tier: Arc<SharedTier>,
        lease: Arc<LeaseClock>,
        link: RedisLink,
        node: String,
        stop: Arc<StopSign>,
    ) -> Heartbeat {
        let (swept, tidied) = (Instant::now(), Instant::now());
        let (has_lapsed, is_away, gone) = (false, false, HashMap::new());
        Heartbeat { tier, lease, link, node, stop, has_lapsed, is_away, gone, swept, tidied }
    }

    /// Sends a heartbeat, and gives the lease from this time on.
    pub(super) fn beat(
        link: &mut RedisLink,
        run: &str,
        node: &str,
        lease: &LeaseClock,
        sent: Instant,
    ) -> Result<(), TierError> {
        Heartbeat::send(link, run, node, lease.lease())?;
        lease.renewed(sent);
        Ok(())
    }

    fn send(link: &mut RedisLink, run: &str, node: &str, lease: Duration) -> Result<(), TierError> {
        let millis = lease.as_millis().to_string();
        let mut bundle = Bundle::new();
        bundle.command("SET", &[keys::beat(run).as_bytes(), node.as_bytes(), b"PX", millis.as_bytes()]);
        bundle.command("SADD", &[keys::RUNS.as_bytes(), run.as_bytes()]);
        let answers = link.send(&bundle)?;
        match answers.iter().find(|answer| matches!(answer, Value::ServerError(_))) {
            Some(error) => Err(link.unexpected(error)),
            None => Ok(()),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let wait = if self.is_away { self.lease.interval().min(AGAIN) } else { self.lease.interval() };
            if self.stop.wait(wait) {
                return;
            }
            let outcome = self.renew();
            self.report(outcome.as_ref().err());
            if outcome.is_ok() {
                self.sweep_when_due();
            }
            if self.tidied.elapsed() >= UNUSED {
                self.tidied = Instant::now();
                if let Some(host) = self.tier.host() {
                    host.release_unused(true);
                }
            }
        }
    }

    fn report(&mut self, error: Option<&TierError>) {
        match (error, self.is_away) {
            (Some(error), false) => tracing::warn!(%error, "the heartbeat of this server is late"),
            (None, true) => tracing::info!("the heartbeat of this server is back"),
            _ => {}
        }
        self.is_away = error.is_some();
        if self.lease.lapse(Instant::now()) {
            self.has_lapsed = true;
            tracing::error!(
                "the lease of this server has ended: it refuses steps of shared sequences until it has one"
            );
        }
    }

    fn renew(&mut self) -> Result<(), TierError> {
        let sent = Instant::now();
        self.has_lapsed |= self.lease.lapse(sent);
        if !self.has_lapsed {
            return Heartbeat::beat(&mut self.link, &self.tier.run, &self.node, &self.lease, sent);
        }
        Heartbeat::send(&mut self.link, &self.tier.run, &self.node, self.lease.lease())?;
        let lost = self.tier.check_held(&mut self.link)?;
        if !lost.is_empty() {
            let sequences = lost.len();
            tracing::error!(sequences, "sequences of this server belong to others now, and are dropped here");
            if let Some(host) = self.tier.host() {
                host.lost(lost);
            }
        }
        self.lease.renewed(sent);
        self.has_lapsed = !self.lease.holds();
        Ok(())
    }

    // === servers that are gone ===

    fn sweep_when_due(&mut self) {
        if self.swept.elapsed() < self.lease.lease() {
            return;
        }
        self.swept = Instant::now();
        if let Err(error) = self.sweep() {
            tracing::debug!(%error, "the sequences of servers that are gone are not freed yet");
        }
    }

    fn sweep(&mut self) -> Result<(), TierError> {
        let runs = self.strings("SMEMBERS", &[keys::RUNS.as_bytes()])?;
        let mut bundle = Bundle::new();
        for run in &runs {
            bundle.command("EXISTS", &[keys::beat(run).as_bytes()]);
        }
        let alive = self.link.send(&bundle)?;
        let now = Instant::now();
        let gone = runs.into_iter().zip(alive).filter(|(_, alive)| *alive == Value::Int(0)).map(|(run, _)| run);
        let before = std::mem::take(&mut self.gone);
        self.gone = gone.map(|run| (run.clone(), before.get(&run).copied().unwrap_or(now))).collect();
        let limit = self.lease.lease() * GONE;
        let due: Vec<String> = self
            .gone
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= limit)
            .map(|(run, _)| run.clone())
            .collect();
        due.iter().try_for_each(|run| self.free(run))
    }

    /// Frees some sequences of a server that is gone. Once it has none, it is forgotten.
    fn free(&mut self, run: &str) -> Result<(), TierError> {
        let owned = keys::owned(run);
        let keys = self.members(&owned)?;
        let mut bundle = Bundle::new();
        for key in &keys {
            let record = [keys::RECORD.as_bytes(), key].concat();
            bundle.script(RecordScript::Orphan, &[&record, owned.as_bytes()], &[run.as_bytes(), key]);
        }
        if keys.is_empty() {
            bundle.command("SREM", &[keys::RUNS.as_bytes(), run.as_bytes()]);
        }
        self.link.send(&bundle).map(drop)
    }

    fn members(&mut self, set: &str) -> Result<Vec<Vec<u8>>, TierError> {
        let most = PORTION.to_string();
        let mut bundle = Bundle::new();
        bundle.command("SRANDMEMBER", &[set.as_bytes(), most.as_bytes()]);
        let answer = self.link.send(&bundle)?.pop().unwrap_or(Value::Nil);
        let Value::Array(members) = answer else { return Err(self.link.unexpected(&answer)) };
        Ok(members.iter().filter_map(|member| super::scripts::bytes(member).map(<[u8]>::to_vec)).collect())
    }

    fn strings(&mut self, command: &str, arguments: &[&[u8]]) -> Result<Vec<String>, TierError> {
        let mut bundle = Bundle::new();
        bundle.command(command, arguments);
        match self.link.send(&bundle)?.pop() {
            Some(Value::Array(all) | Value::Set(all)) => Ok(all.iter().filter_map(text).collect()),
            other => Err(self.link.unexpected(&other.unwrap_or(Value::Nil))),
        }
    }
}
