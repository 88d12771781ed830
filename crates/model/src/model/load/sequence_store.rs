//! The store of this server's sequences, so that they outlive the process. With `[durability] when = "step"`, an answer leaves only after its
//! state is durable.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sequor_core::{EndReason, Id, Time};

use crate::config::model::settings::DurabilityWhen;
use crate::error::StoreFault;
use crate::model::runtime::Clock;
use crate::state::tier::{
    AfterTake, ClosedTask, EndedState, FailedChanges, FoundHead, GroupWriter, SharedHost, SharedStore, StateHead,
    Successions, TakenState, Tier, TierChange, TierError, TierKey, TierUsage, VersionDigest, task_panicked,
};
use crate::sync::Mutex;

use super::quiet_lines::QuietLines;
use super::sealing::{BatchToSeal, Sealed, StateTier, UnstoredState, changes};

/// How the sequences of a load are stored.
#[derive(Debug, Clone)]
pub(in crate::model) struct LoadDurability {
    pub(in crate::model) when: DurabilityWhen,
    pub(in crate::model) store: Arc<SequenceStore>,
    /// SHA-256 of the version's files.
    pub(in crate::model) digest: [u8; 32],
}

/// The store of this server, with the one thread that writes to it for all models.
#[derive(Debug)]
pub struct SequenceStore {
    writer: GroupWriter,
    /// Only if several servers share it.
    shared: Option<Arc<SharedStore>>,
    /// The next incarnation. A server that starts later gives larger ones.
    incarnations: Arc<AtomicU64>,
    /// Epochs up to this one are in use. The tier has stored that or is about to.
    epochs: AtomicU64,
    clock: Clock,
    /// When this server took over the stored sequences, on the clock.
    began: OnceLock<Time>,
    /// When the running time was last noted, on the clock.
    noted: AtomicU64,
    /// The successions that each model gave last. The tier may still have earlier ones.
    given: Mutex<HashMap<String, Successions>>,
    /// Lines about states that could not be stored, and about those that could not be removed.
    unstored: Arc<QuietLines>,
    unremoved: Arc<QuietLines>,
}

/// Bits of an incarnation that count the sequences of an epoch.
const NUMBER_BITS: u32 = 20;
/// Number of epochs that are reserved at a time.
const EPOCHS_AT_ONCE: u64 = 64;
/// Interval at which the running time is noted while sequences wait in the store. After a crash at most this much idle time is missing.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);

impl LoadDurability {
    /// Whether states are written while their sequences live. If so, the store removes them when the sequences end.
    pub(in crate::model) fn is_continual(&self) -> bool {
        matches!(self.when, DurabilityWhen::Step | DurabilityWhen::Every(_))
    }

    /// Whether live sequences are written when the server stops. Until then, a stored state of theirs is of an earlier step.
    pub(in crate::model) fn at_stop(&self) -> bool {
        matches!(self.when, DurabilityWhen::Drain | DurabilityWhen::Every(_))
    }

    /// The version and its digest, which mark the stored states of this load.
    pub(in crate::model) fn version_digest(&self, version: u64) -> VersionDigest {
        VersionDigest { version, digest: self.digest }
    }

    /// Steps of a sequence between two writes, if answers do not wait for them.
    pub(in crate::model) fn interval(&self) -> Option<u64> {
        if let DurabilityWhen::Every(steps) = self.when { Some(u64::from(steps.get())) } else { None }
    }
}

impl SequenceStore {
    /// `epoch` is the result of [`Tier::next_epoch`].
    pub fn new(tier: Arc<dyn Tier>, epoch: u64, clock: Clock) -> std::io::Result<SequenceStore> {
        let (incarnations, epochs) = (Arc::new(AtomicU64::new(epoch << NUMBER_BITS)), AtomicU64::new(epoch));
        let (writer, began, noted) = (GroupWriter::start(tier)?, OnceLock::new(), AtomicU64::new(0));
        let (shared, given, unstored, unremoved) = (None, Mutex::default(), Arc::default(), Arc::default());
        Ok(SequenceStore { writer, shared, incarnations, epochs, clock, began, noted, given, unstored, unremoved })
    }

