//! The guests of one owner. [`Single`]: one guest and one call at a time, for guests that keep state between calls. [`GuestPool`]: several
//! equal guests, any free one takes the next call.
//!
//! Both drop a guest whose call failed. A guest ends before its place becomes free, because another one may start in its room then.

use std::fmt;

use sequor_sync::{self as sync, Condvar, Mutex, MutexGuard};

use super::call_error::{CallError, CallFault};

/// One guest. Its owner makes one call at a time, for instance under a lock.
#[derive(Debug, Default)]
pub struct Single<G>(Option<G>);

impl<G> Single<G> {
    pub fn new(guest: G) -> Single<G> {
        Single(Some(guest))
    }

    /// The guest, unless a call of it has failed.
    pub fn guest(&self) -> Option<&G> {
        self.0.as_ref()
    }

    /// Makes one call. `None`: an earlier call failed, and the guest is gone.
    pub fn call<T>(&mut self, call: impl FnOnce(&mut G) -> Result<T, CallError>) -> Option<Result<T, CallError>> {
        let result = call(self.0.as_mut()?);
        if result.is_err() {
            self.0 = None;
        }
        Some(result)
    }
}

/// Guests of one owner that did not stay after a call, because another one should take their place.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedGuests {
    /// They used most of their memory.
    pub spent: u64,
    /// Their call failed.
    pub failed: u64,
}

/// Up to `size` guests, each started when a call finds no free one.
pub struct GuestPool<G> {
    start: Box<dyn Fn() -> Result<G, CallError> + Send + Sync>,
    is_spent: Box<dyn Fn(&mut G) -> bool + Send + Sync>,
    size: usize,
    state: Mutex<GuestPoolState<G>>,
    freed: Condvar,
}

struct GuestPoolState<G> {
    /// Free guests. The last one was used last.
    free: Vec<G>,
    /// Number of free guests, from the first, that were not used since the last [`GuestPool::release_unused`].
    unused: usize,
    /// Guests that are free or called.
    live: usize,
    replaced: ReplacedGuests,
}

impl<G> GuestPool<G> {
    /// A pool without guests yet; `size` is at least 1.
    pub fn new(size: usize, start: impl Fn() -> Result<G, CallError> + Send + Sync + 'static) -> GuestPool<G> {
        let replaced = ReplacedGuests::default();
        let state = Mutex::new(GuestPoolState { free: Vec::new(), unused: 0, live: 0, replaced });
        let is_spent = Box::new(|_: &mut G| false);
        GuestPool { start: Box::new(start), is_spent, size: size.max(1), state, freed: Condvar::new() }
    }

    /// Drops a guest after a call if `is_spent` holds, for instance because it uses most of its memory.
    #[must_use]
    pub fn recycling(self, is_spent: impl Fn(&mut G) -> bool + Send + Sync + 'static) -> GuestPool<G> {
        GuestPool { is_spent: Box::new(is_spent), ..self }
    }

    /// Makes one call with a free guest. Waits for one if all are in use.
    pub fn call<T>(&self, call: impl FnOnce(&mut G) -> Result<T, CallError>) -> Result<T, CallError> {
        let mut lease = self.lease()?;
        let result = call(lease.guest());
        match &result {
            Ok(_) => lease.give_back(),
            Err(_) => self.state.lock().replaced.failed += 1,
        }
        result
    }

    /// Guests that did not stay after a call of [`GuestPool::call`].
    pub fn replaced(&self) -> ReplacedGuests {
        self.state.lock().replaced
    }

