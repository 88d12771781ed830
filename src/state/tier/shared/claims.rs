//! Takes sequences over, on one thread for all models. Claims that arrive together are sent together. A sequence of another live server is
//! asked for until that server has given it up, or until the time is over.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::host::handover_wait;
use super::keys;
use super::lease::LeaseClock;
use super::link::{Bundle, RedisLink};
use super::scripts::{ClaimAnswer, RecordScript};
use super::shared_tier::{HeldRecord, SharedTier};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{EndedState, StateHead, TierKey};

/// Gives an incarnation that is larger than this one and all that were given before.
pub(crate) type NextIncarnation = dyn Fn(u64) -> u64 + Send + Sync;

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// This server owns the sequence now.
    Held {
        /// The facts about its state, if it has one.
        head: Option<Arc<StateHead>>,
        /// The first incarnation of its activation here.
        incarnation: u64,
        /// The idle time that it has left. `None`: idle time begins anew, or is not limited.
        left: Option<Duration>,
        /// How it ended, if its server failed before it released it. Then it has no state.
        ended: Option<EndedState>,
    },
    /// There is no such sequence. It may have ended so.
    Unknown { ended: Option<EndedState> },
}

/// Why a sequence could not be taken over. Each is a sentence for clients.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimFailure {
    #[error("server '{node}' has the sequence and did not hand it over within {waited:?}")]
    Owned { node: String, waited: Duration },
    #[error("this server has no lease at present: {address} did not confirm it in time (state.lease)")]
    NoLease { address: String },
    #[error(transparent)]
    Store(#[from] TierError),
}

/// A sequence to take over.
pub struct ClaimTask {
    pub key: TierKey,
    /// Whether the sequence may begin here if there is none.
    pub begins: bool,
    pub done: Box<dyn FnOnce(Result<ClaimOutcome, ClaimFailure>) + Send>,
}

impl fmt::Debug for ClaimTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimTask").field("key", &self.key).field("begins", &self.begins).finish_non_exhaustive()
    }
}

/// The claims that wait for the thread. Their number is bounded by that of requests.
#[derive(Debug, Default)]
pub(super) struct Claims(Arc<ClaimQueue>);

#[derive(Debug, Default)]
struct ClaimQueue {
    tasks: Mutex<(VecDeque<ClaimTask>, bool)>,
    added: Condvar,
}

/// Maximum number of claims in one bundle.
const PORTION: usize = 256;
/// The wait between two attempts for a sequence of another server is this part of the time that has passed, within these bounds.
const PART: u32 = 8;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
/// Time after which the other server is asked again, if it did not hear it.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A claim that was not decided yet.
struct WaitingClaim {
    task: ClaimTask,
    since: Instant,
    next: Instant,
    asked: Option<Instant>,
    /// The node that has the sequence.
    node: Option<String>,
}

impl Claims {
    pub(super) fn push(&self, task: ClaimTask) {
        let mut tasks = self.0.tasks.lock();
        if tasks.1 {
            drop(tasks);
            return (task.done)(Err(TierError::Closed.into()));
        }
        tasks.0.push_back(task);
        drop(tasks);
        self.0.added.notify_one();
    }

    pub(super) fn close(&self) {
        self.0.tasks.lock().1 = true;
        self.0.added.notify_one();
    }

    /// The thread's work.
    pub(super) fn thread(
        &self,
        tier: Arc<SharedTier>,
        lease: Arc<LeaseClock>,
        link: RedisLink,
        next: Box<NextIncarnation>,
    ) -> Box<dyn FnOnce() + Send> {
        let queue = Arc::clone(&self.0);
        Box::new(move || ClaimThread { tier, lease, link, next, waiting: Vec::new() }.run(&queue))
    }
}

impl ClaimQueue {
    /// New tasks, once there are any or this time has come. `None` once the queue is closed.
    fn next(&self, until: Option<Instant>) -> Option<Vec<ClaimTask>> {
        let mut tasks = self.tasks.lock();
        while tasks.0.is_empty() && !tasks.1 {
            match until {
                None => self.added.wait(&mut tasks),
                Some(until) => {
                    if self.added.wait_until(&mut tasks, until).timed_out() {
                        break;
                    }
                }
            }
        }
        if tasks.1 { None } else { Some(tasks.0.drain(..).collect()) }
    }
}

struct ClaimThread {
    tier: Arc<SharedTier>,
    lease: Arc<LeaseClock>,
    link: RedisLink,
    next: Box<NextIncarnation>,
    waiting: Vec<WaitingClaim>,
}

impl ClaimThread {
    fn run(mut self, queue: &ClaimQueue) {
        loop {
            let due = self.waiting.iter().map(|claim| claim.next).min();
            let Some(tasks) = queue.next(due) else { break };
            let now = Instant::now();
            let claim = |task| WaitingClaim { task, since: now, next: now, asked: None, node: None };
            self.waiting.extend(tasks.into_iter().map(claim));
            self.try_due(now);
        }
        let left = std::mem::take(&mut queue.tasks.lock().0);
        let waiting = self.waiting.into_iter().map(|claim| claim.task);
        left.into_iter().chain(waiting).for_each(|task| (task.done)(Err(TierError::Closed.into())));
    }

