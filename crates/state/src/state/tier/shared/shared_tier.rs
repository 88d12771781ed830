//! The shared store as the writer of all models sees it: it knows the sequences that this server owns, and writes only those.
//!
//! Each activation of a sequence here has a first incarnation. A change with an earlier one comes from a time before the sequence went to
//! another server and came back. It is fenced like a write of another server.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use redis::Value;
use sequor_core::Id;

use super::held_records::{HeldRecord, HeldRecords};
use super::host::{SharedHost, SharedUsage};
use super::keys;
use super::known_successions::KnownSuccessions;
use super::link::{Bundle, RedisLink};
use super::scripts::{RecordScript, text};
use crate::state::tier::contract::{FoundState, Released, RunningTime, Tier, TierChange, TierUsage};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{EndedState, StateHead, TierKey};
use crate::state::tier::succession::Successions;

/// Number of epochs that a server takes at once. Ids that it assigns are within them, so they differ from those of all other servers.
const EPOCHS_AT_ONCE: u64 = 1 << 22;
/// Maximum number of sequences that are released in one bundle.
const RELEASE_PORTION: usize = 256;
/// Maximum bytes of states in one bundle, unless one state alone is larger.
const BUNDLE_BYTES: usize = 8 << 20;

/// The states of the sequences that this server owns.
pub struct SharedTier {
    /// Names this process.
    pub(super) run: String,
    pub(super) held: HeldRecords,
    pub(super) successions: KnownSuccessions,
    pub(super) link: Mutex<RedisLink>,
    /// Number of states that this server has written. Each has its own key.
    pub(super) blobs: AtomicU64,
    /// The number of the last change of a record by this server.
    number: AtomicU64,
    closed: AtomicBool,
    host: OnceLock<Arc<dyn SharedHost>>,
    pub(super) counts: TierCounts,
}

/// Counts for metrics.
#[derive(Debug, Default)]
pub(super) struct TierCounts {
    pub(super) claimed: AtomicU64,
    pub(super) taken_over: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) fenced: AtomicU64,
}

impl fmt::Debug for SharedTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTier").field("run", &self.run).finish_non_exhaustive()
    }
}

impl SharedTier {
    pub(super) fn new(run: String, link: RedisLink) -> SharedTier {
        SharedTier {
            run,
            held: HeldRecords::default(),
            successions: KnownSuccessions::default(),
            link: Mutex::new(link),
            blobs: AtomicU64::new(0),
            number: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            host: OnceLock::new(),
            counts: TierCounts::default(),
        }
    }

    pub(super) fn set_host(&self, host: Arc<dyn SharedHost>) {
        let _ = self.host.set(host);
    }

