//! The guests of one version. A free guest takes the next request. If no guest is free, requests wait in order.
//!
//! A request that finds no free guest starts one, up to a maximum. If the engine has no capacity for it, the request waits for another
//! guest of this version. There is always one to wait for, or one can start: each version owns the room of its first guest
//! ([`sequor_wasm::room`]). So a guest ends before its place here becomes free.
//!
//! Guests stay for later requests. Guests that are unused for a while end, except one.

use std::collections::VecDeque;
use std::fmt;

use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::instances::ReplacedGuests;
use tokio::sync::oneshot;

use crate::sync::Mutex;

type StartGuest<G> = dyn Fn() -> Result<G, CallError> + Send + Sync;

/// Identical guests, and the requests that wait for one.
pub(super) struct GuestQueue<G> {
    start: Box<StartGuest<G>>,
    is_spent: fn(&mut G) -> bool,
    size: usize,
    state: Mutex<QueueState<G>>,
}

struct QueueState<G> {
    /// Free guests. The most recently used one is last.
    free: Vec<G>,
    /// Number of guests at the front of `free` that were not used since the last [`GuestQueue::release_unused`].
    unused: usize,
    /// Number of guests that are free, in use or about to start.
    live: usize,
    waiting: VecDeque<oneshot::Sender<TurnGrant<G>>>,
    replaced: ReplacedGuests,
}

/// What a waiting request is handed in its turn.
enum TurnGrant<G> {
    Guest(G),
    /// The right to start a guest.
    Start,
}

/// A waiting request. If it is dropped after it was handed something, that goes to the next request.
struct WaitingRequest<'a, G> {
    queue: &'a GuestQueue<G>,
    handed: oneshot::Receiver<TurnGrant<G>>,
}

/// A guest for one call. If it is dropped without [`GuestTurn::give_back`], the guest ends and another one may take its place.
pub(super) struct GuestTurn<'a, G> {
    guest: G,
    place: TurnPlace<'a, G>,
}

/// The place of a guest that is in use or about to start. On drop, it returns the guest to the queue. Without a guest it frees the place.
struct TurnPlace<'a, G> {
    queue: &'a GuestQueue<G>,
    back: Option<G>,
    /// Whether the caller keeps the place.
    is_kept: bool,
}

impl<G> GuestQueue<G> {
    /// Makes a queue without guests. `size` is at least 1. A guest for which `is_spent` returns true is not used again.
    pub(super) fn new(
        size: usize,
        start: impl Fn() -> Result<G, CallError> + Send + Sync + 'static,
        is_spent: fn(&mut G) -> bool,
    ) -> GuestQueue<G> {
        let (free, waiting, replaced) = (Vec::new(), VecDeque::new(), ReplacedGuests::default());
        let state = Mutex::new(QueueState { free, unused: 0, live: 0, waiting, replaced });
        GuestQueue { start: Box::new(start), is_spent, size: size.max(1), state }
    }

    /// Gets a guest for one call. Waits for its turn if all guests are in use.
    pub(super) async fn turn(&self) -> Result<GuestTurn<'_, G>, CallError> {
        let mut next = self.take();
        loop {
            let handed = match next {
                Ok(handed) => handed,
                Err(request) => request.handed().await?,
            };
            match handed {
                TurnGrant::Guest(guest) => return Ok(GuestTurn { guest, place: TurnPlace::new(self) }),
                TurnGrant::Start => match self.started() {
                    Ok(turn) => return Ok(turn),
                    Err(error) if error.fault == CallFault::Full => next = self.take_another(),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Guests that did not stay after a call.
    pub(super) fn replaced(&self) -> ReplacedGuests {
        self.state.lock().replaced
    }

    /// Adds a guest that has started before any request arrives.
    pub(super) fn add(&self, guest: G) {
        let mut state = self.state.lock();
        state.live += 1;
        state.free.push(guest);
    }

    /// Takes a free guest, or the right to start one. If there is neither, the error is a request at the end of the queue.
    fn take(&self) -> Result<TurnGrant<G>, WaitingRequest<'_, G>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            if let Some(guest) = state.pop_free() {
                return Ok(TurnGrant::Guest(guest));
            }
            if state.live < self.size {
                state.live += 1;
                return Ok(TurnGrant::Start);
            }
        }
        let (sender, handed) = oneshot::channel();
        state.waiting.push_back(sender);
        Err(WaitingRequest { queue: self, handed })
    }