    /// The same for a store that several servers share. Its threads start with [`Self::join`].
    pub fn of_servers(shared: SharedStore, epoch: u64, clock: Clock) -> std::io::Result<SequenceStore> {
        let tier = Arc::clone(shared.tier()) as Arc<dyn Tier>;
        Ok(SequenceStore { shared: Some(Arc::new(shared)), ..SequenceStore::new(tier, epoch, clock)? })
    }

    /// Takes part in a shared store from now on. `host` has the models of this server.
    pub(in crate::model) fn join(&self, host: Arc<dyn SharedHost>) -> std::io::Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let incarnations = Arc::clone(&self.incarnations);
        // Larger than that of the sequence taken over, even if the server that began it has given larger ones than this one.
        let next = move |after: u64| {
            incarnations.fetch_max(after + 1, Ordering::Relaxed);
            incarnations.fetch_add(1, Ordering::Relaxed)
        };
        shared.start(host, Box::new(next))
    }

    /// The shared store; `None` if this server alone has the store.
    pub fn shared(&self) -> Option<&Arc<SharedStore>> {
        self.shared.as_ref()
    }

    /// Whether other servers may have taken over the sequences here.
    pub(in crate::model) fn has_lapsed(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| !shared.lease().holds())
    }

    /// Takes over the stored sequences. From now on the running time of this server counts.
    pub(in crate::model) fn begin_running(&self) {
        self.began.get_or_init(|| self.clock.now());
    }

    /// The idle time that a stored sequence has left when this server takes it over.
    pub(in crate::model) fn idle_left(&self, head: &StateHead) -> Option<Duration> {
        let idle = self.writer.tier().running_time().idle_since(head);
        head.idle_left.map(|left| left.saturating_sub(idle))
    }

    /// Total running time of servers with this store. The time before the first model takes its sequences over does not count.
    pub(in crate::model) fn running(&self) -> Duration {
        let since = self.began.get().map_or(Duration::ZERO, |began| self.clock.now().since(*began));
        self.writer.tier().running_time().at_open + since
    }

    /// Stores the running time once a minute. Returns when to call this again.
    pub(in crate::model) fn note_running(&self) -> Time {
        let (now, noted) = (self.clock.now(), Time(self.noted.load(Ordering::Relaxed)));
        if now < noted + NOTE_INTERVAL {
            return noted + NOTE_INTERVAL;
        }
        // If several models come here at once, one of them notes the time.
        if self.noted.compare_exchange(noted.0, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.write(vec![TierChange::NoteRunning { until: self.running(), closes: false }], |failed| {
                if let Some((_, error)) = failed.first() {
                    tracing::warn!(%error, "the idle time of stored sequences is not noted; after a crash they may stay longer");
                }
            });
        }
        now + NOTE_INTERVAL
    }

    pub(in crate::model) fn next_incarnation(&self) -> u64 {
        let number = self.incarnations.fetch_add(1, Ordering::Relaxed);
        self.uses(number >> NUMBER_BITS);
        number
    }

    /// Reserves further epochs before those in use run out. So the next server gives other incarnations, even if the clock was set back.
    pub(in crate::model) fn uses(&self, epoch: u64) {
        let known = self.epochs.load(Ordering::Relaxed);
        if epoch + EPOCHS_AT_ONCE / 2 < known {
            return;
        }
        let until = epoch + EPOCHS_AT_ONCE;
        if self.epochs.fetch_max(until, Ordering::Relaxed) < until {
            self.write(vec![TierChange::UseEpochs { until }], |failed| {
                if let Some((_, error)) = failed.first() {
                    tracing::error!(%error, "the numbers in use are not stored yet: the store tries again. After a crash before that, they may be given again");
                }
            });
        }
    }

    /// The stored sequences of a model.
    pub(in crate::model) fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)> {
        self.writer.tier().list(model)
    }

    /// The successions of a model: which versions continue from states of others. Does not wait for the disk.
    pub(in crate::model) fn successions(&self, model: &str) -> Successions {
        self.writer.tier().successions(model)
    }

    /// Stores the successions of a model, unless the store has them. If other ones were given last, it writes these even so, because those
    /// may not be durable yet. Returns once they are durable or their write has failed; the store then tries again.
    pub(in crate::model) fn succeed(&self, model: &str, successions: Successions) {
        let given = self.given.lock().insert(model.to_owned(), successions.clone());
        if given.is_none_or(|given| given == successions) && self.successions(model) == successions {
            return;
        }
        let (sender, written) = sync_channel(1);
        let change = TierChange::Succeed { model: model.to_owned(), successions };
        self.write(vec![change], move |failed| drop(sender.send(failed)));
        if let Some((_, error)) = written.recv().unwrap_or_default().first() {
            tracing::error!(model, %error, "which version takes over is not stored yet: the store tries again. After a crash before that, its sequences may be refused");
        }
    }

    /// The facts about the stored state of a sequence. Does not wait for the disk.
    pub(in crate::model) fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.writer.tier().head(key)
    }

    /// The facts about the stored state of a sequence, if any. `None` if they are not known ([`Tier::known`]). Does not wait for the disk.
    pub(in crate::model) fn known(&self, key: &TierKey) -> Option<Option<Arc<StateHead>>> {
        self.writer.tier().known(key)
    }

    /// Whether this stored state is of a sequence here with this incarnation.
    pub(in crate::model) fn is_of(&self, key: &TierKey, head: &StateHead, incarnation: u64) -> bool {
        self.writer.tier().is_of(key, head, incarnation)
    }

    /// Queues a look at the state that the store has of this incarnation of a sequence, as [`StateTier::seal`] queues states.
    pub(in crate::model) fn queue_look(
        &self,
        key: TierKey,
        incarnation: u64,
        done: impl FnOnce(FoundHead) + Send + 'static,
    ) -> Option<ClosedTask> {
        let (tier, of) = (Arc::clone(self.writer.tier()), key.clone());
        self.writer.queue_look(key, move |found| {
            done(found.map(|head| head.filter(|head| tier.is_of(&of, head, incarnation))));
        })
    }

    pub fn usage(&self) -> TierUsage {
        self.writer.tier().usage()
    }

    /// Free bytes of the file system of the store, if it is on a disk of this machine.
    pub fn free_bytes(&self) -> Option<u64> {
        self.writer.tier().free_bytes()
    }

    /// What an operator should know about the store now: it cannot write, or this server has no lease.
    pub fn warning(&self) -> Option<String> {
        let trouble =
            || Some(self.writer.trouble()?.warning(if self.shared.is_some() { "state.url" } else { "state.dir" }));
        self.shared.as_ref().and_then(|shared| without_lease(shared)).or_else(trouble)
    }

    /// Reads a stored state. `done` runs on the store's thread, or on this thread if the store is closed.
    pub(in crate::model) fn take(&self, key: TierKey, then: AfterTake, done: impl FnOnce(TakenState) + Send + 'static) {
        self.writer.take(key, then, done);
    }

    /// Writes these changes. `done` runs on the store's thread, or on this thread if the store is closed.
    pub(in crate::model) fn write(&self, changes: Vec<TierChange>, done: impl FnOnce(FailedChanges) + Send + 'static) {
        self.writer.write(move |_| changes.into_iter().map(Ok).collect(), done);
    }

    /// Same as [`Self::write`], and returns whether the store is open. If it is closed, `done` is not called. So a caller may hold a lock
    /// that `done` takes.
    pub(in crate::model) fn try_write(
        &self,
        changes: Vec<TierChange>,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) -> bool {
        self.writer.try_write(move |_| changes.into_iter().map(Ok).collect(), done)
    }

    /// The sequences of a model that ended before this server started. Each is listed once.
    pub(in crate::model) fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)> {
        self.writer.tier().take_ended(model)
    }

    /// Queues the reading of a stored state, as [`StateTier::seal`] queues states.
    pub(in crate::model) fn queue_take(
        &self,
        key: TierKey,
        then: AfterTake,
        done: impl FnOnce(TakenState) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.writer.queue_take(key, then, done)
    }

    /// Queues the removal of an ended sequence's state, and how it ended, as [`StateTier::seal`] queues states. `done` gets the error if that
    /// failed.
    pub(in crate::model) fn queue_forget(
        &self,
        key: TierKey,
        incarnation: u64,
        ended: Option<EndedState>,
        done: impl FnOnce(Option<String>) + Send + 'static,
    ) -> Option<ClosedTask> {
        let model = key.model.clone();
        let end = ended.map(|ended| TierChange::Remember { key: key.clone(), ended });
        let changes = [Ok(TierChange::Remove { key, incarnation })].into_iter().chain(end.map(Ok)).collect();
        let lines = Arc::clone(&self.unremoved);
        let done = move |mut failed: FailedChanges| {
            // Then there is nothing of it here.
            failed.retain(|(_, error)| *error != TierError::Fenced);
            if let Some((_, error)) = failed.first()
                && let Some(count) = lines.count(&model, 1, Instant::now())
            {
                tracing::error!(model, count, %error, "stored states of ended sequences are not removed yet: the store tries again. After a crash before that, the sequences may come back");
            }
            done(failed.first().map(|(_, error)| error.to_string()));
        };
        self.writer.queue_write(move |_| changes, done)
    }

    /// Writes the waiting changes and closes the tier.
    pub(in crate::model) fn close(&self) {
        self.write(vec![TierChange::NoteRunning { until: self.running(), closes: true }], |failed| {
            if let Some((_, error)) = failed.first() {
                tracing::warn!(%error, "the idle time of stored sequences is not noted; they may stay longer");
            }
        });
        self.writer.close();
        if let Some(shared) = &self.shared {
            shared.stop();
        }
    }
}

