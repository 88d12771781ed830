//! Makes states durable, so that sequences outlive the process. With `[durability] when = "step"`, an answer leaves only after its state is durable.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Id, Time};

use crate::config::model::settings::DurabilityWhen;
use crate::model::runtime::Clock;
use crate::processing::SequenceScratch;
use crate::state::tier::{
    AfterTake, EndedState, FailedChanges, GroupWriter, IdleTime, StateHead, Successions, TakenState, Tier, TierChange,
    TierError, TierKey, TierUsage, VersionDigest, find,
};
use crate::state::{SnapshotError, StateCopy, StateSpec, StateValues, with_answer, with_scratch};
use crate::sync::Mutex;
use crate::tensor::NamedTensor;

/// Keys of a snapshot's header: which model and version it is of, and the steps that it contains.
pub(in crate::model) const MODEL: &str = "sequor.model";
pub(in crate::model) const VERSION: &str = "sequor.version";
pub(in crate::model) const STEP: &str = "sequor.step";
/// Key of a stored state that no step of its sequence has run with: the next one is the first run.
pub(in crate::model) const UNRUN: &str = "sequor.unrun";

/// A sequence's state as of one step.
#[derive(Debug)]
pub struct StateToSeal {
    pub id: Id,
    /// Which sequence of this id it is: a later one has a larger number.
    pub incarnation: u64,
    /// Steps of the sequence that the state contains.
    pub step: u64,
    /// The last step of the sequence.
    pub end: bool,
    /// Its START failed, so nothing is to be kept of the sequence that the id had before.
    pub forgets: bool,
    /// The time now, since 1970.
    pub at: Duration,
    /// How long the sequence may be idle; `None` is for ever.
    pub idle: Option<Duration>,
    /// The state. `None`: the step ran nothing, and the state is that of the step before, or the first one.
    pub copy: Option<StateCopy>,
    /// What the sequence begins with, if none of its steps has run.
    pub first: Option<StateValues>,
    /// The scratch of processors, and their names.
    pub scratch: Option<(String, SequenceScratch)>,
    /// What the step is answered with, if its client counts steps.
    pub answer: Option<Vec<NamedTensor>>,
}

/// The states of one batch, to be made durable together.
#[derive(Debug)]
pub struct BatchToSeal {
    pub model: String,
    pub version: u64,
    /// SHA-256 of the version's files.
    pub digest: [u8; 32],
    pub specs: Vec<StateSpec>,
    /// Whether further steps may be answered before their states are durable.
    pub behind: bool,
    pub states: Vec<StateToSeal>,
}

/// Reports that the states of a batch are durable, except for those at these places. The sequences of these end.
pub type Sealed = Box<dyn FnOnce(Vec<usize>) + Send>;

pub trait StateTier: Send + Sync + fmt::Debug {
    /// Makes these states durable, and calls `sealed` once. Called by threads that run models, without a lock: it returns soon.
    fn seal(&self, batch: BatchToSeal, sealed: Sealed);
}

/// How the sequences of a load outlive the process.
#[derive(Debug, Clone)]
pub(in crate::model) struct LoadDurability {
    pub(in crate::model) when: DurabilityWhen,
    pub(in crate::model) store: Arc<SequenceStore>,
    /// SHA-256 of the version's files.
    pub(in crate::model) digest: [u8; 32],
}

/// The tier of this server, and the thread that writes to it for all models.
#[derive(Debug)]
pub struct SequenceStore {
    writer: GroupWriter,
    /// The number of the next sequence. Numbers of a server that was started later are larger.
    incarnations: AtomicU64,
    /// Epochs up to this one are in use, as the tier has it or is about to.
    epochs: AtomicU64,
    clock: Clock,
    /// When this server took over what is kept, on the clock.
    began: OnceLock<Time>,
    /// The last time at which the running time was noted, on the clock.
    noted: AtomicU64,
    /// The successions that each model gave last. The tier may have earlier ones still.
    given: Mutex<HashMap<String, Successions>>,
}

/// Sequences that are numbered in an epoch, as a power of two.
const NUMBERS: u32 = 20;
/// Epochs that are taken into use at a time.
const EPOCHS: u64 = 64;
/// While sequences wait in the tier, their idle time is noted this often: after a crash less than that is missing of it.
const NOTE: Duration = Duration::from_secs(60);

impl LoadDurability {
    /// Whether states are written while their sequences live. If so, the store forgets them when they end.
    pub(in crate::model) fn is_continual(&self) -> bool {
        matches!(self.when, DurabilityWhen::Step | DurabilityWhen::Every(_))
    }

    /// Whether live sequences are written when the server stops: what is kept of them, if anything, is of an earlier step.
    pub(in crate::model) fn at_stop(&self) -> bool {
        matches!(self.when, DurabilityWhen::Drain | DurabilityWhen::Every(_))
    }

