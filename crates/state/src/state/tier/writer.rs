//! One thread that writes for all models. Changes that wait when a commit ends go into the next one, so that one flush serves all of them.
//!
//! If a commit fails, the writer tries its states, and the changes that follow a reading, once more without the rest, and then in ever
//! smaller commits ([`SmallerCommits`]). So neither a removal nor a state that cannot be written fails another state.
//!
//! A callback that panics costs only its own task. If the thread panics elsewhere, the writer is closed, and the waiting tasks fail.
//!
//! Then each task gets its own outcome:
//! - A writer gets the places of its changes that are not durable, with the reasons. Some of them are owed from then on ([`OwedChanges`]).
//! - A taker gets the state that was read, and whether the store is as the taker asked. The commit itself does not count: a taker that
//!   changes nothing does not fail with the disk. A taker whose change failed must not continue, because after a crash another request could
//!   continue from the same state.
//! - A looker gets what the store has after the commit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::contract::{FoundState, Tier, TierChange};
use super::error::TierError;
use super::owed::{OwedChanges, RetryWaits};
use super::record::{StateHead, TierKey};
use super::smaller_commits::SmallerCommits;
use super::trouble::{StoreHealth, StoreTrouble};

/// Maximum number of tasks in one commit.
const MOST: usize = 4096;

/// The changes of a writer that are not durable, by their places, each with the reason.
pub type FailedChanges = Vec<(usize, TierError)>;

/// Makes changes. The argument is the changes before them in the same commit. If it panics, the task fails as if it were one change.
type MakeChanges = Box<dyn FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send>;
type WhenWritten = Box<dyn FnOnce(FailedChanges) + Send>;
type WhenTaken = Box<dyn FnOnce(TakenState) + Send>;
type WhenLooked = Box<dyn FnOnce(FoundHead) + Send>;

/// The facts about a stored state, if there is one.
pub type FoundHead = Result<Option<Arc<StateHead>>, TierError>;

enum WriterTask {
    /// `owes`: whether the store tries failed changes again later, if they are of a kind that can be owed.
    Write {
        make: MakeChanges,
        owes: bool,
        done: WhenWritten,
    },
    Take {
        key: TierKey,
        then: AfterTake,
        done: WhenTaken,
    },
    Look {
        key: TierKey,
        done: WhenLooked,
    },
}

/// What the store does with a state after reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTake {
    Keep,
    /// Record that later steps may be answered from now on. `running` is the running time of servers.
    Outdate {
        running: Duration,
    },
    /// Remove it, unless it is of a sequence that began later than this one. That one may live, on another version.
    Forget {
        incarnation: u64,
    },
}

/// The outcome of reading a stored state.
#[derive(Debug)]
pub struct TakenState {
    pub found: FoundState,
    /// Whether the store is as [`AfterTake`] asks. If not, nothing may continue from the state.
    pub changed: Result<(), TierError>,
}

/// A task that waits for the end of the commit.
enum WriterWaiting {
    /// The place of each change in the commit, or why it is not in the commit.
    Writer {
        places: Vec<Result<usize, TierError>>,
        done: WhenWritten,
    },
    Taker {
        key: TierKey,
        then: AfterTake,
        found: FoundState,
        /// The place of its change, if it needs one.
        place: Option<usize>,
        done: WhenTaken,
    },
    Looker {
        key: TierKey,
        done: WhenLooked,
    },
}

/// A task for a closed writer. It fails with [`Self::fail`], for which the caller must hold no lock that the task's callback takes.
#[must_use = "its callback is not called otherwise"]
pub struct ClosedTask {
    task: WriterTask,
    tier: Arc<dyn Tier>,
}

impl fmt::Debug for ClosedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosedTask").finish_non_exhaustive()
    }
}

impl ClosedTask {
    /// Calls the task's callback, with the error that the writer is closed.
    pub fn fail(self) {
        match self.task {
            WriterTask::Write { make, done, .. } => {
                done((0..make(&[]).len()).map(|n| (n, TierError::Closed)).collect());
            }
            WriterTask::Take { key, then, done } => {
                done(then.outcome(&*self.tier, &key, Err(TierError::Closed), None));
            }
            WriterTask::Look { done, .. } => done(Err(TierError::Closed)),
        }
    }
}