fn without_lease(shared: &SharedStore) -> Option<String> {
    let (seconds, address) = (shared.without_lease()?.as_secs(), shared.address());
    Some(format!("state.url: no lease for {seconds} s ({address}): steps of shared sequences are refused"))
}

fn unstored(place: usize, error: &TierError) -> UnstoredState {
    let why = if *error == TierError::Fenced { EndReason::Fenced } else { EndReason::Unsealed };
    let fault = match error {
        TierError::Full { .. } => StoreFault::Limit,
        TierError::Unreachable { .. } | TierError::Unanswered { .. } | TierError::Refused { .. } => StoreFault::Redis,
        _ => StoreFault::Disk,
    };
    let is_damaged = matches!(error, TierError::Checksum { .. });
    UnstoredState { place, why, fault, is_damaged, error: error.to_string() }
}

impl StateTier for SequenceStore {
    fn seal(&self, batch: BatchToSeal, sealed: Sealed) -> Option<ClosedTask> {
        let (model, tier, count) = (batch.model.clone(), Arc::clone(self.writer.tier()), batch.states.len());
        let waits = !batch.behind;
        // The table decides whether a sequence goes on whose END could not be written. A failed START ends it in any case.
        let owes = batch.states.iter().any(|state| state.forgets);
        let lines = Arc::clone(&self.unstored);
        let done = move |mut failed: FailedChanges| {
            failed.retain(|(place, _)| *place < count);
            if let Some((_, error)) = failed.first()
                && let Some(count) = lines.count(&model, failed.len() as u64, Instant::now())
            {
                match waits {
                    true => {
                        tracing::error!(model, count, %error, "states are not stored: their requests are refused, and sequences go on from their last stored states");
                    }
                    false => {
                        tracing::error!(model, count, %error, "states are not stored; those of earlier steps are kept");
                    }
                }
            }
            sealed(failed.into_iter().map(|(place, error)| unstored(place, &error)).collect());
        };
        let running = self.running();
        let make = move |before: &[TierChange]| {
            // All states of the batch fail then, and not only the first one.
            let made = catch_unwind(AssertUnwindSafe(|| changes(&*tier, before, batch, running)));
            made.unwrap_or_else(|_| std::iter::repeat_with(|| Err(task_panicked())).take(count).collect())
        };
        if owes { self.writer.queue_write(make, done) } else { self.writer.queue_write_once(make, done) }
    }

    fn wake(&self) {
        self.writer.wake();
    }
}