    /// What stored states of a load of this version are marked with.
    pub(in crate::model) fn version_digest(&self, version: u64) -> VersionDigest {
        VersionDigest { version, digest: self.digest }
    }

    /// Steps of a sequence between two writes, if answers do not wait for them.
    pub(in crate::model) fn interval(&self) -> Option<u64> {
        if let DurabilityWhen::Every(steps) = self.when { Some(u64::from(steps.get())) } else { None }
    }
}

impl SequenceStore {
    /// `epoch` is that of [`Tier::next_epoch`].
    pub fn new(tier: Arc<dyn Tier>, epoch: u64, clock: Clock) -> std::io::Result<SequenceStore> {
        let (incarnations, epochs) = (AtomicU64::new(epoch << NUMBERS), AtomicU64::new(epoch));
        let (writer, began, noted) = (GroupWriter::start(tier)?, OnceLock::new(), AtomicU64::new(0));
        Ok(SequenceStore { writer, incarnations, epochs, clock, began, noted, given: Mutex::default() })
    }

    /// This server takes over what is kept. From now on its time counts.
    pub(in crate::model) fn begin_running(&self) {
        self.began.get_or_init(|| self.clock.now());
    }

    /// The idle time that is left of a sequence that is kept, as this server takes it over.
    pub(in crate::model) fn idle_left(&self, head: &StateHead) -> Option<Duration> {
        let idle = self.writer.tier().running_time().idle_since(head);
        head.idle_left.map(|left| left.saturating_sub(idle))
    }

    /// How long servers have been running with this store. The time until the first model takes its sequences over does not count.
    pub(in crate::model) fn running(&self) -> Duration {
        let since = self.began.get().map_or(Duration::ZERO, |began| self.clock.now().since(*began));
        self.writer.tier().running_time().at_open + since
    }

    /// Notes how long servers have been running, once a minute. Returns when to note it again.
    pub(in crate::model) fn note_running(&self) -> Time {
        let (now, noted) = (self.clock.now(), Time(self.noted.load(Ordering::Relaxed)));
        if now < noted + NOTE {
            return noted + NOTE;
        }
        // Of several models one notes it.
        if self.noted.compare_exchange(noted.0, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.write(vec![TierChange::NoteRunning { until: self.running(), closes: false }], |failed| {
                if let Some((_, error)) = failed.first() {
                    tracing::warn!(%error, "the idle time of stored sequences is not noted; after a crash they may stay longer");
                }
            });
        }
        now + NOTE
    }

    pub(in crate::model) fn next_incarnation(&self) -> u64 {
        let number = self.incarnations.fetch_add(1, Ordering::Relaxed);
        self.uses(number >> NUMBERS);
        number
    }

    /// Takes further epochs into use before numbers of this one run out, so that the next server gives other ones, also if the clock is set back.
    pub(in crate::model) fn uses(&self, epoch: u64) {
        let known = self.epochs.load(Ordering::Relaxed);
        if epoch + EPOCHS / 2 < known {
            return;
        }
        let until = epoch + EPOCHS;
        if self.epochs.fetch_max(until, Ordering::Relaxed) < until {
            self.write(vec![TierChange::UseEpochs { until }], |failed| {
                if let Some((_, error)) = failed.first() {
                    tracing::error!(%error, "the numbers in use are not stored yet: the store tries again. After a crash before that, they may be given again");
                }
            });
        }
    }

    /// The sequences of a model that are kept.
    pub(in crate::model) fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)> {
        self.writer.tier().list(model)
    }

    /// The versions of a model that go on from states of others. Does not wait for the disk.
    pub(in crate::model) fn successions(&self, model: &str) -> Successions {
        self.writer.tier().successions(model)
    }

    /// Keeps the versions of a model that go on from states of others, unless it has them. Returns once that is durable. If the last ones that were given
    /// are not durable yet, these take their place.
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

    pub fn usage(&self) -> TierUsage {
        self.writer.tier().usage()
    }

    /// Reads a stored state. `done` runs on the store's thread.
    pub(in crate::model) fn take(&self, key: TierKey, then: AfterTake, done: impl FnOnce(TakenState) + Send + 'static) {
        self.writer.take(key, then, done);
    }

    /// Writes these changes. `done` runs on the store's thread.
    pub(in crate::model) fn write(&self, changes: Vec<TierChange>, done: impl FnOnce(FailedChanges) + Send + 'static) {
        self.writer.write(move |_| changes.into_iter().map(Ok).collect(), done);
    }

    /// The same. Returns whether the store is open; if it is closed, `done` is not called. So a caller may hold a lock that `done` takes.
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

    /// Forgets the state of a sequence that has ended, and remembers how it ended. `done` runs on the store's thread, with the error if that failed.
    pub(in crate::model) fn forget(
        &self,
        key: TierKey,
        incarnation: u64,
        ended: Option<EndedState>,
        done: impl FnOnce(Option<String>) + Send + 'static,
    ) {
        let model = key.model.clone();
        let end = ended.map(|ended| TierChange::Remember { key: key.clone(), ended });
        let changes = [TierChange::Remove { key, incarnation }].into_iter().chain(end).collect();
        self.write(changes, move |failed| {
            if let Some((_, error)) = failed.first() {
                tracing::error!(model, %error, "the stored state of an ended sequence is not removed yet: the store tries again. After a crash before that, the sequence may come back");
            }
            done(failed.first().map(|(_, error)| error.to_string()));
        });
    }

    /// Writes what waits and closes the tier.
    pub(in crate::model) fn close(&self) {
        self.write(vec![TierChange::NoteRunning { until: self.running(), closes: true }], |failed| {
            if let Some((_, error)) = failed.first() {
                tracing::warn!(%error, "the idle time of stored sequences is not noted; they may stay longer");
            }
        });
        self.writer.close();
    }
}