    /// Starts a guest. If the engine has no capacity, the caller keeps the right to start one.
    fn started(&self) -> Result<GuestTurn<'_, G>, CallError> {
        let mut place = TurnPlace::new(self);
        match (self.start)() {
            Ok(guest) => Ok(GuestTurn { guest, place }),
            Err(error) => {
                place.is_kept = error.fault == CallFault::Full;
                Err(error)
            }
        }
    }

    /// Gives up the right to start a guest, because the engine has no capacity. Returns a free guest, or a request at the front of the queue.
    /// If the other guests have ended meanwhile, there is room for one now, and the caller keeps that right.
    fn take_another(&self) -> Result<TurnGrant<G>, WaitingRequest<'_, G>> {
        let mut state = self.state.lock();
        if let Some(guest) = state.pop_free() {
            state.live -= 1;
            return Ok(TurnGrant::Guest(guest));
        }
        if state.live == 1 {
            return Ok(TurnGrant::Start);
        }
        state.live -= 1;
        let (sender, handed) = oneshot::channel();
        state.waiting.push_front(sender);
        Err(WaitingRequest { queue: self, handed })
    }

    /// Hands a free guest to the next request. If there may be more guests, the request behind it may start one.
    fn hand_on(&self, mut guest: G) {
        loop {
            let mut state = self.state.lock();
            let Some(next) = state.waiting.pop_front() else {
                state.free.push(guest);
                return;
            };
            drop(state);
            match next.send(TurnGrant::Guest(guest)) {
                Ok(()) => return self.offer_start(),
                Err(TurnGrant::Guest(back)) => guest = back,
                Err(TurnGrant::Start) => return,
            }
        }
    }

    /// Ends the guests that were not used since the last call. One guest always stays.
    pub(super) fn release_unused(&self) {
        self.release(|state| state.unused);
    }

    /// Ends the free guests. One guest always stays.
    pub(super) fn release_free(&self) {
        self.release(|state| state.free.len());
    }

    fn release(&self, count: impl FnOnce(&QueueState<G>) -> usize) {
        let mut state = self.state.lock();
        let count = count(&state).min(state.live.saturating_sub(1)).min(state.free.len());
        let ended: Vec<G> = state.free.drain(..count).collect();
        state.unused = state.free.len();
        drop(state);
        for guest in ended {
            drop(guest);
            self.leave();
        }
    }

    /// Frees the place of a guest that ended.
    fn leave(&self) {
        self.state.lock().live -= 1;
        self.offer_start();
    }

    /// Lets the next request start a guest, if the maximum is not reached.
    fn offer_start(&self) {
        loop {
            let mut state = self.state.lock();
            if state.live >= self.size {
                return;
            }
            let Some(next) = state.waiting.pop_front() else { return };
            state.live += 1;
            drop(state);
            if next.send(TurnGrant::Start).is_ok() {
                return;
            }
            self.state.lock().live -= 1;
        }
    }
}

impl<G> QueueState<G> {
    fn pop_free(&mut self) -> Option<G> {
        let guest = self.free.pop();
        self.unused = self.unused.min(self.free.len());
        guest
    }
}

impl<G> WaitingRequest<'_, G> {
    async fn handed(mut self) -> Result<TurnGrant<G>, CallError> {
        // The sender is dropped only with the queue.
        (&mut self.handed).await.map_err(|_| {
            let what = "the plug-in's instances are gone".to_owned();
            CallError { fault: CallFault::Full, what }
        })
    }
}

