//! Keeps the lease of this server, and frees the sequences of servers that are gone.
//!
//! If a heartbeat comes too late, other servers may have taken sequences over. Then this server first sends a heartbeat, which stops that, and
//! asks Redis which sequences are still its own. Only after that it has a lease again. It knows that it was late by its own clock, and by what
//! Redis says: the life of a heartbeat ends with its key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::claims::Claims;
use super::host::StopSign;
use super::keys;
use super::lease::LeaseClock;
use super::link::{Bundle, RedisLink};
use super::scripts::{RecordScript, bytes, number, text};
use super::shared_tier::SharedTier;
use crate::state::tier::error::TierError;
use crate::state::tier::record::TierKey;

/// Leases that pass without a heartbeat before a server's sequences are freed. A claim does not wait for that.
const GONE: u32 = 10;
/// Maximum number of sequences that are freed at a time.
const PORTION: usize = 256;
/// Number of sequences that Redis looks at for one portion of those of this server.
const SCANNED: &[u8] = b"1000";
/// Time between two looks for sequences that this server owns and does not use.
const UNUSED: Duration = Duration::from_secs(10);
/// Longest time between two attempts while Redis is away.
const AGAIN: Duration = Duration::from_millis(50);

const LOST: &str = "the lease of this server has ended: it refuses steps of shared sequences until it has one";

const REGAINED: &str = "this server has its lease again: it answers steps of shared sequences";

pub(super) struct Heartbeat {
    tier: Arc<SharedTier>,
    lease: Arc<LeaseClock>,
    claims: Claims,
    link: RedisLink,
    node: String,
    stop: Arc<StopSign>,
    /// Since when heartbeats fail.
    away: Option<Instant>,
    /// Sequences that belong to others since the lease ended.
    lost: usize,
    /// Servers without a heartbeat, and since when.
    gone: HashMap<String, Instant>,
    swept: Instant,
    tidied: Instant,
    /// Where the look through the sequences of this server in Redis goes on.
    cursor: String,
}

impl Heartbeat {
    pub(super) fn new(
        (tier, lease, claims): (Arc<SharedTier>, Arc<LeaseClock>, Claims),
        link: RedisLink,
        node: String,
        stop: Arc<StopSign>,
    ) -> Heartbeat {
        let (swept, tidied, cursor) = (Instant::now(), Instant::now(), "0".to_owned());
        let (away, lost, gone) = (None, 0, HashMap::new());
        Heartbeat { tier, lease, claims, link, node, stop, away, lost, gone, swept, tidied, cursor }
    }

    /// Sends the first heartbeat of a server, which has no sequence yet.
    pub(super) fn first(link: &mut RedisLink, run: &str, node: &str, lease: &LeaseClock) -> Result<(), TierError> {
        let sent = lease.now();
        let life = Heartbeat::send(link, run, node, lease.lease())?;
        lease.renewed(sent, life);
        Ok(())
    }

    /// Sends a heartbeat. Returns its life.
    fn send(link: &mut RedisLink, run: &str, node: &str, lease: Duration) -> Result<u64, TierError> {
        let millis = lease.as_millis().to_string();
        let mut bundle = Bundle::new();
        bundle.script(
            RecordScript::Beat,
            &[keys::beat(run).as_bytes(), keys::RUNS.as_bytes()],
            &[run.as_bytes(), node.as_bytes(), millis.as_bytes()],
        );
        let answer = link.send(&bundle)?.pop().unwrap_or(Value::Nil);
        text(&answer).and_then(|life| life.parse().ok()).ok_or_else(|| link.unexpected(&answer))
    }

    fn beat(&mut self) -> Result<u64, TierError> {
        Heartbeat::send(&mut self.link, &self.tier.run, &self.node, self.lease.lease())
    }

