//! The sequences that this server owns in the shared store, as far as it knows, and the bytes of their states.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::lease::LeaseClock;
use crate::state::tier::record::{StateHead, TierKey};

/// Maximum number of sequences that are checked in one bundle.
const CHECK_PORTION: usize = 2048;

/// A sequence that this server owns.
#[derive(Debug, Clone)]
pub(super) struct HeldRecord {
    pub(super) epoch: u64,
    /// The first incarnation of this activation.
    pub(super) since: u64,
    pub(super) head: Option<Arc<StateHead>>,
    pub(super) blob: String,
    /// Whether the last write of its state got no answer. Then `head` and `blob` may not be what Redis has.
    pub(super) is_unsure: bool,
}

/// All sequences that this server owns.
#[derive(Debug, Default)]
pub(super) struct HeldRecords {
    records: Mutex<HashMap<TierKey, HeldRecord>>,
    /// Bytes of the states in `records`.
    bytes: AtomicU64,
}

impl HeldRecords {
    /// Whether this server owns the sequence, as far as it knows.
    pub(super) fn contains(&self, key: &TierKey) -> bool {
        self.records.lock().contains_key(key)
    }

    /// The epoch in which this server owns the sequence, as far as it knows.
    pub(super) fn epoch_of(&self, key: &TierKey) -> Option<u64> {
        self.records.lock().get(key).map(|of| of.epoch)
    }

    pub(super) fn get(&self, key: &TierKey) -> Option<HeldRecord> {
        self.records.lock().get(key).cloned()
    }

    /// The facts about the stored state of a sequence, if it has one.
    pub(super) fn head_of(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.records.lock().get(key)?.head.clone()
    }

    /// Whether this is the first incarnation since this server got the sequence.
    pub(super) fn is_first_incarnation(&self, key: &TierKey, incarnation: u64) -> bool {
        self.records.lock().get(key).is_some_and(|of| of.since == incarnation)
    }

    /// The epoch in which this server owns the sequence, if its state in Redis is unknown.
    pub(super) fn unsure_epoch_of(&self, key: &TierKey) -> Option<u64> {
        self.records.lock().get(key).filter(|of| of.is_unsure).map(|of| of.epoch)
    }

    /// The sequences whose state in Redis is unknown.
    pub(super) fn unsure(&self) -> Vec<TierKey> {
        self.records.lock().iter().filter(|(_, of)| of.is_unsure).map(|(key, _)| key.clone()).collect()
    }

    /// Records that a write of the state of a sequence got no answer.
    pub(super) fn set_unsure(&self, key: &TierKey, epoch: u64) {
        if let Some(of) = self.records.lock().get_mut(key).filter(|of| of.epoch == epoch) {
            of.is_unsure = true;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.lock().len()
    }

    /// Bytes of the states of these sequences.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Records that this server owns a sequence from now on. `lost` is how often the lease had been lost when the claim was sent. If it has
    /// been lost since, another server may own the sequence already: then this does nothing and returns false.
    pub(super) fn hold(&self, key: TierKey, record: HeldRecord, lease: &LeaseClock, lost: u64) -> bool {
        let more = record.head.as_ref().map_or(0, |head| head.bytes);
        let mut held = self.records.lock();
        // Checked under this lock: a sequence that is inserted before the lease ends is in the list that is checked after that.
        if !lease.holds_since(lost) {
            return false;
        }
        let before = held.insert(key, record);
        drop(held);
        self.bytes.fetch_add(more, Ordering::Relaxed);
        self.free(before.and_then(|before| before.head).as_deref());
        true
    }

    /// Forgets a sequence that this server does not own any more, unless it has taken it over again since this epoch.
    pub(super) fn lose(&self, key: &TierKey, epoch: u64) -> bool {
        let mut held = self.records.lock();
        if held.get(key).is_none_or(|of| of.epoch != epoch) {
            return false;
        }
        let before = held.remove(key);
        drop(held);
        self.free(before.and_then(|before| before.head).as_deref());
        true
    }

    /// Records that Redis has this state of a sequence now.
    pub(super) fn set_state(&self, key: &TierKey, head: Arc<StateHead>, blob: String) {
        let mut records = self.records.lock();
        let Some(of) = records.get_mut(key) else { return };
        self.bytes.fetch_add(head.bytes, Ordering::Relaxed);
        (of.blob, of.is_unsure) = (blob, false);
        let before = of.head.replace(head);
        drop(records);
        self.free(before.as_deref());
    }

    /// Records that Redis has no state of a sequence any more.
    pub(super) fn clear_state(&self, key: &TierKey) {
        let before = self.records.lock().get_mut(key).and_then(|of| {
            of.is_unsure = false;
            of.head.take()
        });
        self.free(before.as_deref());
    }

    /// Takes all records out, to release their sequences.
    pub(super) fn drain(&self) -> Vec<(TierKey, HeldRecord)> {
        self.records.lock().drain().collect()
    }

    fn free(&self, head: Option<&StateHead>) {
        self.bytes.fetch_sub(head.map_or(0, |head| head.bytes), Ordering::Relaxed);
    }

    /// All sequences here with their epochs, in portions that can be checked at a time.
    pub(super) fn portions(&self) -> Vec<Vec<(TierKey, u64)>> {
        let all: Vec<(TierKey, u64)> = self.records.lock().iter().map(|(key, of)| (key.clone(), of.epoch)).collect();
        all.chunks(CHECK_PORTION).map(<[_]>::to_vec).collect()
    }
}