impl StateTier for SequenceStore {
    fn seal(&self, batch: BatchToSeal, sealed: Sealed) {
        let (model, tier, count) = (batch.model.clone(), Arc::clone(self.writer.tier()), batch.states.len());
        let waits = !batch.behind;
        let done = move |failed: FailedChanges| {
            if let Some((_, error)) = failed.first() {
                let sequences = failed.iter().filter(|(place, _)| *place < count).count();
                match waits {
                    true => {
                        tracing::error!(model, sequences, %error, "states are not stored; their sequences are dropped");
                    }
                    false => {
                        tracing::error!(model, sequences, %error, "states are not stored; those of earlier steps are kept");
                    }
                }
            }
            sealed(failed.into_iter().map(|(place, _)| place).filter(|place| *place < count).collect());
        };
        let running = self.running();
        self.writer.write(move |before| changes(&*tier, before, batch, running), done);
    }
}

/// The changes of a batch: one for each of its states, then the ends of sequences.
fn changes(
    tier: &dyn Tier,
    before: &[TierChange],
    batch: BatchToSeal,
    running: Duration,
) -> Vec<Result<TierChange, TierError>> {
    let BatchToSeal { model, version, digest, specs, behind, states } = batch;
    let mut ends = Vec::new();
    let change = |state: StateToSeal| {
        let StateToSeal { id, incarnation, step, end, forgets, at, idle, copy, first, scratch, answer } = state;
        let key = TierKey { model: model.clone(), id };
        if end {
            let ended = EndedState { why: EndReason::End, step, idle, at };
            ends.push(Ok(TierChange::Remember { key: key.clone(), ended }));
        }
        if end || forgets {
            return Ok(TierChange::Remove { key, incarnation });
        }
        let broken =
            |e: SnapshotError| TierError::Io { path: format!("the state of sequence {}", key.id), what: e.to_string() };
        let header = header(&model, version, step);
        let file = match (copy, first) {
            (Some(copy), _) => copy.file(&specs, &header).map_err(broken)?,
            (None, Some(first)) => first_file(&first, &specs, header).map_err(broken)?,
            // It ran nothing: the state is the one that is kept.
            (None, None) => {
                let kept = find(tier, before, &key)?.filter(|(head, _)| head.incarnation == incarnation);
                kept.map(|(_, file)| file).ok_or(TierError::Checksum { step })?
            }
        };
        let file = match &scratch {
            Some((names, scratch)) => with_scratch(&file, names, scratch.parts()).map_err(broken)?,
            None => file,
        };
        let file = match &answer {
            Some(answer) => with_answer(&file, answer).map_err(broken)?,
            None => file,
        };
        let time = IdleTime { idle, left: idle, running };
        let head = StateHead::new((version, digest), (incarnation, step), time, answer.is_some(), &file);
        let head = if behind { head.behind(&file, running) } else { head };
        Ok(TierChange::Put { key, head: Arc::new(head), file: Bytes::from(file) })
    };
    let mut changes: Vec<_> = states.into_iter().map(change).collect();
    changes.append(&mut ends);
    changes
}

/// The file of what a sequence begins with of which nothing has run.
pub(in crate::model) fn first_file(
    first: &StateValues,
    specs: &[StateSpec],
    mut header: BTreeMap<String, String>,
) -> Result<Vec<u8>, SnapshotError> {
    header.insert(UNRUN.to_owned(), "1".to_owned());
    first.file(specs, &header)
}

/// The header of a sequence's file.
pub(in crate::model) fn header(model: &str, version: u64, step: u64) -> BTreeMap<String, String> {
    let pairs = [(MODEL, model.to_owned()), (VERSION, version.to_string()), (STEP, step.to_string())];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}