    fn try_due(&mut self, now: Instant) {
        let mut due: Vec<WaitingClaim> = self.waiting.extract_if(.., |claim| claim.next <= now).collect();
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(PORTION));
            let portion = std::mem::replace(&mut due, rest);
            self.try_portion(portion);
        }
    }

    fn try_portion(&mut self, portion: Vec<WaitingClaim>) {
        // Without a heartbeat in Redis, any server could take the sequences at once.
        if !self.lease.holds() {
            let address = self.link.address().shown.clone();
            let failure = ClaimFailure::NoLease { address };
            let patience = self.lease.lease();
            portion.into_iter().for_each(|claim| self.wait_on(claim, patience, &failure));
            return;
        }
        let answers = self.send(&portion);
        let mut asks = Bundle::new();
        match answers {
            Err(error) => portion.into_iter().for_each(|claim| (claim.task.done)(Err(error.clone().into()))),
            Ok(answers) => {
                for (claim, answer) in portion.into_iter().zip(answers) {
                    self.decide(claim, answer, &mut asks);
                }
            }
        }
        if !asks.is_empty()
            && let Err(error) = self.link.send(&asks)
        {
            tracing::debug!(%error, "another server does not hear that its sequences are wanted here");
        }
    }

    fn send(&mut self, portion: &[WaitingClaim]) -> Result<Vec<Result<ClaimAnswer, TierError>>, TierError> {
        let (run, owned) = (self.tier.run.clone(), keys::owned(&self.tier.run));
        let mut bundle = Bundle::new();
        for WaitingClaim { task: ClaimTask { key, begins, .. }, .. } in portion {
            let begins: &[u8] = if *begins { b"1" } else { b"0" };
            bundle.script(
                RecordScript::Claim,
                &[&keys::record(key), owned.as_bytes(), &keys::end(key)],
                &[run.as_bytes(), begins, &key.encode()],
            );
        }
        let answers = self.link.send(&bundle)?;
        Ok(answers.iter().map(|a| ClaimAnswer::read(a).ok_or_else(|| self.link.unexpected(a))).collect())
    }

    fn decide(&mut self, mut claim: WaitingClaim, answer: Result<ClaimAnswer, TierError>, asks: &mut Bundle) {
        match answer {
            Err(error) => (claim.task.done)(Err(error.into())),
            Ok(ClaimAnswer::None { end }) => {
                let ended = EndedState::decode(&end).map(|(_, ended)| ended);
                (claim.task.done)(Ok(ClaimOutcome::Unknown { ended }));
            }
            Ok(ClaimAnswer::Held { epoch, left, head, blob, end }) => {
                let outcome = self.hold(&claim, (epoch, left), (&head, &end), blob);
                (claim.task.done)(outcome.map_err(ClaimFailure::from));
            }
            Ok(ClaimAnswer::Owned { owner, node }) => {
                let now = Instant::now();
                if claim.asked.is_none_or(|asked| now.duration_since(asked) >= ASK_AGAIN) {
                    claim.asked = Some(now);
                    asks.command("PUBLISH", &[keys::channel(&owner).as_bytes(), &claim.task.key.encode()]);
                }
                claim.node = Some(node.clone());
                let waited = handover_wait(self.lease.lease());
                self.wait_on(claim, waited, &ClaimFailure::Owned { node, waited });
            }
        }
    }

    /// Tries a claim again later, or ends it with this failure if it has waited this long.
    fn wait_on(&mut self, mut claim: WaitingClaim, patience: Duration, failure: &ClaimFailure) {
        let now = Instant::now();
        let waited = now.duration_since(claim.since);
        if waited >= patience {
            return (claim.task.done)(Err(failure.clone()));
        }
        claim.next = now + (waited / PART).clamp(SHORTEST, LONGEST);
        self.waiting.push(claim);
    }

    fn hold(
        &self,
        claim: &WaitingClaim,
        (epoch, left): (u64, i64),
        (head, end): (&[u8], &[u8]),
        blob: String,
    ) -> Result<ClaimOutcome, TierError> {
        let key = claim.task.key.clone();
        let head = match head {
            [] => None,
            head => {
                let what = format!("the head of sequence {} of model '{}' is unreadable", key.id, key.model);
                let address = self.link.address().shown.clone();
                Some(Arc::new(StateHead::decode(head).ok_or(TierError::Refused { address, what })?))
            }
        };
        let since = (self.next)(head.as_ref().map_or(0, |head| head.incarnation));
        self.tier.hold(key, HeldRecord { epoch, since, head: head.clone(), blob });
        let counts = self.tier.counts();
        counts.claimed.fetch_add(1, Ordering::Relaxed);
        if claim.node.is_some() {
            counts.taken_over.fetch_add(1, Ordering::Relaxed);
        }
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        let ended = EndedState::decode(end).map(|(_, ended)| ended).filter(|_| head.is_none());
        Ok(ClaimOutcome::Held { head, incarnation: since, left, ended })
    }
}
