//! The kept states, by name, and the STARTs that wait for them.
//!
//! The first START of a name gets a [`KeepPermit`] and runs the steps. Later STARTs of that name wait for it. If the steps succeed, all of
//! them get the states. If the steps fail, the next START gets the permit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::state::StateValues;
use crate::state::budget::{Budget, Reclaimable, Ticket, Unneeded};
use crate::telemetry::KeptMetrics;

/// Bytes counted for each entry in addition to its states and its name.
const ENTRY: u64 = 256;

/// The result of a lookup.
#[derive(Debug)]
pub enum KeptLookup {
    /// The states are kept.
    Kept(StateValues),
    /// The states are not kept: this START runs the steps.
    Missing(KeepPermit),
}

/// A START that waits for the states of a name.
pub trait Waiting: Send {
    /// Called once with the result, without a lock of this table. `at_once`: the thread that called [`KeptStates::find`] makes this call.
    /// If false, the call must return soon.
    fn resume(self: Box<Self>, found: KeptLookup, at_once: bool);

    /// Whether the START needs no answer any more. Called under the lock of this table, so it must take no other lock.
    fn is_over(&mut self) -> bool;
}

/// The kept states of one load.
pub struct KeptStates {
    inner: Mutex<KeptTable>,
    /// Maximum total bytes.
    limit: u64,
    budget: Budget,
    metrics: KeptMetrics,
}

#[derive(Default)]
struct KeptTable {
    entries: HashMap<String, KeptEntry>,
    /// Names by their last use, the least recently used first.
    by_use: BTreeMap<u64, String>,
    bytes: u64,
    /// Number of times that all states were dropped. Steps that began before a drop are not kept after it.
    generation: u64,
    /// Names whose steps run now, and the STARTs that wait for them.
    under_way: HashMap<String, WaitingStarts>,
}

/// The STARTs that wait for the steps of a name.
#[derive(Default)]
struct WaitingStarts {
    starts: VecDeque<Box<dyn Waiting>>,
    /// At this length, a push removes the STARTs that are over.
    prune_at: usize,
}

struct KeptEntry {
    values: StateValues,
    used: u64,
    ticket: Ticket,
}

/// The right and duty to run the steps of a name. If it is dropped without states, the next waiting START runs the steps.
pub struct KeepPermit {
    kept: Arc<KeptStates>,
    name: String,
    /// The table's generation when the steps began.
    generation: u64,
    /// Whether other STARTs wait for this permit.
    is_first: bool,
}

impl KeptStates {
    pub fn new(limit: u64, budget: Budget, metrics: KeptMetrics) -> Arc<KeptStates> {
        let kept = Arc::new(KeptStates { inner: Mutex::default(), limit, budget, metrics });
        let reclaimable: Weak<dyn Reclaimable> = Arc::downgrade(&kept) as Weak<dyn Reclaimable>;
        kept.budget.register(reclaimable);
        kept
    }

    /// Looks up the states of a name. Answers at once, or after the START that runs the steps has finished them.
    pub fn find(self: &Arc<Self>, name: &str, start: Box<dyn Waiting>) {
        let mut inner = self.inner.lock();
        let found = match inner.used(name, &self.budget) {
            Some(values) => KeptLookup::Kept(values),
            None => {
                if let Some(waiting) = inner.under_way.get_mut(name) {
                    let over = waiting.push(start);
                    drop(inner);
                    drop(over);
                    return;
                }
                inner.under_way.insert(name.to_owned(), WaitingStarts::default());
                KeptLookup::Missing(self.permit(name, inner.generation, true))
            }
        };
        drop(inner);
        self.count(&found);
        start.resume(found, true);
    }

    /// Looks up the states of a name for a START that must not wait. It holds a slot that the START with the permit may need.
    pub fn find_now(self: &Arc<Self>, name: &str) -> KeptLookup {
        let mut inner = self.inner.lock();
        let found = match inner.used(name, &self.budget) {
            Some(values) => KeptLookup::Kept(values),
            None => {
                let is_first = !inner.under_way.contains_key(name);
                if is_first {
                    inner.under_way.insert(name.to_owned(), WaitingStarts::default());
                }
                KeptLookup::Missing(self.permit(name, inner.generation, is_first))
            }
        };
        drop(inner);
        self.count(&found);
        found
    }

    fn count(&self, found: &KeptLookup) {
        match found {
            KeptLookup::Kept(_) => self.metrics.hit(),
            KeptLookup::Missing(_) => self.metrics.missed(),
        }
    }

    fn permit(self: &Arc<Self>, name: &str, generation: u64, is_first: bool) -> KeepPermit {
        KeepPermit { kept: Arc::clone(self), name: name.to_owned(), generation, is_first }
    }

    /// Total bytes of all kept states.
    pub fn bytes(&self) -> u64 {
        self.inner.lock().bytes
    }

    /// Takes out the least recently used states. `None` if none are kept.
    pub fn take_one(&self) -> Option<StateValues> {
        let KeptEntry { values, ticket, .. } = self.inner.lock().drop_least_used()?;
        self.metrics.evicted();
        self.metrics.add_bytes(-signed(ticket.bytes()));
        Some(values)
    }