impl<G> Drop for WaitingRequest<'_, G> {
    fn drop(&mut self) {
        self.handed.close();
        match self.handed.try_recv() {
            Ok(TurnGrant::Guest(guest)) => self.queue.hand_on(guest),
            Ok(TurnGrant::Start) => self.queue.leave(),
            Err(_) => {}
        }
    }
}

impl<G> GuestTurn<'_, G> {
    pub(super) fn guest(&mut self) -> &mut G {
        &mut self.guest
    }

    /// Returns the guest after a call that did not fail.
    pub(super) fn give_back(self) {
        let GuestTurn { mut guest, mut place } = self;
        if (place.queue.is_spent)(&mut guest) {
            drop(guest);
            place.queue.state.lock().replaced.spent += 1;
        } else {
            place.back = Some(guest);
        }
        drop(place);
    }

    /// Ends the guest after a call that failed.
    pub(super) fn end_failed(self) {
        self.place.queue.state.lock().replaced.failed += 1;
    }
}

impl<'a, G> TurnPlace<'a, G> {
    fn new(queue: &'a GuestQueue<G>) -> TurnPlace<'a, G> {
        TurnPlace { queue, back: None, is_kept: false }
    }
}

impl<G> Drop for TurnPlace<'_, G> {
    fn drop(&mut self) {
        match self.back.take() {
            Some(guest) => self.queue.hand_on(guest),
            None if self.is_kept => {}
            None => self.queue.leave(),
        }
    }
}

impl<G> fmt::Debug for GuestQueue<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("GuestQueue").field("live", &state.live).field("waiting", &state.waiting.len()).finish()
    }
}