    /// A free guest, for one call. Waits for one if all are in use.
    pub fn lease(&self) -> Result<GuestLease<'_, G>, CallError> {
        let mut free = self.free();
        loop {
            let mut place = PoolPlace { pool: self, guest: free, is_kept: false };
            let guest = match place.guest.take() {
                Some(guest) => guest,
                None => match (self.start)() {
                    Err(error) if error.fault == CallFault::Full => {
                        place.is_kept = true;
                        free = self.free_after_full();
                        continue;
                    }
                    started => started?,
                },
            };
            return Ok(GuestLease { guest, place });
        }
    }

    /// A free guest, after there was no room for another one. The caller gives up its place, and wakes no other caller: there is no room for
    /// that one either. `None`: the caller may try to start one again. If the other guests have ended meanwhile, it keeps its place.
    fn free_after_full(&self) -> Option<G> {
        let mut state = self.state.lock();
        if let Some(guest) = state.pop_free() {
            state.live -= 1;
            return Some(guest);
        }
        if state.live == 1 {
            return None;
        }
        state.live -= 1;
        // Then as every other call: another one may have started a guest in the freed place.
        self.free_in(sync::wait(&self.freed, state))
    }

    /// Ends the guests that were not used since the last call of this function. One stays.
    pub fn release_unused(&self) {
        self.release(|state| state.unused);
    }

    /// Ends the free guests. One stays.
    pub fn release_free(&self) {
        self.release(|state| state.free.len());
    }

    fn release(&self, count: impl FnOnce(&GuestPoolState<G>) -> usize) {
        let mut state = self.state.lock();
        let count = count(&state).min(state.live.saturating_sub(1)).min(state.free.len());
        let ended: Vec<G> = state.free.drain(..count).collect();
        state.unused = state.free.len();
        drop(state);
        for guest in ended {
            drop(guest);
            drop(PoolPlace { pool: self, guest: None, is_kept: false });
        }
    }

    /// Guests that are free or called.
    pub fn live(&self) -> usize {
        self.state.lock().live
    }

    /// A free guest. `None`: the caller may start one.
    fn free(&self) -> Option<G> {
        self.free_in(self.state.lock())
    }

    fn free_in(&self, mut state: MutexGuard<'_, GuestPoolState<G>>) -> Option<G> {
        loop {
            if let Some(guest) = state.pop_free() {
                return Some(guest);
            }
            if state.live < self.size {
                state.live += 1;
                return None;
            }
            state = sync::wait(&self.freed, state);
        }
    }
}

impl<G> GuestPoolState<G> {
    fn pop_free(&mut self) -> Option<G> {
        let guest = self.free.pop();
        self.unused = self.unused.min(self.free.len());
        guest
    }
}

impl<G> fmt::Debug for GuestPool<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestPool").field("size", &self.size).field("live", &self.live()).finish_non_exhaustive()
    }
}

/// A guest of a pool, for one call. If it is dropped without [`GuestLease::give_back`], the guest ends, and another one can start in its
/// place.
pub struct GuestLease<'a, G> {
    guest: G,
    place: PoolPlace<'a, G>,
}

impl<G> GuestLease<'_, G> {
    pub fn guest(&mut self) -> &mut G {
        &mut self.guest
    }

    /// Gives the guest back after a call that did not fail.
    pub fn give_back(self) {
        let GuestLease { mut guest, mut place } = self;
        if (place.pool.is_spent)(&mut guest) {
            drop(guest);
            place.pool.state.lock().replaced.spent += 1;
        } else {
            place.guest = Some(guest);
        }
        drop(place);
    }
}

impl<G> fmt::Debug for GuestLease<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestLease").field("pool", self.place.pool).finish_non_exhaustive()
    }
}

/// A place in the pool, held during a call. Its drop gives back the guest, or the place if there is no guest.
struct PoolPlace<'a, G> {
    pool: &'a GuestPool<G>,
    guest: Option<G>,
    /// Whether the caller keeps the place.
    is_kept: bool,
}

impl<G> Drop for PoolPlace<'_, G> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut state = self.pool.state.lock();
        match self.guest.take() {
            Some(guest) => state.free.push(guest),
            None => state.live -= 1,
        }
        drop(state);
        if !is_quiet() {
            self.pool.freed.notify_one();
        }
    }
}

/// A planted fault for the test of interleavings: waiting callers are not woken.
#[cfg(not(all(test, feature = "shuttle")))]
fn is_quiet() -> bool {
    false
}

