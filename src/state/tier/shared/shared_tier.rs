//! The shared store as the writer of all models sees it: it knows the sequences that this server owns, and writes only those.
//!
//! Each activation of a sequence here has a first incarnation. A change with an earlier one comes from a time before the sequence went to
//! another server and came back. It is fenced like a write of another server.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use sequor_core::Id;

use super::host::{SharedHost, SharedUsage};
use super::keys;
use super::lease::LeaseClock;
use super::link::{Bundle, RedisLink};
use super::scripts::{RecordScript, bytes, text};
use crate::state::tier::contract::{FoundState, Released, RunningTime, Tier, TierChange, TierUsage};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{EndedState, StateHead, TierKey};
use crate::state::tier::succession::Successions;

/// Time after which Redis drops a state that no record points to.
const UNUSED: Duration = Duration::from_secs(60);
/// Time for which the end of a sequence is remembered.
const ENDS: Duration = Duration::from_secs(300);
/// Number of epochs that a server takes at once. Ids that it assigns are within them, so they differ from those of all other servers.
const SPAN: u64 = 1 << 22;
/// Maximum number of sequences that are released in one bundle.
const PORTION: usize = 256;
/// Maximum number of sequences that are checked in one bundle.
const CHECKED: usize = 2048;
/// Maximum bytes of states in one bundle, unless one state alone is larger.
const BUNDLE: usize = 8 << 20;

/// A sequence that this server owns.
#[derive(Debug, Clone)]
pub(super) struct HeldRecord {
    pub(super) epoch: u64,
    /// The first incarnation of this activation.
    pub(super) since: u64,
    pub(super) head: Option<Arc<StateHead>>,
    pub(super) blob: String,
}

/// The successions of a model, as this server knows them.
#[derive(Debug, Default)]
struct KnownSuccessions {
    /// Those that were read once, or that this server wrote last.
    list: Successions,
    /// Whether they could be read when the model asked first. If not, they are never taken from here, but read each time.
    is_read: bool,
    /// Lists that this server wrote without an answer. Redis may have any of their entries.
    tried: Vec<Successions>,
}

/// The states of the sequences that this server owns.
pub struct SharedTier {
    /// Names this process.
    pub(super) run: String,
    link: Mutex<RedisLink>,
    held: Mutex<HashMap<TierKey, HeldRecord>>,
    /// Bytes of the states in `held`.
    used: AtomicU64,
    successions: Mutex<HashMap<String, KnownSuccessions>>,
    blobs: AtomicU64,
    /// The number of the last change of a record by this server.
    number: AtomicU64,
    closed: AtomicBool,
    host: OnceLock<Arc<dyn SharedHost>>,
    counts: TierCounts,
}

/// Counts for metrics.
#[derive(Debug, Default)]
pub(super) struct TierCounts {
    pub(super) claimed: AtomicU64,
    pub(super) taken_over: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) fenced: AtomicU64,
}

/// The command for a change, with what it changes here once Redis has done it.
enum PlannedWrite {
    Put { key: TierKey, epoch: u64, head: Arc<StateHead>, blob: String },
    Clear { key: TierKey, epoch: u64 },
    Release { key: TierKey, epoch: u64 },
    Succeed { model: String, list: Successions },
}

impl fmt::Debug for SharedTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTier").field("run", &self.run).finish_non_exhaustive()
    }
}

fn millis(span: Option<Duration>) -> String {
    span.map_or_else(|| "-1".to_owned(), |span| span.as_millis().to_string())
}