    pub(super) fn run(mut self) {
        loop {
            let wait = if self.away.is_some() { self.lease.interval().min(AGAIN) } else { self.lease.interval() };
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
                if let Err(error) = self.find_astray() {
                    tracing::debug!(%error, "the sequences of this server are not compared with those in Redis yet");
                }
            }
        }
    }

    fn report(&mut self, error: Option<&TierError>) {
        match (error, self.away) {
            (Some(error), None) => {
                tracing::warn!(%error, "the heartbeat of this server is late");
                self.away = Some(Instant::now());
            }
            (None, Some(since)) => {
                let away_seconds = since.elapsed().as_secs_f64();
                tracing::info!(away_seconds, "the heartbeat of this server is back");
                self.away = None;
            }
            _ => {}
        }
        self.note_lapse();
    }

    fn note_lapse(&self) {
        if self.lease.lapse(self.lease.now()) {
            tracing::error!("{LOST}");
        }
    }

    /// Renews the lease. If it had ended by the time of the answer, the sequences here are checked first.
    pub(super) fn renew(&mut self) -> Result<(), TierError> {
        let sent = self.lease.now();
        let life = self.beat()?;
        // Redis cannot have lost the heartbeat as long as the lease holds by this clock, unless it has lost its data or a clock stood still.
        if self.lease.holds() && life == self.lease.life() {
            self.lease.renewed(sent, life);
            return Ok(());
        }
        if self.lease.end() {
            tracing::error!("{LOST}");
        }
        let sent = self.check(sent, life)?;
        let away_seconds = self.lease.away_for().unwrap_or_default().as_secs_f64();
        self.lease.renewed(sent, life);
        let sequences_lost = std::mem::take(&mut self.lost);
        tracing::info!(away_seconds, sequences_lost, "{REGAINED}");
        // Those that were dropped without a lease could not be released then. Until they are, their steps are refused.
        if let Some(host) = self.tier.host() {
            host.release_unused(false);
        }
        Ok(())
    }

    /// Drops the sequences that belong to others now. Sends a heartbeat with each portion, so that the others stay its own. Returns when the
    /// last one was sent.
    fn check(&mut self, mut sent: Duration, life: u64) -> Result<Duration, TierError> {
        for portion in self.tier.held.portions() {
            let now = self.lease.now();
            if self.beat()? != life {
                let (address, what) = (self.link.address().shown.clone(), "the heartbeat ended again".to_owned());
                return Err(TierError::Unreachable { address, what });
            }
            sent = now;
            let lost = self.tier.check(&mut self.link, &portion)?;
            self.drop_lost(lost);
        }
        Ok(sent)
    }

    fn drop_lost(&mut self, lost: Vec<TierKey>) {
        if lost.is_empty() {
            return;
        }
        let sequences = lost.len();
        self.lost += sequences;
        tracing::error!(sequences, "sequences of this server belong to others now, and are dropped here");
        if let Some(host) = self.tier.host() {
            host.lost(lost);
        }
    }

    // === sequences of this server that it does not know ===

    /// Looks for sequences that belong to this server in Redis and that it does not hold, because a claim or a release got no answer.
    pub(super) fn find_astray(&mut self) -> Result<(), TierError> {
        let owned = keys::owned(&self.tier.run);
        let mut bundle = Bundle::new();
        bundle.command("SCARD", &[owned.as_bytes()]);
        let counted = self.link.send(&bundle)?.first().and_then(number).and_then(|n| usize::try_from(n).ok());
        if self.cursor == "0" && counted == Some(self.tier.held.len()) {
            return Ok(());
        }
        let since = Instant::now();
        loop {
            let mut scan = Bundle::new();
            scan.command("SSCAN", &[owned.as_bytes(), self.cursor.as_bytes(), b"COUNT", SCANNED]);
            let answer = self.link.send(&scan)?.pop().unwrap_or(Value::Nil);
            let Value::Array(parts) = &answer else { return Err(self.link.unexpected(&answer)) };
            let [next, Value::Array(found)] = parts.as_slice() else { return Err(self.link.unexpected(&answer)) };
            let found = found.iter().filter_map(|key| TierKey::decode(bytes(key)?));
            found.filter(|key| !self.tier.held.contains(key)).for_each(|key| self.claims.disown(key, None));
            self.cursor = text(next).unwrap_or_else(|| "0".to_owned());
            if self.cursor == "0" || since.elapsed() >= self.lease.interval() / 2 {
                return Ok(());
            }
        }
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
        // The next heartbeat must not wait for this.
        let since = Instant::now();
        for run in due {
            while self.free(&run)? {
                if since.elapsed() >= self.lease.interval() / 2 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Frees some sequences of a server that is gone. Once it has none, it is forgotten. Returns whether it may have more.
    fn free(&mut self, run: &str) -> Result<bool, TierError> {
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
        let answers = self.link.send(&bundle)?;
        Ok(!keys.is_empty() && answers.iter().all(|answer| bytes(answer) == Some(b"ok")))
    }

    fn members(&mut self, set: &str) -> Result<Vec<Vec<u8>>, TierError> {
        let most = PORTION.to_string();
        let mut bundle = Bundle::new();
        bundle.command("SRANDMEMBER", &[set.as_bytes(), most.as_bytes()]);
        let answer = self.link.send(&bundle)?.pop().unwrap_or(Value::Nil);
        let Value::Array(members) = answer else { return Err(self.link.unexpected(&answer)) };
        Ok(members.iter().filter_map(|member| bytes(member).map(<[u8]>::to_vec)).collect())
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