/// Waiting tasks. Their number is bounded by that of requests and live sequences.
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

/// Writes to the store for all models. Clones share the thread.
#[derive(Clone)]
pub struct GroupWriter {
    tier: Arc<dyn Tier>,
    queue: Arc<WriterQueue>,
    health: Arc<StoreHealth>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl fmt::Debug for GroupWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWriter").field("tier", &self.tier).finish_non_exhaustive()
    }
}

impl AfterTake {
    /// Whether a store with this state of the sequence is as this asks.
    fn is_done(self, stored: Option<&StateHead>) -> bool {
        match self {
            AfterTake::Keep => true,
            AfterTake::Outdate { .. } => stored.is_none_or(|head| head.behind),
            AfterTake::Forget { incarnation } => stored.is_none_or(|head| head.incarnation > incarnation),
        }
    }

    /// The outcome for a taker. `error` is that of the taker's own change.
    fn outcome(self, tier: &dyn Tier, key: &TierKey, found: FoundState, error: Option<TierError>) -> TakenState {
        let changed = match error.or_else(|| found.as_ref().err().cloned()) {
            Some(error) if !self.is_done(tier.head(key).as_deref()) => Err(error),
            _ => Ok(()),
        };
        TakenState { found, changed }
    }
}

impl GroupWriter {
    pub fn start(tier: Arc<dyn Tier>) -> std::io::Result<GroupWriter> {
        GroupWriter::start_with(tier, RetryWaits::default())
    }