    /// Drops all kept states. The results of steps that run now are not kept either.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.generation += 1;
        inner.by_use.clear();
        let (entries, bytes) = (std::mem::take(&mut inner.entries), std::mem::take(&mut inner.bytes));
        drop(inner);
        drop(entries);
        self.metrics.add_bytes(-signed(bytes));
    }

    /// Keeps the states that a permit's steps produced, within the limits. Least recently used states make room for them. Returns the
    /// STARTs that get the states. `None` if all states were dropped since the steps began: then nothing is kept, and no START gets them.
    fn insert(&self, permit: &mut KeepPermit, values: &StateValues) -> Option<WaitingStarts> {
        let KeepPermit { name, generation, is_first, .. } = permit;
        let bytes = values.bytes() + name.len() as u64 + ENTRY;
        if self.inner.lock().generation != *generation {
            return None;
        }
        // Taken without the lock, because the budget may reclaim states of this same table.
        let ticket = if bytes > self.limit { None } else { self.budget.take(bytes).ok() };
        let mut inner = self.inner.lock();
        if inner.generation != *generation {
            return None;
        }
        let before = inner.bytes;
        let (mut replaced, mut evicted) = (None, Vec::new());
        if let Some(ticket) = ticket {
            replaced = inner.take(name);
            evicted = inner.make_room(bytes, self.limit);
            inner.insert(name, values.clone(), ticket, self.budget.next_use());
        }
        let change = signed(inner.bytes) - signed(before);
        let waiting = if std::mem::take(is_first) {
            inner.under_way.remove(name)
        } else {
            inner.under_way.get_mut(name).map(std::mem::take)
        };
        drop(inner);
        self.metrics.add_bytes(change);
        evicted.iter().for_each(|_| self.metrics.evicted());
        drop((replaced, evicted));
        Some(waiting.unwrap_or_default())
    }
}

impl WaitingStarts {
    /// Adds a START. Returns those that are over, because a cancelled START still holds its inputs, which no limit counts.
    fn push(&mut self, start: Box<dyn Waiting>) -> Vec<Box<dyn Waiting>> {
        let mut over = Vec::new();
        if self.starts.len() >= self.prune_at {
            for mut before in std::mem::take(&mut self.starts) {
                if before.is_over() {
                    over.push(before);
                } else {
                    self.starts.push_back(before);
                }
            }
            self.prune_at = 2 * self.starts.len().max(1);
        }
        self.starts.push_back(start);
        over
    }
}

/// Kept states are dropped if live sequences need the memory.
impl Reclaimable for KeptStates {
    fn bytes(&self) -> u64 {
        KeptStates::bytes(self)
    }

    fn least_use(&self) -> Option<u64> {
        self.inner.lock().by_use.first_key_value().map(|(used, _)| *used)
    }

    fn reclaim(&self) -> Option<Unneeded> {
        self.take_one().map(Unneeded::new)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Drop for KeptStates {
    fn drop(&mut self) {
        self.metrics.add_bytes(-signed(self.inner.get_mut().bytes));
    }
}

impl KeptTable {
    /// Gets the states of a name, and makes them the most recently used.
    fn used(&mut self, name: &str, budget: &Budget) -> Option<StateValues> {
        let KeptEntry { values, ticket, .. } = self.take(name)?;
        self.insert(name, values.clone(), ticket, budget.next_use());
        Some(values)
    }

    fn take(&mut self, name: &str) -> Option<KeptEntry> {
        let entry = self.entries.remove(name)?;
        self.by_use.remove(&entry.used);
        self.bytes = self.bytes.saturating_sub(entry.ticket.bytes());
        Some(entry)
    }

    fn insert(&mut self, name: &str, values: StateValues, ticket: Ticket, used: u64) {
        self.bytes += ticket.bytes();
        self.by_use.insert(used, name.to_owned());
        self.entries.insert(name.to_owned(), KeptEntry { values, used, ticket });
    }

    /// Drops states until `bytes` more fit within the limit.
    fn make_room(&mut self, bytes: u64, limit: u64) -> Vec<KeptEntry> {
        let mut dropped = Vec::new();
        while self.bytes + bytes > limit
            && let Some(entry) = self.drop_least_used()
        {
            dropped.push(entry);
        }
        dropped
    }

    fn drop_least_used(&mut self) -> Option<KeptEntry> {
        let name = self.by_use.first_key_value().map(|(_, name)| name.clone())?;
        self.take(&name)
    }
}

impl KeepPermit {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Keeps the states that the steps produced, and gives them to the waiting STARTs. If all states were dropped since the steps began,
    /// the next waiting START runs the steps itself.
    pub fn keep(mut self, values: &StateValues) {
        let kept = Arc::clone(&self.kept);
        let Some(waiting) = kept.insert(&mut self, values) else { return };
        for waiter in waiting.starts {
            kept.metrics.hit();
            waiter.resume(KeptLookup::Kept(values.clone()), false);
        }
    }
}

impl Drop for KeepPermit {
    fn drop(&mut self) {
        if !self.is_first {
            return;
        }
        let mut inner = self.kept.inner.lock();
        let next = inner.under_way.get_mut(&self.name).and_then(|waiting| waiting.starts.pop_front());
        if next.is_none() {
            inner.under_way.remove(&self.name);
        }
        let generation = inner.generation;
        drop(inner);
        if let Some(waiter) = next {
            self.kept.metrics.missed();
            waiter.resume(KeptLookup::Missing(self.kept.permit(&self.name, generation, true)), false);
        }
    }
}

impl fmt::Debug for KeptStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptStates").field("bytes", &self.bytes()).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeepPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepPermit").field("name", &self.name).finish_non_exhaustive()
    }
}
