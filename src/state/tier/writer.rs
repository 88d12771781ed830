//! One thread that writes for all models: changes that wait when a commit ends go into the next one, so that one flush serves all of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::contract::{Tier, TierChange};
use super::error::TierError;
use super::record::{StateHead, TierKey};

/// Tasks that go into one commit at most.
const MOST: usize = 4096;

/// A kept state, if there is one.
pub type FoundState = Result<Option<(StateHead, Vec<u8>)>, TierError>;

type MakeChanges = Box<dyn FnOnce() -> Result<Vec<TierChange>, TierError> + Send>;
type WhenWritten = Box<dyn FnOnce(Result<(), TierError>) + Send>;
type WhenFound = Box<dyn FnOnce(FoundState) + Send>;

enum WriterTask {
    Write { make: MakeChanges, done: WhenWritten },
    Take { key: TierKey, forget: bool, done: WhenFound },
}

/// Called once the commit is over.
enum WriterWaiting {
    Writer { from: usize, until: usize, done: WhenWritten },
    Taker { found: FoundState, done: WhenFound },
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

    /// Writes what `make` returns, and calls `done` once it is durable or known to have failed. Both run on the writer's thread.
    pub fn write(
        &self,
        make: impl FnOnce() -> Result<Vec<TierChange>, TierError> + Send + 'static,
        done: impl FnOnce(Result<(), TierError>) + Send + 'static,
    ) {
        self.send(WriterTask::Write { make: Box::new(make), done: Box::new(done) });
    }

    /// Reads a kept state, and forgets it where it says so. `done` is called once that is durable.
    pub fn take(&self, key: TierKey, forget: bool, done: impl FnOnce(FoundState) + Send + 'static) {
        self.send(WriterTask::Take { key, forget, done: Box::new(done) });
    }

    fn send(&self, task: WriterTask) {
        let refused = {
            let mut tasks = self.queue.tasks.lock();
            match tasks.closed {
                true => Some(task),
                false => {
                    tasks.waiting.push_back(task);
                    None
                }
            }
        };
        match refused {
            None => {
                self.queue.added.notify_one();
            }
            Some(WriterTask::Write { done, .. }) => done(Err(TierError::Closed)),
            Some(WriterTask::Take { done, .. }) => done(Err(TierError::Closed)),
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
    /// The tasks of the next commit; none once the queue is closed and empty.
    fn next(&self) -> Vec<WriterTask> {
        let mut tasks = self.tasks.lock();
        while tasks.waiting.is_empty() && !tasks.closed {
            self.added.wait(&mut tasks);
        }
        let most = tasks.waiting.len().min(MOST);
        tasks.waiting.drain(..most).collect()
    }
}

fn run(tier: &dyn Tier, queue: &WriterQueue) {
    loop {
        let tasks = queue.next();
        if tasks.is_empty() {
            return;
        }
        let (mut changes, mut waiting) = (Vec::new(), Vec::new());
        for task in tasks {
            gather(tier, task, &mut changes, &mut waiting);
        }
        let written = if changes.is_empty() { Ok(Vec::new()) } else { tier.put_batch(&changes) };
        for waits in waiting {
            match waits {
                WriterWaiting::Writer { from, until, done } => done(outcome(tier, &written, (from, until), &changes)),
                WriterWaiting::Taker { found, done } => {
                    done(written.as_ref().map_or_else(|e| Err(e.clone()), |_| found));
                }
            }
        }
    }
}

fn gather(tier: &dyn Tier, task: WriterTask, changes: &mut Vec<TierChange>, waiting: &mut Vec<WriterWaiting>) {
    match task {
        WriterTask::Write { make, done } => match make() {
            Ok(more) => {
                let from = changes.len();
                changes.extend(more);
                waiting.push(WriterWaiting::Writer { from, until: changes.len(), done });
            }
            Err(error) => done(Err(error)),
        },
        WriterTask::Take { key, forget, done } => {
            let found = tier.get(&key);
            if let (Ok(Some((head, _))), true) = (&found, forget) {
                changes.push(TierChange::Remove { key, incarnation: head.incarnation });
            }
            waiting.push(WriterWaiting::Taker { found, done });
        }
    }
}

/// How the changes of one writer ended.
fn outcome(
    tier: &dyn Tier,
    written: &Result<Vec<usize>, TierError>,
    (from, until): (usize, usize),
    changes: &[TierChange],
) -> Result<(), TierError> {
    let too_large = written.as_ref().map_err(Clone::clone)?;
    let first = too_large.iter().find(|n| (from..until).contains(n)).and_then(|n| changes.get(*n));
    match first {
        None => Ok(()),
        Some(change) => {
            let needed = if let TierChange::Put { file, .. } = change { file.len() as u64 } else { 0 };
            let usage = tier.usage();
            Err(TierError::Full { needed, used: usage.bytes, limit: usage.limit })
        }
    }
}