    pub(super) fn start_with(tier: Arc<dyn Tier>, waits: RetryWaits) -> std::io::Result<GroupWriter> {
        let (queue, health) = (Arc::<WriterQueue>::default(), Arc::<StoreHealth>::default());
        let (tier_of_thread, queue_of_thread) = (Arc::clone(&tier), Arc::clone(&queue));
        let health_of_thread = Arc::clone(&health);
        let run = move || {
            let closing = ClosesAtEnd { tier: &tier_of_thread, queue: &queue_of_thread };
            run(&*tier_of_thread, closing.queue, waits, &health_of_thread);
        };
        let thread = std::thread::Builder::new().name("sequor-store".to_owned()).spawn(run)?;
        Ok(GroupWriter { tier, queue, health, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    pub fn tier(&self) -> &Arc<dyn Tier> {
        &self.tier
    }

    /// Why the store fails to write now, if it does.
    pub fn trouble(&self) -> Option<StoreTrouble> {
        self.health.trouble()
    }

    /// Writes the changes that `make` returns, and calls `done` once each is durable or has failed. Both run on the writer's thread, or on
    /// this thread if the writer is closed.
    pub fn write(
        &self,
        make: impl FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send + 'static,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) {
        self.send(WriterTask::Write { make: Box::new(make), owes: true, done: Box::new(done) });
    }

    /// Same as [`Self::write`], and returns whether the writer is open. If it is closed, neither is called.
    pub fn try_write(
        &self,
        make: impl FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send + 'static,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) -> bool {
        let task = WriterTask::Write { make: Box::new(make), owes: true, done: Box::new(done) };
        let is_open = self.queue.push(task).is_ok();
        self.wake();
        is_open
    }

    /// Same as [`Self::write`] for a caller that holds a lock which `done` takes. The task is in the queue when this returns, behind those
    /// queued before, but the thread is not woken: [`Self::wake`] must follow. Returns the task if the writer is closed.
    pub fn queue_write(
        &self,
        make: impl FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send + 'static,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.queue_task(WriterTask::Write { make: Box::new(make), owes: true, done: Box::new(done) })
    }

    /// Same as [`Self::queue_write`], for changes that are not tried again later: if one fails, the caller decides what follows.
    pub fn queue_write_once(
        &self,
        make: impl FnOnce(&[TierChange]) -> Vec<Result<TierChange, TierError>> + Send + 'static,
        done: impl FnOnce(FailedChanges) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.queue_task(WriterTask::Write { make: Box::new(make), owes: false, done: Box::new(done) })
    }

    /// Queues a look at the facts about a stored state ([`Tier::look`]), behind the changes that were queued before. As with
    /// [`Self::queue_write`].
    pub fn queue_look(&self, key: TierKey, done: impl FnOnce(FoundHead) + Send + 'static) -> Option<ClosedTask> {
        self.queue_task(WriterTask::Look { key, done: Box::new(done) })
    }

    /// Same as [`Self::take`], for a caller that holds a lock which `done` takes. As with [`Self::queue_write`].
    pub fn queue_take(
        &self,
        key: TierKey,
        then: AfterTake,
        done: impl FnOnce(TakenState) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.queue_task(WriterTask::Take { key, then, done: Box::new(done) })
    }

    /// Wakes the writer's thread for queued tasks.
    pub fn wake(&self) {
        self.queue.added.notify_one();
    }

    /// Reads a stored state. `done` is called once the change that `then` asks for is durable or has failed.
    pub fn take(&self, key: TierKey, then: AfterTake, done: impl FnOnce(TakenState) + Send + 'static) {
        self.send(WriterTask::Take { key, then, done: Box::new(done) });
    }

    fn queue_task(&self, task: WriterTask) -> Option<ClosedTask> {
        self.queue.push(task).err().map(|task| ClosedTask { task, tier: Arc::clone(&self.tier) })
    }

    fn send(&self, task: WriterTask) {
        match self.queue_task(task) {
            None => self.wake(),
            Some(closed) => closed.fail(),
        }
    }

    /// Finishes the waiting tasks, ends the thread and closes the tier.
    pub fn close(&self) {
        self.queue.tasks.lock().closed = true;
        self.queue.added.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // It ended early only if it panicked, which the panic's own message reports.
            let _ = thread.join();
        }
        self.tier.close();
    }
}

impl WriterQueue {
    /// Adds a task. If the queue is closed, the error is the task. The caller notifies the thread.
    fn push(&self, task: WriterTask) -> Result<(), WriterTask> {
        let mut tasks = self.tasks.lock();
        if tasks.closed {
            return Err(task);
        }
        tasks.waiting.push_back(task);
        Ok(())
    }

    /// The tasks of the next commit. Empty after `wait`. `None` once the queue is closed and empty.
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

/// Closes the queue of a thread that ends, and fails the tasks that still wait. They wait only if the thread has panicked.
struct ClosesAtEnd<'a> {
    tier: &'a Arc<dyn Tier>,
    queue: &'a WriterQueue,
}

impl Drop for ClosesAtEnd<'_> {
    fn drop(&mut self) {
        let left = {
            let mut tasks = self.queue.tasks.lock();
            tasks.closed = true;
            std::mem::take(&mut tasks.waiting)
        };
        for task in left {
            call(|| ClosedTask { task, tier: Arc::clone(self.tier) }.fail());
        }
    }
}

/// Calls a callback. A panic must not end the thread, because nothing would replace it.
fn call<T>(callback: impl FnOnce() -> T) -> Option<T> {
    let called = catch_unwind(AssertUnwindSafe(callback));
    called.inspect_err(|_| tracing::error!("a task of the store has panicked")).ok()
}

/// The error for a task that has panicked.
pub fn task_panicked() -> TierError {
    TierError::Io { path: "the store".to_owned(), what: "its task has panicked".to_owned() }
}

fn run(tier: &dyn Tier, queue: &WriterQueue, waits: RetryWaits, health: &StoreHealth) {
    let (mut owed, mut smaller) = (OwedChanges::new(waits), SmallerCommits::default());
    while let Some(tasks) = queue.next(owed.due_in()) {
        commit(tier, &mut owed, &mut smaller, tasks, health);
        if let Some(outcome) = owed.try_due(tier) {
            health.note(outcome.as_ref().copied(), false, tier.usage(), Instant::now());
        }
        health.waits(owed.len());
        report_end(health, owed.len());
    }
    owed.try_last(tier);
    report_end(health, owed.len());
}

/// Logs that an outage is over, with what it has cost. `waiting`: the changes that are tried again later.
fn report_end(health: &StoreHealth, waiting: usize) {
    let Some(outage) = health.caught_up(waiting, Instant::now()) else { return };
    tracing::info!(
        away_seconds = outage.length().as_secs_f64(),
        states_not_stored = outage.unstored,
        written_late = outage.waited,
        "the store has caught up: it writes again, and no change waits"
    );
}

/// Carries out these tasks with one commit, or with smaller ones if that fails.
fn commit(
    tier: &dyn Tier,
    owed: &mut OwedChanges,
    smaller: &mut SmallerCommits,
    tasks: Vec<WriterTask>,
    health: &StoreHealth,
) {
    let mut gathered = GatheredChanges::default();
    tasks.into_iter().for_each(|task| gathered.add(tier, owed, task));
    let all_failed = || (0..gathered.changes.len()).map(|place| (place, task_panicked())).collect();
    let failed = call(|| gathered.write(tier, smaller)).unwrap_or_else(all_failed);
    let GatheredChanges { changes, unowed, waiting } = gathered;
    if !changes.is_empty() {
        // Before the callbacks: who learns of a failure finds it here.
        let of_store = failed.values().find(|error| **error != TierError::Fenced).or_else(|| failed.values().next());
        let has_state = changes.iter().any(|change| matches!(change, TierChange::Put { .. }));
        health.note(of_store.map_or(Ok(()), Err), has_state, tier.usage(), Instant::now());
        let is_unstored = |(place, error): &(&usize, &TierError)| {
            **error != TierError::Fenced && matches!(changes.get(**place), Some(TierChange::Put { .. }))
        };
        health.unstored(failed.iter().filter(is_unstored).count() as u64);
    }
    for waits in waiting {
        match waits {
            WriterWaiting::Writer { places, done } => {
                let why = |place| match place {
                    Ok(place) => failed.get(&place).cloned(),
                    Err(error) => Some(error),
                };
                let failed = places.into_iter().enumerate().filter_map(|(n, place)| Some((n, why(place)?))).collect();
                call(|| done(failed));
            }
            WriterWaiting::Taker { key, then, found, place, done } => {
                let error = place.and_then(|place| failed.get(&place).cloned());
                let outcome = then.outcome(tier, &key, found, error);
                call(|| done(outcome));
            }
            WriterWaiting::Looker { key, done } => {
                let found = call(|| tier.look(&key)).unwrap_or_else(|| Err(task_panicked()));
                call(|| done(found));
            }
        }
    }
    let ends = ends_of_removed(&changes, &failed);
    for (place, change) in changes.into_iter().enumerate() {
        if !failed.contains_key(&place) {
            owed.replaced_by(&change);
        } else if ends.contains(&place) || can_be_owed(place, &change, &unowed) {
            owed.add(tier, change);
        }
    }
}

/// The changes and the tasks of one commit.
#[derive(Default)]
struct GatheredChanges {
    changes: Vec<TierChange>,
    /// Places of changes that follow a reading, or whose writer does not want them to be owed.
    unowed: HashSet<usize>,
    waiting: Vec<WriterWaiting>,
}

/// Whether a change that fails now is tried again later.
fn can_be_owed(place: usize, change: &TierChange, unowed: &HashSet<usize>) -> bool {
    let is_left_out =
        matches!(change, TierChange::Put { .. } | TierChange::NoteRunning { .. } | TierChange::Release { .. });
    !is_left_out && !unowed.contains(&place)
}

/// The places of failed ends whose sequences' states are removed. These sequences are over, so their ends are owed in any case.
fn ends_of_removed(changes: &[TierChange], failed: &HashMap<usize, TierError>) -> HashSet<usize> {
    let (mut removed, mut ends) = (HashMap::new(), HashSet::new());
    if failed.is_empty() {
        return ends;
    }
    for (place, change) in changes.iter().enumerate() {
        let has_failed = failed.contains_key(&place);
        match change {
            TierChange::Remove { key, .. } => _ = removed.insert(key, !has_failed),
            TierChange::Remember { key, .. } if has_failed && removed.get(key) == Some(&true) => _ = ends.insert(place),
            _ => {}
        }
    }
    ends
}

impl GatheredChanges {
    fn add(&mut self, tier: &dyn Tier, owed: &OwedChanges, task: WriterTask) {
        let GatheredChanges { changes, unowed, waiting } = self;
        match task {
            WriterTask::Write { make, owes, done } => {
                let made = call(|| make(changes.as_slice())).unwrap_or_else(|| vec![Err(task_panicked())]);
                let mut place = |change: Result<TierChange, TierError>| {
                    changes.push(change?);
                    Ok(changes.len() - 1)
                };
                let places: Vec<_> = made.into_iter().map(&mut place).collect();
                unowed.extend(places.iter().flatten().filter(|_| !owes));
                waiting.push(WriterWaiting::Writer { places, done });
            }
            WriterTask::Take { key, then, done } => {
                let before = owed.removal(key.encode()).into_iter().chain(changes.as_slice());
                let found = call(|| find(tier, before, &key)).unwrap_or_else(|| Err(task_panicked()));
                let change = match (&found, then) {
                    (Ok(Some((head, _))), _) if then.is_done(Some(head)) => None,
                    (Ok(None), _) if then.is_done(tier.head(&key).as_deref()) => None,
                    // Even if a removal is owed, or goes into this commit before it: a taker waits for its own.
                    (Ok(_), AfterTake::Forget { incarnation }) => {
                        Some(TierChange::Remove { key: key.clone(), incarnation })
                    }
                    (Ok(Some((head, file))), AfterTake::Outdate { running }) => {
                        let head = Arc::new(StateHead::clone(head).behind(file, running));
                        Some(TierChange::Put { key: key.clone(), head, file: Bytes::copy_from_slice(file) })
                    }
                    _ => None,
                };
                let place = change.is_some().then_some(changes.len());
                unowed.extend(place);
                changes.extend(change);
                waiting.push(WriterWaiting::Taker { key, then, found, place, done });
            }
            WriterTask::Look { key, done } => waiting.push(WriterWaiting::Looker { key, done }),
        }
    }

