//! One thread that writes for all models: changes that wait when a commit ends go into the next one, so that one flush serves all of them. Where a
//! commit fails, each writer learns of it; what must happen all the same is tried again ([`OwedChanges`]).

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::contract::{FoundState, Tier, TierChange};
use super::error::TierError;
use super::owed::OwedChanges;
use super::record::{StateHead, TierKey};

/// Tasks that go into one commit at most.
const MOST: usize = 4096;

/// The changes of a writer that are not durable, by their places, each with the reason.
pub type FailedChanges = Vec<(usize, TierError)>;

/// Makes changes, given those that go before them into the same commit.
type MakeChanges = Box<dyn FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send>;
type WhenWritten = Box<dyn FnOnce(FailedChanges) + Send>;
type WhenFound = Box<dyn FnOnce(FoundState) + Send>;

enum WriterTask {
    Write { make: MakeChanges, done: WhenWritten },
    Take { key: TierKey, then: AfterTake, done: WhenFound },
}

/// What the store does with a state that it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTake {
    Keep,
    /// Note that later steps may be answered from now on, when servers have been running for so long.
    Outdate {
        running: Duration,
    },
    /// Remove it, unless it is of a sequence that began later than this one: that one may live, on another version.
    Forget {
        incarnation: u64,
    },
}

/// Called once the commit is over.
enum WriterWaiting {
    /// Of each change its place in the commit, or why it is not in it.
    Writer {
        places: Vec<Result<usize, TierError>>,
        done: WhenWritten,
    },
    Taker {
        found: FoundState,
        done: WhenFound,
    },
}

/// Tasks that wait. Their number is bounded by that of requests and live sequences.
#[derive(Default)]
struct WriterQueue {
    tasks: Mutex<QueuedTasks>,
    added: Condvar,
}

#[derive(Default)]
struct QueuedTasks {
    waiting: VecDeque<WriterTask>,
    closed: bool,
}

/// Clones share the thread.
#[derive(Clone)]
pub struct GroupWriter {
    tier: Arc<dyn Tier>,
    queue: Arc<WriterQueue>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl fmt::Debug for GroupWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWriter").field("tier", &self.tier).finish_non_exhaustive()
    }
}

