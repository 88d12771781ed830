//! The ids of a model's sequences that this server owns, takes over or gives up.
//!
//! ```text
//!          claimed      wanted elsewhere        written
//!                       or unused
//! Claiming ─────────▶ Held ─────────────────▶ Yielding ────────▶ Releasing ──▶ (gone)
//!  ▲ ▲  └▶ (gone)                                │                  │
//!  │ └──────────────────── stays ────────────────┘                  │
//!  └────────────────── requests wait ───────────────────────────────┘
//! ```
//!
//! Requests of an id in any stage but `Held` wait in its queue, in the order of their arrival. A request of a `Held` id goes on to the table;
//! until it is there, the id is not given up.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_core::{Id, Time};

use crate::model::load::SequenceStore;
use crate::sync::{AtomicBool, AtomicU64, Mutex};

use super::deferred_request::DeferredRequest;
use super::look_times::LookTimes;

#[derive(Debug)]
enum GateStage {
    Held {
        period: HeldPeriod,
        /// Requests of this period on their way to the table.
        entering: u32,
    },
    Claiming(GateQueue),
    Yielding {
        queue: GateQueue,
        /// Whether its instance was asked for its state.
        asked: bool,
        /// `None` if no other server wants it.
        looks: Option<LookTimes>,
    },
    Releasing(GateQueue),
}

/// The number of a time in which this server holds an id. If it loses the id and claims it again, requests of the first period may still be on
/// their way to the table. They are not those of the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model::sequences) struct HeldPeriod(u64);

/// The requests of an id that wait, each with its number. The numbers ascend, so a request is found by binary search.
type GateQueue = VecDeque<(u64, Box<DeferredRequest>)>;

/// The sequences of one model that this server shares with others.
#[derive(Debug)]
pub(in crate::model::sequences) struct SequenceGate {
    store: Arc<SequenceStore>,
    /// Whether the model has had a load with durable sequences. Requests of other models skip the gate.
    is_active: AtomicBool,
    ids: Mutex<HashMap<Id, GateStage>>,
    /// Ids whose sequences have ended, until they are released.
    unused: Mutex<Vec<Id>>,
    /// The number of the next request that waits, or of the next period. Given under the lock of `ids`.
    next: AtomicU64,
}

/// The place of a request in the queue of its id.
#[derive(Debug)]
pub(in crate::model) struct GatePlace {
    gate: Arc<SequenceGate>,
    id: Id,
    number: u64,
}

impl GatePlace {
    pub(in crate::model::sequences) fn new(gate: &Arc<SequenceGate>, id: Id, number: u64) -> GatePlace {
        GatePlace { gate: Arc::clone(gate), id, number }
    }

    /// Takes the request out of the queue, if it still waits there, and drops it. The tensors of a client that has gone must not stay until
    /// the claim ends, because no limit counts them any more.
    pub(in crate::model::sequences) fn leave(&self) {
        drop(self.gate.take(&self.id, self.number));
    }
}

/// Whether a request passes the gate.
pub(in crate::model::sequences) enum AtGate<R> {
    /// This server owns its sequence. [`SequenceGate::entered`] must follow.
    Open(R, HeldPeriod),
    /// It waits, with this number.
    Waits(u64),
    /// It waits, with this number, and the sequence must be claimed.
    Claims(u64),
}

/// What follows once a claim is decided.
pub(in crate::model::sequences) enum AfterClaim {
    /// This request goes to the table.
    Next(Box<DeferredRequest>),
    /// The next request begins a sequence, so the id must be claimed for that.
    Begins,
    /// No request waits any more.
    Done,
}

/// Whether an id can be given up, before its table is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model::sequences) enum HandoverGate {
    /// This server does not own the id, or is releasing it already.
    Gone,
    /// A claim is under way, a request is on its way to the table, or the next look is not due yet.
    Busy,
    /// No request can reach the table. `asked`: whether the instance was asked for its state.
    Closed { asked: bool },
}

impl GateStage {
    fn queue(&mut self) -> Option<&mut GateQueue> {
        match self {
            GateStage::Held { .. } => None,
            GateStage::Claiming(queue) | GateStage::Yielding { queue, .. } | GateStage::Releasing(queue) => Some(queue),
        }
    }
}

impl SequenceGate {
    pub(in crate::model::sequences) fn new(store: Arc<SequenceStore>) -> SequenceGate {
        let (is_active, ids, unused) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        SequenceGate { store, is_active, ids, unused, next: AtomicU64::new(0) }
    }

    pub(in crate::model::sequences) fn store(&self) -> &Arc<SequenceStore> {
        &self.store
    }