    /// Makes the changes. Returns those that are not durable, by their places, each with the reason.
    fn write(&self, tier: &dyn Tier, smaller: &mut SmallerCommits) -> HashMap<usize, TierError> {
        if self.changes.is_empty() {
            return HashMap::new();
        }
        let error = match tier.put_each(&self.changes) {
            Ok(failed) => {
                smaller.succeeded();
                return failed;
            }
            Err(error) => error,
        };
        let is_urgent = |(place, change): &(usize, &TierChange)| !can_be_owed(*place, change, &self.unowed);
        let urgent = self.changes.iter().enumerate().filter(is_urgent).map(|(place, _)| place).collect();
        let mut failed = (0..self.changes.len()).map(|place| (place, error.clone())).collect();
        smaller.write(tier, &self.changes, urgent, &mut failed);
        failed
    }
}

/// The state under a key after these changes, which go into the same commit. As in the tier, a change of a sequence that began earlier has no
/// effect.
pub fn find<'a>(tier: &dyn Tier, changes: impl IntoIterator<Item = &'a TierChange>, key: &TierKey) -> FoundState {
    let of_key = changes.into_iter().filter_map(|change| match change {
        TierChange::Put { key: of, head, file } => Some((of, head.incarnation, Some((head, file)))),
        TierChange::Remove { key: of, incarnation } => Some((of, *incarnation, None)),
        TierChange::Remember { .. }
        | TierChange::UseEpochs { .. }
        | TierChange::Succeed { .. }
        | TierChange::NoteRunning { .. }
        | TierChange::Release { .. } => None,
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