impl SharedTier {
    pub(super) fn new(run: String, link: RedisLink) -> SharedTier {
        SharedTier {
            run,
            link: Mutex::new(link),
            held: Mutex::default(),
            used: AtomicU64::new(0),
            successions: Mutex::default(),
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

    pub(super) fn counts(&self) -> &TierCounts {
        &self.counts
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether this server owns the sequence, as far as it knows.
    pub(super) fn holds(&self, key: &TierKey) -> bool {
        self.held.lock().contains_key(key)
    }

    /// The epoch in which this server owns the sequence, as far as it knows.
    pub(super) fn epoch_of(&self, key: &TierKey) -> Option<u64> {
        self.held.lock().get(key).map(|of| of.epoch)
    }

    pub(super) fn held_count(&self) -> usize {
        self.held.lock().len()
    }

    /// The number of the next change of a record. Each change has one, in the order in which Redis must get them.
    pub(super) fn next_number(&self) -> String {
        (self.number.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    }

    /// Records that this server owns a sequence from now on. Does nothing and returns false if the lease has ended since the claim was sent,
    /// when it had been lost so often: then another server may own the sequence already.
    pub(super) fn hold(&self, key: TierKey, record: HeldRecord, lease: &LeaseClock, lost: u64) -> bool {
        let more = record.head.as_ref().map_or(0, |head| head.bytes);
        let mut held = self.held.lock();
        // Under this lock: what is held here before the lease ends is in the list that is checked afterwards.
        if !lease.holds_since(lost) {
            return false;
        }
        let before = held.insert(key, record);
        drop(held);
        self.used.fetch_add(more, Ordering::Relaxed);
        self.free(before.and_then(|before| before.head).as_deref());
        true
    }

    /// Forgets a sequence that this server does not own any more, unless it has taken it over again since this epoch.
    pub(super) fn lose(&self, key: &TierKey, epoch: u64) -> bool {
        let mut held = self.held.lock();
        if held.get(key).is_none_or(|of| of.epoch != epoch) {
            return false;
        }
        let before = held.remove(key);
        drop(held);
        self.free(before.and_then(|before| before.head).as_deref());
        true
    }

    fn free(&self, head: Option<&StateHead>) {
        self.used.fetch_sub(head.map_or(0, |head| head.bytes), Ordering::Relaxed);
    }

    pub(super) fn usage_of_servers(&self) -> SharedUsage {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let TierCounts { claimed, taken_over, given_up, fenced } = &self.counts;
        SharedUsage {
            sequences: self.held.lock().len(),
            claimed: count(claimed),
            taken_over: count(taken_over),
            given_up: count(given_up),
            fenced: count(fenced),
            ..SharedUsage::default()
        }
    }

    /// All sequences here with their epochs, in portions that can be checked at a time.
    pub(super) fn portions(&self) -> Vec<Vec<(TierKey, u64)>> {
        let all: Vec<(TierKey, u64)> = self.held.lock().iter().map(|(key, of)| (key.clone(), of.epoch)).collect();
        all.chunks(CHECKED).map(<[_]>::to_vec).collect()
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
            if !is_ours && self.lose(key, *epoch) {
                lost.push(key.clone());
            }
        }
        Ok(lost)
    }

    /// Adds the commands for a change to a bundle. An error makes only this change fail.
    fn plan(&self, change: &TierChange, bundle: &mut Bundle) -> Result<Option<PlannedWrite>, TierError> {
        let held = |key: &TierKey| self.held.lock().get(key).cloned().ok_or(TierError::Fenced);
        match change {
            TierChange::Put { key, head, file } => {
                let HeldRecord { epoch, since, head: before, .. } = held(key)?;
                // The same state again, once further steps may be answered.
                let is_same =
                    before.as_ref().is_some_and(|of| (of.incarnation, of.step) == (head.incarnation, head.step));
                if head.incarnation < since && !is_same {
                    return Err(TierError::Fenced);
                }
                if before.is_some_and(|before| before.incarnation > head.incarnation) {
                    return Ok(None);
                }
                let blob = keys::blob(&self.run, self.blobs.fetch_add(1, Ordering::Relaxed));
                let unused = UNUSED.as_millis().to_string();
                // If it is sent again, the state may be in use already, and must not expire.
                bundle.command("SET", &[blob.as_bytes(), file, b"NX", b"PX", unused.as_bytes()]);
                let (in_epoch, number, idle) = (epoch.to_string(), self.next_number(), millis(head.idle));
                bundle.script(
                    RecordScript::Commit,
                    &[&keys::record(key), blob.as_bytes(), &keys::end(key)],
                    &[self.run.as_bytes(), in_epoch.as_bytes(), number.as_bytes(), &head.encode(), idle.as_bytes()],
                );
                Ok(Some(PlannedWrite::Put { key: key.clone(), epoch, head: Arc::clone(head), blob }))
            }
            TierChange::Remove { key, incarnation } => {
                let HeldRecord { epoch, since, head, .. } = held(key)?;
                if *incarnation < since && head.as_ref().is_none_or(|head| head.incarnation != *incarnation) {
                    return Err(TierError::Fenced);
                }
                if head.is_some_and(|head| head.incarnation > *incarnation) {
                    return Ok(None);
                }
                let (in_epoch, number) = (epoch.to_string(), self.next_number());
                let arguments = [self.run.as_bytes(), in_epoch.as_bytes(), number.as_bytes()];
                bundle.script(RecordScript::Clear, &[&keys::record(key)], &arguments);
                Ok(Some(PlannedWrite::Clear { key: key.clone(), epoch }))
            }
            TierChange::Release { key, left } => {
                let Ok(HeldRecord { epoch, head, .. }) = held(key) else { return Ok(None) };
                self.release(bundle, key, (epoch, head.as_deref()), left);
                Ok(Some(PlannedWrite::Release { key: key.clone(), epoch }))
            }
            TierChange::UseEpochs { until } => {
                let least = until.to_string();
                bundle.script(RecordScript::Epoch, &[keys::EPOCH.as_bytes()], &[least.as_bytes(), b"1"]);
                Ok(None)
            }
            TierChange::Succeed { model, successions } => {
                self.succeed(bundle, model, successions);
                Ok(Some(PlannedWrite::Succeed { model: model.clone(), list: successions.clone() }))
            }
            TierChange::Remember { key, ended } => {
                // Others read it once this server has released the sequence, or has failed before that.
                if let Ok(HeldRecord { epoch, .. }) = held(key) {
                    let (epoch, number, ends) = (epoch.to_string(), self.next_number(), ENDS.as_millis().to_string());
                    bundle.script(
                        RecordScript::Remember,
                        &[&keys::record(key), &keys::end(key)],
                        &[
                            self.run.as_bytes(),
                            epoch.as_bytes(),
                            number.as_bytes(),
                            &ended.encode(key),
                            ends.as_bytes(),
                        ],
                    );
                }
                Ok(None)
            }
            // Redis itself counts idle time.
            TierChange::NoteRunning { .. } => Ok(None),
        }
    }

    fn release(&self, bundle: &mut Bundle, key: &TierKey, (epoch, head): (u64, Option<&StateHead>), left: &Released) {
        let (waits, idle, end) = match (left, head) {
            (Released::Waiting { idle_left }, _) => (b"1", millis(*idle_left), Vec::new()),
            (Released::AsStored { .. }, Some(head)) => (b"1", millis(head.idle_left), Vec::new()),
            (Released::Nothing { ended } | Released::AsStored { ended }, _) => {
                (b"0", millis(None), ended.as_ref().map(|ended| ended.encode(key)).unwrap_or_default())
            }
        };
        let (epoch, number, ends) = (epoch.to_string(), self.next_number(), ENDS.as_millis().to_string());
        let owned = keys::owned(&self.run);
        bundle.script(
            RecordScript::Release,
            &[&keys::record(key), owned.as_bytes(), &keys::end(key)],
            &[
                self.run.as_bytes(),
                epoch.as_bytes(),
                number.as_bytes(),
                &key.encode(),
                waits,
                idle.as_bytes(),
                &end,
                ends.as_bytes(),
            ],
        );
    }

    /// Adds the command that brings the successions of a model to this list. Changes only what this server has changed, because others may
    /// have changed something else.
    fn succeed(&self, bundle: &mut Bundle, model: &str, after: &Successions) {
        let mut all = self.successions.lock();
        let known = all.entry(model.to_owned()).or_default();
        let earlier = known.tried.iter().chain([&known.list]);
        let removed: Vec<u8> = earlier.flat_map(|list| list.without(after).encode()).collect();
        let added = if known.tried.is_empty() { after.without(&known.list) } else { after.clone() };
        bundle.script(
            RecordScript::Succeed,
            &[keys::SUCCESSIONS.as_bytes()],
            &[model.as_bytes(), &removed, &added.encode()],
        );
        if !known.tried.contains(after) {
            known.tried.push(after.clone());
        }
    }

    /// Redis has this list.
    fn succeeded(&self, model: String, list: Successions) {
        let mut all = self.successions.lock();
        let known = all.entry(model).or_default();
        (known.list, known.tried) = (list, Vec::new());
    }

    fn read_successions(&self, model: &str) -> Result<Successions, TierError> {
        let mut bundle = Bundle::new();
        bundle.command("HGET", &[keys::SUCCESSIONS.as_bytes(), model.as_bytes()]);
        let mut link = self.link.lock();
        match link.send(&bundle)?.pop() {
            Some(Value::BulkString(written)) => Ok(Successions::decode(&written).unwrap_or_default()),
            None | Some(Value::Nil) => Ok(Successions::default()),
            Some(other) => Err(link.unexpected(&other)),
        }
    }

    /// Records the answer to a change.
    fn written(&self, planned: PlannedWrite, answers: &[&Value], link: &RedisLink) -> Result<(), TierError> {
        if let Some(error) = answers.iter().find(|answer| matches!(answer, Value::ServerError(_))) {
            return Err(link.unexpected(error));
        }
        let said = answers.last().and_then(|answer| bytes(answer)).unwrap_or_default();
        match (planned, said) {
            (PlannedWrite::Put { key, head, blob, .. }, b"ok") => {
                self.used.fetch_add(head.bytes, Ordering::Relaxed);
                let before = self.held.lock().get_mut(&key).and_then(|of| {
                    of.blob = blob;
                    of.head.replace(head)
                });
                self.free(before.as_deref());
                Ok(())
            }
            (PlannedWrite::Clear { key, .. }, b"ok") => {
                let before = self.held.lock().get_mut(&key).and_then(|of| of.head.take());
                self.free(before.as_deref());
                Ok(())
            }
            (PlannedWrite::Release { key, epoch }, b"ok" | b"fenced") => {
                self.counts.given_up.fetch_add(1, Ordering::Relaxed);
                self.lose(&key, epoch);
                Ok(())
            }
            (PlannedWrite::Succeed { model, list }, b"ok") => {
                self.succeeded(model, list);
                Ok(())
            }
            (PlannedWrite::Put { .. } | PlannedWrite::Clear { .. }, b"fenced") => Err(TierError::Fenced),
            (PlannedWrite::Put { .. }, _) => Err(TierError::Refused {
                address: link.address().shown.clone(),
                what: "it dropped a state before it was pointed to; is maxmemory-policy noeviction?".to_owned(),
            }),
            _ => Err(link.unexpected(answers.last().copied().unwrap_or(&Value::Nil))),
        }
    }

    /// A change got no answer. A sequence that was to be released may belong to another server by now, so this one does not have it any more
    /// until it claims it again.
    fn unknown(&self, write: &PlannedWrite) {
        if let PlannedWrite::Release { key, epoch } = write {
            self.lose(key, *epoch);
        }
    }

    /// Sends a portion of changes. Returns those that failed alone.
    fn put_portion(&self, changes: &[(usize, &TierChange)]) -> Result<HashMap<usize, TierError>, TierError> {
        let (mut failed, mut fenced) = (HashMap::new(), Vec::new());
        let mut link = self.link.lock();
        let (mut bundle, mut planned, mut sent) = (Bundle::new(), Vec::new(), 0);
        for (place, change) in changes {
            let write = self.plan(change, &mut bundle).unwrap_or_else(|error| {
                failed.insert(*place, error);
                None
            });
            let commands = bundle.len() - sent;
            sent = bundle.len();
            planned.push((*place, write, commands));
        }
        let answers = match link.send(&bundle) {
            Ok(answers) => answers,
            Err(error) => {
                planned.iter().filter_map(|(_, write, _)| write.as_ref()).for_each(|write| self.unknown(write));
                return Err(error);
            }
        };
        let mut answers = answers.iter();
        for (place, write, commands) in planned {
            let answers: Vec<&Value> = answers.by_ref().take(commands).collect();
            let Some(write) = write else { continue };
            let subject = write.subject();
            if let Err(error) = self.written(write, &answers, &link) {
                let is_fenced = error == TierError::Fenced;
                fenced.extend(subject.filter(|(key, epoch)| is_fenced && self.lose(key, *epoch)).map(|(key, _)| key));
                failed.insert(place, error);
            }
        }
        drop(link);
        if !fenced.is_empty() {
            self.counts.fenced.fetch_add(fenced.len() as u64, Ordering::Relaxed);
            if let Some(host) = self.host.get() {
                host.lost(fenced);
            }
        }
        Ok(failed)
    }

    /// Releases all sequences.
    fn leave(&self) -> Result<(), TierError> {
        let all: Vec<(TierKey, HeldRecord)> = self.held.lock().drain().collect();
        let mut link = self.link.lock();
        for portion in all.chunks(PORTION) {
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

impl PlannedWrite {
    /// The sequence, and the epoch in which it is written.
    fn subject(&self) -> Option<(TierKey, u64)> {
        match self {
            PlannedWrite::Put { key, epoch, .. }
            | PlannedWrite::Clear { key, epoch }
            | PlannedWrite::Release { key, epoch } => Some((key.clone(), *epoch)),
            PlannedWrite::Succeed { .. } => None,
        }
    }
}

impl Tier for SharedTier {
    fn get(&self, key: &TierKey) -> FoundState {
        let Some(HeldRecord { head: Some(head), blob, .. }) = self.held.lock().get(key).cloned() else {
            return Ok(None);
        };
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

    /// Changes of one sequence go into different bundles, because the second may depend on the first.
    fn put_each(&self, changes: &[TierChange]) -> Result<HashMap<usize, TierError>, TierError> {
        if self.is_closed() {
            return Err(TierError::Closed);
        }
        let (mut failed, mut portion) = (HashMap::new(), Vec::new());
        let (mut seen, mut bytes): (HashSet<&TierKey>, usize) = (HashSet::new(), 0);
        let mut send = |portion: &mut Vec<(usize, &TierChange)>| -> Result<(), TierError> {
            failed.extend(self.put_portion(portion)?);
            portion.clear();
            Ok(())
        };
        for (place, change) in changes.iter().enumerate() {
            let (key, size) = match change {
                TierChange::Put { key, file, .. } => (Some(key), file.len()),
                TierChange::Remove { key, .. } | TierChange::Release { key, .. } => (Some(key), 0),
                _ => (None, 0),
            };
            let is_second = key.is_some_and(|key| seen.contains(key));
            if is_second || (bytes + size > BUNDLE && !portion.is_empty()) {
                send(&mut portion)?;
                (seen, bytes) = (HashSet::new(), 0);
            }
            seen.extend(key);
            bytes += size;
            portion.push((place, change));
        }
        send(&mut portion)?;
        Ok(failed)
    }

    /// The first state of an activation was written before it.
    fn is_of(&self, key: &TierKey, head: &StateHead, incarnation: u64) -> bool {
        head.incarnation == incarnation || self.held.lock().get(key).is_some_and(|of| of.since == incarnation)
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.held.lock().get(key)?.head.clone()
    }

    /// None: this server takes a sequence over once a request of it arrives.
    fn list(&self, _: &str) -> Vec<(Id, Arc<StateHead>)> {
        Vec::new()
    }

    fn take_ended(&self, _: &str) -> Vec<(Id, EndedState)> {
        Vec::new()
    }

    /// Read once from Redis. Later changes of other servers are not seen.
    fn successions(&self, model: &str) -> Successions {
        if let Some(known) = self.successions.lock().get(model).filter(|known| known.is_read) {
            return known.list.clone();
        }
        let found = self.read_successions(model);
        let mut all = self.successions.lock();
        match found {
            // A model that was given none before knows none of these. So they are not taken for what it knows.
            Ok(found) if all.contains_key(model) => found,
            Ok(list) => {
                let known = KnownSuccessions { list: list.clone(), is_read: true, tried: Vec::new() };
                all.insert(model.to_owned(), known);
                list
            }
            Err(error) => {
                tracing::warn!(model, %error, "which version goes on from which is unknown: stored sequences of earlier versions may be refused");
                all.entry(model.to_owned()).or_default().list.clone()
            }
        }
    }

    fn running_time(&self) -> RunningTime {
        RunningTime::default()
    }

    fn usage(&self) -> TierUsage {
        let states = self.held.lock().len();
        TierUsage { states, bytes: self.used.load(Ordering::Relaxed), limit: u64::MAX }
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        let (least, span) = (least.to_string(), SPAN.to_string());
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
