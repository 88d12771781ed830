//! Takes sequences over, on one thread for all models. Claims that arrive together are sent together. A sequence of another live server is
//! asked for until that server has given it up, or until the time is over.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::held_records::HeldRecord;
use super::host::handover_wait;
use super::keys;
use super::lease::LeaseClock;
use super::link::{Bundle, RedisLink};
use super::scripts::{ClaimAnswer, RecordScript};
use super::shared_tier::SharedTier;
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
#[derive(Debug, Default, Clone)]
pub(super) struct Claims(Arc<ClaimQueue>);

/// Sequences that may belong to this server in Redis although no model has them, each with the epoch in which the tier held it then.
type AstrayKeys = HashMap<TierKey, Option<u64>>;

#[derive(Debug, Default)]
struct ClaimQueue {
    queued: Mutex<QueuedClaims>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct QueuedClaims {
    tasks: VecDeque<ClaimTask>,
    astray: AstrayKeys,
    closed: bool,
}

/// Maximum number of claims in one bundle.
const CLAIM_PORTION: usize = 256;
/// The wait before the next attempt for a sequence of another server is the time that has passed since the claim began, divided by this, within
/// the bounds below.
const RETRY_WAIT_DIVISOR: u32 = 8;
const MIN_RETRY_WAIT: Duration = Duration::from_millis(1);
const MAX_RETRY_WAIT: Duration = Duration::from_millis(50);
/// Time after which the other server is asked again, if it did not hear it.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Time after which Redis is asked again to free sequences that are astray.
const FREE_AGAIN: Duration = Duration::from_millis(250);

/// A claim that was not decided yet.
struct WaitingClaim {
    task: ClaimTask,
    since: Instant,
    next: Instant,
    asked: Option<Instant>,
    /// The node that has the sequence.
    node: Option<String>,
    /// Whether the sequence may belong to this server already.
    may_be_ours: bool,
}

impl Claims {
    pub(super) fn push(&self, task: ClaimTask) {
        let mut queued = self.0.queued.lock();
        if queued.closed {
            drop(queued);
            return (task.done)(Err(TierError::Closed.into()));
        }
        queued.tasks.push_back(task);
        drop(queued);
        self.0.added.notify_one();
    }

    /// Frees a sequence that no model here has, if it belongs to this server in Redis. `epoch` is that in which the tier holds it. Does nothing
    /// if the sequence has been claimed since.
    pub(super) fn disown(&self, key: TierKey, epoch: Option<u64>) {
        self.0.queued.lock().astray.insert(key, epoch);
        self.0.added.notify_one();
    }

    pub(super) fn close(&self) {
        self.0.queued.lock().closed = true;
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
        Box::new(move || {
            let (waiting, astray, freed) = (Vec::new(), AstrayKeys::new(), Instant::now());
            ClaimThread { tier, lease, link, next, waiting, astray, freed }.run(&queue);
        })
    }
}

impl ClaimQueue {
    /// New tasks, once there are any or this time has come. `None` once the queue is closed.
    fn next(&self, until: Option<Instant>) -> Option<(VecDeque<ClaimTask>, AstrayKeys)> {
        let mut queued = self.queued.lock();
        while queued.tasks.is_empty() && queued.astray.is_empty() && !queued.closed {
            match until {
                None => self.added.wait(&mut queued),
                Some(until) => {
                    if self.added.wait_until(&mut queued, until).timed_out() {
                        break;
                    }
                }
            }
        }
        let closed = queued.closed;
        (!closed).then(|| (std::mem::take(&mut queued.tasks), std::mem::take(&mut queued.astray)))
    }
}

struct ClaimThread {
    tier: Arc<SharedTier>,
    lease: Arc<LeaseClock>,
    link: RedisLink,
    next: Box<NextIncarnation>,
    waiting: Vec<WaitingClaim>,
    astray: AstrayKeys,
    /// When Redis is asked again to free what is astray.
    freed: Instant,
}

impl ClaimThread {
    fn run(mut self, queue: &ClaimQueue) {
        loop {
            let frees = (!self.astray.is_empty()).then_some(self.freed);
            let due = self.waiting.iter().map(|claim| claim.next).chain(frees).min();
            let Some((tasks, astray)) = queue.next(due) else { break };
            if self.astray.is_empty() {
                self.freed = Instant::now();
            }
            self.astray.extend(astray);
            let now = Instant::now();
            let claim =
                |task| WaitingClaim { task, since: now, next: now, asked: None, node: None, may_be_ours: false };
            self.waiting.extend(tasks.into_iter().map(claim));
            self.try_due(now);
            self.free_astray(now);
        }
        let left = std::mem::take(&mut queue.queued.lock().tasks);
        let waiting = self.waiting.into_iter().map(|claim| claim.task);
        left.into_iter().chain(waiting).for_each(|task| (task.done)(Err(TierError::Closed.into())));
    }

    // === sequences that belong to this server, and that no model has ===