impl<G> fmt::Debug for GuestTurn<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestTurn").field("queue", self.place.queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Waker};

    use sequor_wasm::room::{GuestRoom, RoomPurpose, RoomTicket};

    use super::*;

    /// Guests numbered in the order of their starts, while there is capacity. Guest 99 is spent.
    fn numbered(size: usize, first: u32, room: u32) -> (GuestQueue<u32>, Arc<AtomicU32>) {
        let (room, next) = (Arc::new(AtomicU32::new(room)), AtomicU32::new(first));
        let of_start = Arc::clone(&room);
        let start = move || {
            let has_room = of_start.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| room.checked_sub(1));
            let full = |_| CallError { fault: CallFault::Full, what: "no room".to_owned() };
            has_room.map(|_| next.fetch_add(1, Ordering::SeqCst)).map_err(full)
        };
        (GuestQueue::new(size, start, |n| *n == 99), room)
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn number(turn: Option<Result<GuestTurn<'_, u32>, CallError>>) -> (u32, GuestTurn<'_, u32>) {
        let mut turn = turn.expect("a turn").expect("a guest");
        (*turn.guest(), turn)
    }

    #[test]
    fn requests_wait_in_their_order_for_a_guest() {
        let (queue, _) = numbered(2, 0, 9);
        let (_, first) = number(poll(pin!(queue.turn())));
        let (_, second) = number(poll(pin!(queue.turn())));
        let (mut third, mut fourth) = (pin!(queue.turn()), pin!(queue.turn()));
        assert!(poll(third.as_mut()).is_none() && poll(fourth.as_mut()).is_none());
        second.give_back();
        assert!(poll(fourth.as_mut()).is_none(), "the third is in front of it");
        let (n, third) = number(poll(third.as_mut()));
        assert_eq!(n, 1);
        drop(third);
        let (n, fourth) = number(poll(fourth.as_mut()));
        assert_eq!(n, 2, "another guest takes the place of one that was dropped");
        fourth.give_back();
        first.give_back();
    }

    #[test]
    fn a_guest_handed_to_a_dropped_request_is_passed_to_the_next_request() {
        let (queue, _) = numbered(1, 0, 9);
        let (_, first) = number(poll(pin!(queue.turn())));
        let mut gone = Box::pin(queue.turn());
        let mut last = pin!(queue.turn());
        assert!(poll(gone.as_mut()).is_none() && poll(last.as_mut()).is_none());
        first.give_back();
        drop(gone);
        let (n, last) = number(poll(last.as_mut()));
        assert_eq!(n, 0);
        let mut gone = Box::pin(queue.turn());
        assert!(poll(gone.as_mut()).is_none());
        drop(last);
        drop(gone);
        let (n, _turn) = number(poll(pin!(queue.turn())));
        assert_eq!(n, 1, "the right to start a guest is not lost");
    }

    #[test]
    fn without_room_in_the_engine_a_request_waits_for_a_guest_of_its_version() {
        let (queue, room) = numbered(8, 0, 1);
        let (_, first) = number(poll(pin!(queue.turn())));
        let (mut second, mut third) = (pin!(queue.turn()), pin!(queue.turn()));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        // The second gets the guest, and the third may try to start one.
        room.store(1, Ordering::SeqCst);
        first.give_back();
        let [(a, second), (b, third)] = [poll(second.as_mut()), poll(third.as_mut())].map(number);
        assert_eq!([a, b], [0, 1]);
        second.give_back();
        third.give_back();
    }

    /// A guest that holds its room until it is dropped.
    struct Roomy(#[allow(dead_code, reason = "only its drop matters")] RoomTicket);

    #[test]
    fn a_version_whose_room_others_want_always_starts_a_first_guest() {
        let room = GuestRoom::new(3);
        let share = Arc::new(room.open(1, RoomPurpose::New).unwrap());
        let starts = Arc::clone(&share);
        let start = move || Ok(Roomy(starts.ticket()?));
        let queue = GuestQueue::new(8, start, |_| true);
        let other = room.open(1, RoomPurpose::New).unwrap();
        let others = [other.ticket().unwrap(), other.ticket().unwrap()];
        assert_eq!(room.usage().free, 0);
        let first = poll(pin!(queue.turn())).unwrap().unwrap();
        let (mut second, mut third) = (pin!(queue.turn()), pin!(queue.turn()));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        // Each guest is spent, or traps, while no other one may start. The next request starts one in its room.
        first.give_back();
        let second = poll(second.as_mut()).unwrap().unwrap();
        assert!(poll(third.as_mut()).is_none());
        drop(second);
        poll(third.as_mut()).unwrap().unwrap().give_back();
        drop(others);
        assert_eq!((queue.state.lock().live, room.usage().further), (0, 0));
    }

    #[test]
    fn guests_that_are_not_used_from_one_look_to_the_next_end_but_for_one() {
        let (queue, _) = numbered(8, 0, 20);
        let use_at_once = |count: usize| {
            let turns: Vec<_> = (0..count).map(|_| number(poll(pin!(queue.turn()))).1).collect();
            turns.into_iter().for_each(GuestTurn::give_back);
            queue.state.lock().live
        };
        let look = || {
            queue.release_unused();
            queue.state.lock().live
        };
        assert_eq!((use_at_once(5), look()), (5, 5), "they were used since the last look");
        assert_eq!((use_at_once(2), look()), (5, 2));
        assert_eq!((look(), look()), (1, 1));
        assert_eq!(use_at_once(3), 3);
        let (_, called) = number(poll(pin!(queue.turn())));
        assert_eq!((look(), look()), (3, 1), "that one is called");
        called.give_back();
        assert_eq!(use_at_once(4), 4);
        queue.release_free();
        assert_eq!(queue.state.lock().live, 1, "they are used, and others need their room");
    }

    #[test]
    fn a_spent_guest_makes_place_for_another() {
        let (queue, _) = numbered(1, 99, 9);
        let (n, turn) = number(poll(pin!(queue.turn())));
        turn.give_back();
        assert_eq!(n, 99);
        let (n, turn) = number(poll(pin!(queue.turn())));
        turn.give_back();
        assert_eq!(n, 100);
        assert_eq!(queue.replaced(), ReplacedGuests { spent: 1, failed: 0 });
        number(poll(pin!(queue.turn()))).1.end_failed();
        let (n, turn) = number(poll(pin!(queue.turn())));
        turn.give_back();
        assert_eq!((n, queue.replaced()), (101, ReplacedGuests { spent: 1, failed: 1 }));
    }
}