impl GroupWriter {
    pub fn start(tier: Arc<dyn Tier>) -> std::io::Result<GroupWriter> {
        let queue = Arc::<WriterQueue>::default();
        let (tier_of_thread, queue_of_thread) = (Arc::clone(&tier), Arc::clone(&queue));
        let run = move || run(&*tier_of_thread, &queue_of_thread);
        let thread = std::thread::Builder::new().name("sequor-store".to_owned()).spawn(run)?;
        Ok(GroupWriter { tier, queue, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    pub fn tier(&self) -> &Arc<dyn Tier> {
        &self.tier
    }

    /// Writes what `make` returns, and calls `done` once each change is durable or known to have failed. Both run on the writer's thread.
    pub fn write(
        &self,
        make: impl FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send + 'static,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) {
        self.send(WriterTask::Write { make: Box::new(make), done: Box::new(done) });
    }

    /// The same. Returns whether the writer is open; if it is closed, neither is called.
    pub fn try_write(
        &self,
        make: impl FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send + 'static,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) -> bool {
        self.queue.push(WriterTask::Write { make: Box::new(make), done: Box::new(done) }).is_ok()
    }

    /// Reads a stored state. `done` is called once what comes after that is durable.
    pub fn take(&self, key: TierKey, then: AfterTake, done: impl FnOnce(FoundState) + Send + 'static) {
        self.send(WriterTask::Take { key, then, done: Box::new(done) });
    }

    fn send(&self, task: WriterTask) {
        match self.queue.push(task) {
            Ok(()) => {}
            Err(WriterTask::Write { make, done }) => {
                done((0..make(&[]).len()).map(|n| (n, TierError::Closed)).collect());
            }
            Err(WriterTask::Take { done, .. }) => done(Err(TierError::Closed)),
        }
    }

    /// Writes what waits, ends the thread and closes the tier.
    pub fn close(&self) {
        self.queue.tasks.lock().closed = true;
        self.queue.added.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // It ended early only if a callback panicked, which the panic's own message has said.
            let _ = thread.join();
        }
        self.tier.close();
    }
}

impl WriterQueue {
    /// Adds a task. The error is the task, if the queue is closed.
    fn push(&self, task: WriterTask) -> Result<(), WriterTask> {
        let mut tasks = self.tasks.lock();
        if tasks.closed {
            return Err(task);
        }
        tasks.waiting.push_back(task);
        drop(tasks);
        self.added.notify_one();
        Ok(())
    }

    /// The tasks of the next commit, after at most `wait`. `None` once the queue is closed and empty.
    fn next(&self, wait: Option<Duration>) -> Option<Vec<WriterTask>> {
        let mut tasks = self.tasks.lock();
        let mut is_over = false;
        while tasks.waiting.is_empty() && !tasks.closed && !is_over {
            match wait {
                None => self.added.wait(&mut tasks),
                Some(wait) => is_over = self.added.wait_for(&mut tasks, wait).timed_out(),
            }
        }
        if tasks.waiting.is_empty() && tasks.closed {
            return None;
        }
        let most = tasks.waiting.len().min(MOST);
        Some(tasks.waiting.drain(..most).collect())
    }
}

fn run(tier: &dyn Tier, queue: &WriterQueue) {
    let mut owed = OwedChanges::default();
    while let Some(tasks) = queue.next(owed.wait()) {
        let mut commit = GatheredChanges { changes: owed.take(), ..GatheredChanges::default() };
        tasks.into_iter().for_each(|task| commit.add(tier, task));
        let GatheredChanges { changes, undone, waiting } = commit;
        let written = if changes.is_empty() { Ok(Vec::new()) } else { tier.put_batch(&changes) };
        for waits in waiting {
            match waits {
                WriterWaiting::Writer { places, done } => done(failed(tier, &written, places, &changes)),
                WriterWaiting::Taker { found, done } => {
                    done(written.as_ref().map_or_else(|e| Err(e.clone()), |_| found));
                }
            }
        }
        match written {
            Ok(_) => owed.written(),
            Err(_) => owed.failed(tier, changes, &undone),
        }
    }
    let last = owed.take();
    if let Some(error) = (!last.is_empty()).then(|| tier.put_batch(&last).err()).flatten() {
        tracing::error!(%error, changes = last.len(), "what the disk did not take before is not written at the end either");
    }
}

/// What goes into one commit.
#[derive(Default)]
struct GatheredChanges {
    changes: Vec<TierChange>,
    /// Places of removals that mean nothing if the commit fails: who asked for them goes on with the state that is there.
    undone: HashSet<usize>,
    waiting: Vec<WriterWaiting>,
}

impl GatheredChanges {
    fn add(&mut self, tier: &dyn Tier, task: WriterTask) {
        let GatheredChanges { changes, undone, waiting } = self;
        match task {
            WriterTask::Write { make, done } => {
                let made = make(changes.as_slice());
                let mut place = |change: Result<TierChange, TierError>| {
                    changes.push(change?);
                    Ok(changes.len() - 1)
                };
                let places = made.into_iter().map(&mut place).collect();
                waiting.push(WriterWaiting::Writer { places, done });
            }
            WriterTask::Take { key, then, done } => {
                let found = find(tier, changes, &key);
                match (&found, then) {
                    (Ok(Some((head, _))), AfterTake::Forget { incarnation }) if head.incarnation <= incarnation => {
                        undone.insert(changes.len());
                        changes.push(TierChange::Remove { key, incarnation: head.incarnation });
                    }
                    (Ok(Some((head, file))), AfterTake::Outdate { running }) if !head.behind => {
                        let head = Arc::new(StateHead::clone(head).behind(file, running));
                        changes.push(TierChange::Put { key, head, file: Bytes::copy_from_slice(file) });
                    }
                    _ => {}
                }
                waiting.push(WriterWaiting::Taker { found, done });
            }
        }
    }
}

/// What a key has after these changes, which go into the same commit. As in the tier, a change of a sequence that began earlier changes nothing.
pub fn find(tier: &dyn Tier, changes: &[TierChange], key: &TierKey) -> FoundState {
    let of_key = changes.iter().filter_map(|change| match change {
        TierChange::Put { key: of, head, file } => Some((of, head.incarnation, Some((head, file)))),
        TierChange::Remove { key: of, incarnation } => Some((of, *incarnation, None)),
        TierChange::Remember { .. }
        | TierChange::UseEpochs { .. }
        | TierChange::Succeed { .. }
        | TierChange::NoteRunning { .. } => None,
    });
    let (mut stored, mut last) = (None, None);
    for (_, incarnation, state) in of_key.filter(|(of, ..)| *of == key) {
        let before = if last.is_none() { tier.head(key).map(|head| head.incarnation) } else { stored };
        if before.is_none_or(|before| before <= incarnation) {
            (stored, last) = (state.map(|_| incarnation), Some(state));
        }
    }
    match last {
        None => tier.get(key),
        Some(state) => Ok(state.map(|(head, file)| (Arc::clone(head), file.to_vec()))),
    }
}

/// The changes of one writer that are not durable.
fn failed(
    tier: &dyn Tier,
    written: &Result<Vec<usize>, TierError>,
    places: Vec<Result<usize, TierError>>,
    changes: &[TierChange],
) -> FailedChanges {
    let why = |place: Result<usize, TierError>| match (place, written) {
        (Err(error), _) => Some(error),
        (Ok(_), Err(error)) => Some(error.clone()),
        (Ok(place), Ok(too_large)) => {
            let needed = match changes.get(place).filter(|_| too_large.contains(&place))? {
                TierChange::Put { file, .. } => file.len() as u64,
                TierChange::Remove { .. }
                | TierChange::Remember { .. }
                | TierChange::UseEpochs { .. }
                | TierChange::Succeed { .. }
                | TierChange::NoteRunning { .. } => 0,
            };
            let usage = tier.usage();
            Some(TierError::Full { needed, used: usage.bytes, limit: usage.limit })
        }
    };
    places.into_iter().enumerate().filter_map(|(n, place)| Some((n, why(place)?))).collect()
}