    pub(in crate::model::sequences) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    pub(in crate::model::sequences) fn activate(&self) {
        self.is_active.store(true, Ordering::Release);
    }

    // === requests ===

    /// Lets a request through, or queues the deferred request that `defer` makes of it.
    pub(in crate::model::sequences) fn enter<R>(
        &self,
        id: &Id,
        request: R,
        defer: impl FnOnce(R) -> DeferredRequest,
    ) -> AtGate<R> {
        let mut ids = self.ids.lock();
        match ids.get_mut(id) {
            Some(GateStage::Held { period, entering }) => {
                *entering += 1;
                AtGate::Open(request, *period)
            }
            Some(stage) => {
                let number = self.next_number();
                if let Some(queue) = stage.queue() {
                    queue.push_back((number, Box::new(defer(request))));
                }
                AtGate::Waits(number)
            }
            None => {
                let number = self.next_number();
                let queue = VecDeque::from([(number, Box::new(defer(request)))]);
                ids.insert(id.clone(), GateStage::Claiming(queue));
                AtGate::Claims(number)
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The stage of an id that this server holds from now on.
    fn held_now(&self) -> GateStage {
        GateStage::Held { period: HeldPeriod(self.next_number()), entering: 0 }
    }

    /// Takes the request with this number out of the queue of its id, if it still waits.
    fn take(&self, id: &Id, number: u64) -> Option<Box<DeferredRequest>> {
        let mut ids = self.ids.lock();
        let queue = ids.get_mut(id)?.queue()?;
        let at = queue.binary_search_by_key(&number, |(of, _)| *of).ok()?;
        queue.remove(at).map(|(_, request)| request)
    }

    /// Begins a claim without a request. Returns false if this server owns the sequence, or if a claim or a release of it is under way.
    pub(in crate::model::sequences) fn enter_without_request(&self, id: &Id) -> bool {
        let mut ids = self.ids.lock();
        let is_new = !ids.contains_key(id);
        if is_new {
            ids.insert(id.clone(), GateStage::Claiming(VecDeque::new()));
        }
        is_new
    }

    /// Whether a claim of this id is under way.
    pub(in crate::model::sequences) fn is_claimed(&self, id: &Id) -> bool {
        matches!(self.ids.lock().get(id), Some(GateStage::Claiming(_)))
    }

    /// Whether this server owns the sequence of this id, or is about to give it up.
    pub(in crate::model::sequences) fn owns(&self, id: &Id) -> bool {
        self.ids.lock().contains_key(id)
    }

    /// Notes that a request that was let through in this period is in the table, or was refused.
    pub(in crate::model::sequences) fn entered(&self, id: &Id, of: HeldPeriod) {
        match self.ids.lock().get_mut(id) {
            Some(GateStage::Held { period, entering }) if *period == of => *entering = entering.saturating_sub(1),
            // The id was lost meanwhile.
            _ => {}
        }
    }

    // === claims ===

    /// The next request after a claim. If this server owns the sequence, the id is `Held` once no request waits.
    pub(in crate::model::sequences) fn after_claim(&self, id: &Id, is_held: bool) -> AfterClaim {
        let mut ids = self.ids.lock();
        let Some(GateStage::Claiming(queue)) = ids.get_mut(id) else { return AfterClaim::Done };
        if !is_held && queue.front().is_some_and(|(_, next)| next.request.sequence.start) {
            return AfterClaim::Begins;
        }
        if let Some((_, next)) = queue.pop_front() {
            return AfterClaim::Next(next);
        }
        if is_held {
            ids.insert(id.clone(), self.held_now());
        } else {
            ids.remove(id);
        }
        AfterClaim::Done
    }

    /// Ends a claim that has failed. Returns the requests that waited for it.
    pub(in crate::model::sequences) fn claim_failed(&self, id: &Id) -> Vec<DeferredRequest> {
        let mut ids = self.ids.lock();
        let Some(GateStage::Claiming(queue)) = ids.get_mut(id) else { return Vec::new() };
        let queue = std::mem::take(queue);
        ids.remove(id);
        queue.into_iter().map(|(_, request)| *request).collect()
    }

    // === giving up ===

    /// Keeps further requests of an id waiting, because another server wants its sequence.
    pub(in crate::model::sequences) fn close(&self, id: &Id, now: Time) -> HandoverGate {
        let mut ids = self.ids.lock();
        match ids.get_mut(id) {
            None | Some(GateStage::Releasing(_)) => HandoverGate::Gone,
            Some(GateStage::Claiming(_)) => HandoverGate::Busy,
            Some(GateStage::Yielding { asked, looks, .. }) => {
                let is_due = looks.get_or_insert(LookTimes::new(now)).is_due(now);
                if is_due { HandoverGate::Closed { asked: *asked } } else { HandoverGate::Busy }
            }
            Some(GateStage::Held { entering: 1.., .. }) => HandoverGate::Busy,
            Some(stage) => {
                let mut looks = LookTimes::new(now);
                looks.is_due(now);
                *stage = GateStage::Yielding { queue: VecDeque::new(), asked: false, looks: Some(looks) };
                HandoverGate::Closed { asked: false }
            }
        }
    }

    /// Keeps further requests of an id waiting, to see whether it has a sequence. Does nothing and returns false unless the id is `Held` and no request is on its way.
    pub(in crate::model::sequences) fn try_close(&self, id: &Id) -> bool {
        let mut ids = self.ids.lock();
        let Some(stage @ GateStage::Held { entering: 0, .. }) = ids.get_mut(id) else { return false };
        *stage = GateStage::Yielding { queue: VecDeque::new(), asked: false, looks: None };
        true
    }

    /// Records whether the instance was asked for the state of an id that is given up. Once it has replied, the next look is due.
    pub(in crate::model::sequences) fn set_asked(&self, id: &Id, is_asked: bool) {
        if let Some(GateStage::Yielding { asked, looks, .. }) = self.ids.lock().get_mut(id) {
            *asked = is_asked;
            if let Some(looks) = looks.as_mut().filter(|_| !is_asked) {
                looks.set_due();
            }
        }
    }

    /// Stops giving up an id. Its requests continue as after a claim.
    pub(in crate::model::sequences) fn reopen(&self, id: &Id) -> bool {
        self.move_on(id, |stage| match stage {
            GateStage::Yielding { queue, .. } => Some(GateStage::Claiming(queue)),
            _ => None,
        })
    }

    /// Notes that the record of an id that is given up is about to be released.
    pub(in crate::model::sequences) fn release(&self, id: &Id) -> bool {
        self.move_on(id, |stage| match stage {
            GateStage::Yielding { queue, .. } => Some(GateStage::Releasing(queue)),
            _ => None,
        })
    }

    /// Ends a release. If it failed, this server still owns the sequence. If requests wait that must claim it, returns whether the first of
    /// them is a START.
    pub(in crate::model::sequences) fn released(&self, id: &Id, has_failed: bool) -> Option<bool> {
        let mut ids = self.ids.lock();
        let Some(GateStage::Releasing(queue)) = ids.get_mut(id) else { return None };
        let queue = std::mem::take(queue);
        let begins = queue.front().map(|(_, first)| first.request.sequence.start);
        match begins {
            Some(_) => ids.insert(id.clone(), GateStage::Claiming(queue)),
            None if has_failed => ids.insert(id.clone(), self.held_now()),
            None => ids.remove(id),
        };
        begins
    }

    /// Forgets a sequence that another server owns now. If requests wait that must claim it, returns whether the first of them is a START.
    pub(in crate::model::sequences) fn lose(&self, id: &Id) -> Option<bool> {
        let mut ids = self.ids.lock();
        match ids.get_mut(id) {
            Some(GateStage::Held { .. }) => {
                ids.remove(id);
                None
            }
            Some(stage @ GateStage::Yielding { .. }) => {
                let queue = stage.queue().map(std::mem::take).unwrap_or_default();
                let begins = queue.front().map(|(_, first)| first.request.sequence.start);
                match begins {
                    Some(_) => ids.insert(id.clone(), GateStage::Claiming(queue)),
                    None => ids.remove(id),
                };
                begins
            }
            // The end of the release or of the claim follows.
            _ => None,
        }
    }

    fn move_on(&self, id: &Id, next: impl FnOnce(GateStage) -> Option<GateStage>) -> bool {
        let mut ids = self.ids.lock();
        let Some(stage @ GateStage::Yielding { .. }) = ids.get_mut(id) else { return false };
        let before = std::mem::replace(stage, self.held_now());
        match next(before) {
            Some(after) => {
                *stage = after;
                true
            }
            None => false,
        }
    }

    // === ids without a sequence ===

    /// Records ids whose sequences have ended here.
    pub(in crate::model::sequences) fn note_unused(&self, ids: Vec<Id>) {
        self.unused.lock().extend(ids);
    }

    pub(in crate::model::sequences) fn take_unused(&self) -> Vec<Id> {
        std::mem::take(&mut self.unused.lock())
    }

    /// The ids that this server owns.
    pub(in crate::model::sequences) fn held(&self) -> Vec<Id> {
        let ids = self.ids.lock();
        ids.iter().filter(|(_, stage)| matches!(stage, GateStage::Held { .. })).map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
#[path = "tests/sequence_gate.rs"]
mod tests;