    /// Frees some sequences that are astray. Runs on this thread, because no claim of theirs may be under way meanwhile.
    fn free_astray(&mut self, now: Instant) {
        if self.astray.is_empty() || now < self.freed {
            return;
        }
        let waiting: HashSet<&TierKey> = self.waiting.iter().map(|claim| &claim.task.key).collect();
        let tier = &self.tier;
        // A claim that waits decides it. A claim that was decided since has another epoch.
        self.astray.retain(|key, epoch| !waiting.contains(key) && tier.held.epoch_of(key) == *epoch);
        let portion: Vec<TierKey> = self.astray.keys().take(CLAIM_PORTION).cloned().collect();
        let (mut bundle, owned) = (Bundle::new(), keys::owned(&tier.run));
        for key in &portion {
            if let Some(epoch) = self.astray.insert(key.clone(), None).flatten() {
                tier.held.lose(key, epoch);
            }
            bundle.script(
                RecordScript::Disown,
                &[&keys::record(key), owned.as_bytes()],
                &[tier.run.as_bytes(), &key.encode(), tier.next_number().as_bytes()],
            );
        }
        match self.link.send(&bundle) {
            Ok(_) => portion.iter().for_each(|key| _ = self.astray.remove(key)),
            Err(error) => {
                tracing::debug!(%error, "sequences that no model of this server has are not freed yet");
                self.freed = now + FREE_AGAIN;
            }
        }
    }

    // === claims ===

    fn try_due(&mut self, now: Instant) {
        let mut due: Vec<WaitingClaim> = self.waiting.extract_if(.., |claim| claim.next <= now).collect();
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(CLAIM_PORTION));
            let portion = std::mem::replace(&mut due, rest);
            self.try_portion(portion);
        }
    }

    fn try_portion(&mut self, portion: Vec<WaitingClaim>) {
        let lost = self.lease.lost();
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
            Err(error) => portion.into_iter().for_each(|claim| {
                self.astray.insert(claim.task.key.clone(), None);
                (claim.task.done)(Err(error.clone().into()));
            }),
            Ok(answers) => {
                for (claim, answer) in portion.into_iter().zip(answers) {
                    self.decide(claim, answer, lost, &mut asks);
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
                &[&keys::record(key), owned.as_bytes(), &keys::end(key), keys::RECORD_EPOCH.as_bytes()],
                &[run.as_bytes(), begins, &key.encode(), self.tier.next_number().as_bytes()],
            );
        }
        let answers = self.link.send(&bundle)?;
        Ok(answers.iter().map(|a| ClaimAnswer::read(a).ok_or_else(|| self.link.unexpected(a))).collect())
    }

    /// `lost`: how often the lease had been lost before the claim was sent.
    fn decide(
        &mut self,
        mut claim: WaitingClaim,
        answer: Result<ClaimAnswer, TierError>,
        lost: u64,
        asks: &mut Bundle,
    ) {
        match answer {
            Err(error) => {
                self.astray.insert(claim.task.key.clone(), None);
                (claim.task.done)(Err(error.into()));
            }
            Ok(ClaimAnswer::None { end }) => {
                let ended = EndedState::decode(&end).map(|(_, ended)| ended);
                (claim.task.done)(Ok(ClaimOutcome::Unknown { ended }));
            }
            Ok(ClaimAnswer::Held { epoch, left, head, blob, end }) => {
                match self.hold(&claim, (epoch, left), (&head, &end), blob, lost) {
                    Ok(Some(outcome)) => (claim.task.done)(Ok(outcome)),
                    Ok(None) => self.claim_again(claim),
                    Err(error) => {
                        self.astray.insert(claim.task.key.clone(), None);
                        (claim.task.done)(Err(error.into()));
                    }
                }
            }
            Ok(ClaimAnswer::Late) => self.claim_again(claim),
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

    /// The lease ended before the answer came. So another server may have the sequence since.
    fn claim_again(&mut self, mut claim: WaitingClaim) {
        claim.may_be_ours = true;
        let failure = ClaimFailure::NoLease { address: self.link.address().shown.clone() };
        self.wait_on(claim, self.lease.lease(), &failure);
    }

    /// Tries a claim again later, or ends it with this failure if it has waited this long.
    fn wait_on(&mut self, mut claim: WaitingClaim, patience: Duration, failure: &ClaimFailure) {
        let now = Instant::now();
        let waited = now.duration_since(claim.since);
        if waited >= patience {
            if claim.may_be_ours {
                self.astray.insert(claim.task.key.clone(), None);
            }
            return (claim.task.done)(Err(failure.clone()));
        }
        claim.next = now + (waited / RETRY_WAIT_DIVISOR).clamp(MIN_RETRY_WAIT, MAX_RETRY_WAIT);
        self.waiting.push(claim);
    }

    /// `None`: the lease has ended meanwhile.
    fn hold(
        &self,
        claim: &WaitingClaim,
        (epoch, left): (u64, i64),
        (head, end): (&[u8], &[u8]),
        blob: String,
        lost: u64,
    ) -> Result<Option<ClaimOutcome>, TierError> {
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
        if !self.tier.held.hold(
            key,
            HeldRecord { epoch, since, head: head.clone(), blob, is_unsure: false },
            &self.lease,
            lost,
        ) {
            return Ok(None);
        }
        let counts = &self.tier.counts;
        counts.claimed.fetch_add(1, Ordering::Relaxed);
        if claim.node.is_some() {
            counts.taken_over.fetch_add(1, Ordering::Relaxed);
        }
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        let ended = EndedState::decode(end).map(|(_, ended)| ended).filter(|_| head.is_none());
        Ok(Some(ClaimOutcome::Held { head, incarnation: since, left, ended }))
    }
}