#[cfg(all(test, feature = "shuttle"))]
use interleavings::is_quiet;

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::call_error::CallFault;
    use crate::room::{GuestRoom, RoomPurpose};

    std::thread_local! {
        /// The checker runs all threads of one run on the thread of its test.
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_quiet() -> bool {
        QUIET.get()
    }

    /// Four callers of two guests. Every third call fails and drops its guest.
    fn callers_share_two_guests() {
        let started = AtomicUsize::new(0);
        let start = move || Ok(started.fetch_add(1, Ordering::SeqCst));
        let (pool, called) = (Arc::new(GuestPool::new(2, start)), Arc::new([const { AtomicUsize::new(0) }; 2]));
        let caller = |n: usize| {
            let (pool, called) = (Arc::clone(&pool), Arc::clone(&called));
            shuttle::thread::spawn(move || {
                for round in 0..2 {
                    let answer = pool.call(|_| {
                        let [now, all] = &*called;
                        assert!(now.fetch_add(1, Ordering::SeqCst) < 2, "two guests answer three calls");
                        shuttle::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        all.fetch_add(1, Ordering::SeqCst);
                        let fault = CallError { fault: CallFault::Trap, what: String::new() };
                        if (n + round).is_multiple_of(3) { Err(fault) } else { Ok(()) }
                    });
                    assert_eq!(answer.is_err(), (n + round).is_multiple_of(3));
                }
            })
        };
        let threads = [0, 1, 2, 3].map(caller);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(pool.live() <= 2);
        assert_eq!(called[1].load(Ordering::SeqCst), 8);
    }

    /// Two pools want two guests each, and there is room for three. Every third call fails and drops its guest.
    fn two_pools_share_a_room() {
        let room = GuestRoom::new(3);
        let pools = [0, 1].map(|_| {
            let share = room.open(1, RoomPurpose::New).unwrap();
            Arc::new(GuestPool::new(2, move || Ok(share.ticket()?)).recycling(|_| true))
        });
        let caller = |n: usize| {
            let pool = Arc::clone(&pools[n % 2]);
            shuttle::thread::spawn(move || {
                for round in 0..2 {
                    let fault = CallError { fault: CallFault::Trap, what: String::new() };
                    let answer = pool.call(|_| {
                        shuttle::thread::yield_now();
                        if (n + round).is_multiple_of(3) { Err(fault) } else { Ok(()) }
                    });
                    assert_eq!(answer.map_err(|error| error.fault).is_err(), (n + round).is_multiple_of(3));
                }
            })
        };
        let threads = [0, 1, 2, 3].map(caller);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let usage = room.usage();
        assert_eq!((usage.own, usage.further, usage.free), (2, 0, 1));
    }

    #[test]
    fn every_interleaving_tried_answers_every_call_within_the_guest_limit() {
        shuttle::check_random(callers_share_two_guests, 2000);
        shuttle::check_pct(callers_share_two_guests, 1000, 3);
    }

    #[test]
    fn every_interleaving_tried_answers_every_call_of_two_pools_in_one_room() {
        shuttle::check_random(two_pools_share_a_room, 2000);
        shuttle::check_pct(two_pools_share_a_room, 1000, 3);
    }

    #[test]
    fn a_planted_fault_of_the_pool_is_found() {
        QUIET.set(true);
        let found = std::panic::catch_unwind(|| shuttle::check_random(callers_share_two_guests, 2000));
        QUIET.set(false);
        assert!(found.is_err());
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier};

    use super::*;
    use crate::call_error::CallFault;

    fn trap<T>() -> Result<T, CallError> {
        Err(CallError { fault: CallFault::Trap, what: "unreachable".to_owned() })
    }

    /// Guests are numbered in the order in which they start.
    fn pool(size: usize) -> GuestPool<u32> {
        let next = AtomicU32::new(0);
        GuestPool::new(size, move || Ok(next.fetch_add(1, Ordering::Relaxed)))
    }

    #[test]
    fn a_single_guest_is_dropped_after_a_failed_call() {
        let mut single = Single::new(7);
        assert_eq!(single.call(|n| Ok(*n)), Some(Ok(7)));
        assert_eq!(single.call(|_| trap::<()>()), Some(trap()));
        assert_eq!((single.call(|n| Ok(*n)), single.guest()), (None, None));
    }

    #[test]
    fn a_pool_starts_a_guest_only_if_all_are_called() {
        let pool = pool(2);
        assert_eq!([pool.call(|n| Ok(*n)), pool.call(|n| Ok(*n))], [Ok(0), Ok(0)]);
        let nested = pool.call(|n| Ok((*n, pool.call(|n| Ok(*n))?)));
        assert_eq!((nested, pool.live()), (Ok((0, 1)), 2));
    }

    #[test]
    fn a_failed_guest_makes_place_for_another() {
        let pool = pool(1);
        assert_eq!(pool.call(|_| trap::<()>()), trap());
        assert_eq!((pool.live(), pool.call(|n| Ok(*n))), (0, Ok(1)));
        let broken: GuestPool<u32> = GuestPool::new(1, trap);
        assert_eq!([broken.call(|n| Ok(*n)), broken.call(|n| Ok(*n))], [trap(), trap()], "its place is free again");
    }

    #[test]
    fn a_spent_guest_makes_place_for_another() {
        let pool = pool(1).recycling(|n| *n == 0);
        assert_eq!([pool.call(|n| Ok(*n)), pool.call(|n| Ok(*n)), pool.call(|n| Ok(*n))], [Ok(0), Ok(1), Ok(1)]);
    }

    #[test]
    fn a_call_waits_for_a_pooled_guest_if_no_other_guest_can_start() {
        let room = Arc::new(AtomicU32::new(1));
        let of_start = Arc::clone(&room);
        let pool = Arc::new(GuestPool::new(8, move || {
            let has_room = of_start.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| room.checked_sub(1));
            has_room.map_err(|_| CallError { fault: CallFault::Full, what: "no room".to_owned() })
        }));
        let meet = Arc::new(Barrier::new(2));
        let first = {
            let (pool, meet) = (Arc::clone(&pool), Arc::clone(&meet));
            std::thread::spawn(move || {
                pool.call(|n| {
                    meet.wait();
                    Ok(*n)
                })
            })
        };
        meet.wait();
        assert_eq!(pool.call(|n| Ok(*n)), Ok(1), "the one guest answers both");
        assert_eq!((first.join().unwrap(), pool.live()), (Ok(1), 1));
        assert_eq!(pool.call(|_| trap::<()>()), trap());
        room.store(1, Ordering::SeqCst);
        assert_eq!(pool.call(|n| Ok(*n)), Ok(1));
    }

    #[test]
    fn guests_that_are_not_used_from_one_look_to_the_next_end_but_for_one() {
        let pool = pool(8);
        let use_at_once = |count: usize| {
            let leases: Vec<_> = (0..count).map(|_| pool.lease().unwrap()).collect();
            leases.into_iter().for_each(GuestLease::give_back);
            pool.live()
        };
        let look = || {
            pool.release_unused();
            pool.live()
        };
        assert_eq!((use_at_once(5), look()), (5, 5), "they were used since the last look");
        assert_eq!((use_at_once(2), look(), look(), look()), (5, 2, 1, 1));
    }

    #[test]
    fn a_call_waits_while_all_guests_are_called() {
        let pool = Arc::new(pool(1));
        let meet = Arc::new(Barrier::new(2));
        let first = {
            let (pool, meet) = (Arc::clone(&pool), Arc::clone(&meet));
            std::thread::spawn(move || {
                pool.call(|n| {
                    meet.wait();
                    Ok(*n)
                })
            })
        };
        meet.wait();
        assert_eq!(pool.call(|n| Ok(*n)), Ok(0));
        assert_eq!((first.join().unwrap(), pool.live()), (Ok(0), 1));
    }

    #[test]
    fn a_pool_stays_within_its_size_if_a_place_is_taken_while_a_call_waits_for_room() {
        let pool = Arc::new(pool(1));
        let lease = pool.lease().unwrap();
        let waits = Arc::clone(&pool);
        pool.state.lock().live += 1;
        let waiter = std::thread::spawn(move || waits.free_after_full());
        // Wakes the waiter as a failed call does, and lets it go on at once. The one place is taken at that moment.
        loop {
            let state = pool.state.lock();
            if pool.freed.notify_one() {
                MutexGuard::unlock_fair(state);
                break;
            }
            drop(state);
            std::thread::yield_now();
        }
        lease.give_back();
        assert_eq!((waiter.join().unwrap(), pool.live()), (Some(0), 1));
    }
}