    pub(super) fn host(&self) -> Option<&Arc<dyn SharedHost>> {
        self.host.get()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The number of the next change of a record. Each change has one, in the order in which Redis must get them.
    pub(super) fn next_number(&self) -> String {
        (self.number.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    }

    pub(super) fn usage_of_servers(&self) -> SharedUsage {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let TierCounts { claimed, taken_over, given_up, fenced } = &self.counts;
        SharedUsage {
            sequences: self.held.len(),
            claimed: count(claimed),
            taken_over: count(taken_over),
            given_up: count(given_up),
            fenced: count(fenced),
            ..SharedUsage::default()
        }
    }

    /// Asks Redis which of these sequences belong to this server still. Returns the others, and forgets them.
    pub(super) fn check(&self, link: &mut RedisLink, portion: &[(TierKey, u64)]) -> Result<Vec<TierKey>, TierError> {
        let mut bundle = Bundle::new();
        for (key, _) in portion {
            bundle.command("HMGET", &[&keys::record(key), b"owner", b"epoch"]);
        }
        let (answers, mut lost) = (link.send(&bundle)?, Vec::new());
        if let Some(wrong) = answers.iter().find(|answer| !matches!(answer, Value::Array(_))) {
            return Err(link.unexpected(wrong));
        }
        for ((key, epoch), answer) in portion.iter().zip(&answers) {
            let Value::Array(parts) = answer else { continue };
            let is_ours = parts.first().and_then(text).as_ref() == Some(&self.run)
                && parts.get(1).and_then(text) == Some(epoch.to_string());
            if !is_ours && self.held.lose(key, *epoch) {
                lost.push(key.clone());
            }
        }
        Ok(lost)
    }

    /// Asks Redis for the state of a sequence whose last write got no answer. That write does nothing any more if it arrives later.
    fn recall_if_unsure(&self, key: &TierKey) -> Result<(), TierError> {
        if self.held.unsure_epoch_of(key).is_some() {
            let lost = self.recall(&mut self.link.lock(), &[key])?;
            self.report_fenced(lost);
        }
        Ok(())
    }

    /// Releases all sequences.
    fn leave(&self) -> Result<(), TierError> {
        let mut link = self.link.lock();
        let unsure = self.held.unsure();
        self.recall(&mut link, &unsure.iter().collect::<Vec<_>>())?;
        let all: Vec<(TierKey, HeldRecord)> = self.held.drain();
        for portion in all.chunks(RELEASE_PORTION) {
            let mut bundle = Bundle::new();
            for (key, of) in portion {
                let left = Released::AsStored { ended: None };
                self.release(&mut bundle, key, (of.epoch, of.head.as_deref()), &left);
            }
            link.send(&bundle)?;
        }
        Ok(())
    }

    /// Ends the heartbeat. This server stays in the list of servers until another one finds that none of its sequences is left.
    pub(super) fn retire(&self) -> Result<(), TierError> {
        let mut bundle = Bundle::new();
        bundle.command("DEL", &[keys::beat(&self.run).as_bytes()]);
        self.link.lock().send(&bundle).map(drop)
    }
}

impl Tier for SharedTier {
    fn get(&self, key: &TierKey) -> FoundState {
        self.recall_if_unsure(key)?;
        let Some(HeldRecord { head, blob, is_unsure, .. }) = self.held.get(key) else { return Ok(None) };
        if is_unsure {
            return Err(TierError::Checksum { step: head.map_or(0, |head| head.step) });
        }
        let Some(head) = head else { return Ok(None) };
        let mut bundle = Bundle::new();
        bundle.command("GET", &[blob.as_bytes()]);
        let mut link = self.link.lock();
        match link.send(&bundle)?.pop() {
            Some(Value::BulkString(file)) if head.fits(&file) => Ok(Some((head, file))),
            Some(Value::BulkString(_) | Value::Nil) => Err(TierError::Checksum { step: head.step }),
            other => Err(link.unexpected(&other.unwrap_or(Value::Nil))),
        }
    }

    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError> {
        self.put_each(changes).map(|failed| failed.into_keys().collect())
    }

    /// Changes of one sequence go into different bundles, because the second may depend on the first. If the link fails, the changes of the
    /// earlier bundles are done, and those of later ones are not sent.
    fn put_each(&self, changes: &[TierChange]) -> Result<HashMap<usize, TierError>, TierError> {
        if self.is_closed() {
            return Err(TierError::Closed);
        }
        let (mut failed, mut portion) = (HashMap::new(), Vec::new());
        let (mut seen, mut bytes): (HashSet<&TierKey>, usize) = (HashSet::new(), 0);
        let mut away = None;
        let mut send = |portion: &mut Vec<(usize, &TierChange)>| {
            match &away {
                None => away = self.put_portion(portion, &mut failed).err().map(TierError::unsent),
                Some(error) => failed.extend(portion.iter().map(|(place, _)| (*place, TierError::clone(error)))),
            }
            portion.clear();
        };
        for (place, change) in changes.iter().enumerate() {
            // The end of a sequence goes with its removal.
            let key = change.key().filter(|_| !matches!(change, TierChange::Remember { .. }));
            let size = if let TierChange::Put { file, .. } = change { file.len() } else { 0 };
            let is_second = key.is_some_and(|key| seen.contains(key));
            if is_second || (bytes + size > BUNDLE_BYTES && !portion.is_empty()) {
                send(&mut portion);
                (seen, bytes) = (HashSet::new(), 0);
            }
            seen.extend(key);
            bytes += size;
            portion.push((place, change));
        }
        send(&mut portion);
        Ok(failed)
    }

    /// The first state of an activation was written before it.
    fn is_of(&self, key: &TierKey, head: &StateHead, incarnation: u64) -> bool {
        head.incarnation == incarnation || self.held.is_first_incarnation(key, incarnation)
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.held.head_of(key)
    }

    fn known(&self, key: &TierKey) -> Option<Option<Arc<StateHead>>> {
        self.held.get(key).filter(|of| !of.is_unsure).map(|of| of.head)
    }

    fn look(&self, key: &TierKey) -> Result<Option<Arc<StateHead>>, TierError> {
        self.recall_if_unsure(key)?;
        let HeldRecord { head, is_unsure, .. } = self.held.get(key).ok_or(TierError::Fenced)?;
        let step = head.as_ref().map_or(0, |head| head.step);
        if is_unsure { Err(TierError::Checksum { step }) } else { Ok(head) }
    }

    /// None: this server takes a sequence over once a request of it arrives.
    fn list(&self, _: &str) -> Vec<(Id, Arc<StateHead>)> {
        Vec::new()
    }

    fn take_ended(&self, _: &str) -> Vec<(Id, EndedState)> {
        Vec::new()
    }

    fn successions(&self, model: &str) -> Successions {
        self.successions.of(model, &self.link)
    }

    fn running_time(&self) -> RunningTime {
        RunningTime::default()
    }

    fn usage(&self) -> TierUsage {
        let states = self.held.len();
        TierUsage { states, bytes: self.held.bytes(), limit: u64::MAX }
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        let (least, span) = (least.to_string(), EPOCHS_AT_ONCE.to_string());
        let mut bundle = Bundle::new();
        bundle.script(RecordScript::Epoch, &[keys::EPOCH.as_bytes()], &[least.as_bytes(), span.as_bytes()]);
        let mut link = self.link.lock();
        let answer = link.send(&bundle)?.pop().unwrap_or(Value::Nil);
        text(&answer).and_then(|epoch| epoch.parse().ok()).ok_or_else(|| link.unexpected(&answer))
    }

    fn close(&self) {
        if let Err(error) = self.leave() {
            tracing::error!(%error, "the sequences of this server are not released; other servers take them over after state.lease");
        }
        self.closed.store(true, Ordering::Release);
    }
}
