//! The bytes of state in use, against the server's limit. They are taken at START and given back at the end. A sequence that does not fit
//! is refused, without an effect on live ones. States kept for later sequences are released first.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The maximum bytes of all states of all models. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<BudgetCounter>);

#[derive(Debug)]
struct BudgetCounter {
    used: AtomicU64,
    limit: AtomicU64,
    /// A counter of uses of reclaimable bytes, to find the least recently used ones.
    uses: AtomicU64,
    reclaimable: Mutex<Vec<Weak<dyn Reclaimable>>>,
}

/// A holder of bytes of a budget that may be released when others need them.
pub trait Reclaimable: fmt::Debug + Send + Sync {
    /// Bytes that it holds.
    fn bytes(&self) -> u64;

    /// The last use, by [`Budget::next_use`], of the part that it would release next. `None`: it holds nothing.
    fn least_use(&self) -> Option<u64>;

    /// Releases its least recently used part. The bytes of the part are free when this returns. `None`: it holds nothing.
    fn reclaim(&self) -> Option<Unneeded>;
}

/// A value that is not needed any more. Freeing it takes time, so a caller that holds a lock drops it after that.
pub struct Unneeded(#[allow(dead_code, reason = "it is only dropped")] Box<dyn Send>);

impl Unneeded {
    pub fn new(of: impl Send + 'static) -> Unneeded {
        Unneeded(Box::new(of))
    }
}

impl fmt::Debug for Unneeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unneeded")
    }
}

/// A state does not fit within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes of state wanted, {used} of {limit} in use")]
pub struct NoRoom {
    pub wanted: u64,
    pub used: u64,
    pub limit: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Budget {
        let (used, uses, limit) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(limit));
        Budget(Arc::new(BudgetCounter { used, limit, uses, reclaimable: Mutex::default() }))
    }

    /// Adds a holder of reclaimable bytes. The holder must not hold a lock of its own while it takes bytes.
    pub fn register(&self, holder: Weak<dyn Reclaimable>) {
        let mut all = self.0.reclaimable.lock();
        all.retain(|holder| holder.strong_count() > 0);
        all.push(holder);
    }

    /// The number of the next use.
    pub fn next_use(&self) -> u64 {
        self.0.uses.fetch_add(1, Ordering::Relaxed)
    }

    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Bytes that are taken stay, even beyond it.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts these bytes until the ticket is dropped, even beyond the limit: a copy of a state is never refused, but the next START may
    /// be.
    pub fn count(&self, bytes: u64) -> Ticket {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Ticket { budget: self.clone(), bytes }
    }

    /// Takes these bytes until the ticket is dropped. If there is no room, holders release reclaimable bytes, provided that this makes
    /// enough room.
    pub fn take(&self, bytes: u64) -> Result<Ticket, NoRoom> {
        self.take_under_lock(bytes, &mut Vec::new())
    }

    /// Same as [`Self::take`], for a caller that holds a lock. What the holders release is added to `released`.
    pub fn take_under_lock(&self, bytes: u64, released: &mut Vec<Unneeded>) -> Result<Ticket, NoRoom> {
        loop {
            let no_room = match self.take_free(bytes) {
                Ok(ticket) => return Ok(ticket),
                Err(no_room) => no_room,
            };
            let Some(part) = self.make_room(&no_room) else { return Err(no_room) };
            released.push(part);
        }
    }

    fn take_free(&self, bytes: u64) -> Result<Ticket, NoRoom> {
        let limit = self.limit();
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Ticket { budget: self.clone(), bytes }),
            Err(used) => Err(NoRoom { wanted: bytes, used, limit }),
        }
    }

    /// Makes the holder of the least recently used bytes release them. `None` if all reclaimable bytes together would not be enough.
    fn make_room(&self, NoRoom { wanted, used, limit }: &NoRoom) -> Option<Unneeded> {
        let holders: Vec<Arc<dyn Reclaimable>> = self.0.reclaimable.lock().iter().filter_map(Weak::upgrade).collect();
        let all: u64 = holders.iter().map(|holder| holder.bytes()).sum();
        if used.saturating_sub(all).checked_add(*wanted).is_none_or(|least| least > *limit) {
            return None;
        }
        let oldest =
            holders.iter().filter_map(|holder| Some((holder.least_use()?, holder))).min_by_key(|(used, _)| *used);
        oldest.and_then(|(_, holder)| holder.reclaim())
    }
}

/// Bytes taken from a [`Budget`], until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    budget: Budget,
    bytes: u64,
}

impl Ticket {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts more bytes with it, even beyond the limit, until it has at least this many.
    pub fn raise_to(&mut self, bytes: u64) {
        if let Some(missing) = bytes.checked_sub(self.bytes).filter(|missing| *missing > 0) {
            let more = self.budget.count(missing);
            self.merge(more);
        }
    }

    /// Adds the bytes of `more`, which must be of the same budget.
    pub fn merge(&mut self, mut more: Ticket) {
        self.bytes += std::mem::take(&mut more.bytes);
    }

    /// Moves all bytes above `bytes` to a ticket of their own.
    pub fn split_above(&mut self, bytes: u64) -> Option<Ticket> {
        let above = self.bytes.checked_sub(bytes).filter(|above| *above > 0)?;
        self.bytes = bytes;
        Some(Ticket { budget: self.budget.clone(), bytes: above })
    }

    /// Gives back everything above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let kept = self.bytes.min(bytes);
        self.budget.0.used.fetch_sub(self.bytes - kept, Ordering::Relaxed);
        self.bytes = kept;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A sum of bytes of several holders, for display. Clones share the sum.
#[derive(Debug, Clone, Default)]
pub struct HeldBytes(Arc<AtomicU64>);

impl HeldBytes {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Records that one holder now holds `after` bytes instead of `before`.
    pub fn change(&self, before: u64, after: u64) {
        // The addition wraps if the sum decreases, which gives the right result.
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_beyond_the_budget_is_refused_and_takes_nothing() {
        let budget = Budget::new(10);
        let ticket = budget.take(8).unwrap();
        assert_eq!(budget.take(3).unwrap_err(), NoRoom { wanted: 3, used: 8, limit: 10 });
        assert!(budget.take(u64::MAX).is_err());
        drop(ticket);
        assert_eq!(budget.used(), 0);
    }

    /// Entries by their last use, each with its bytes.
    #[derive(Debug, Default)]
    struct HeldParts(Mutex<Vec<(u64, Ticket)>>);

    impl Reclaimable for HeldParts {
        fn bytes(&self) -> u64 {
            self.0.lock().iter().map(|(_, ticket)| ticket.bytes()).sum()
        }

        fn least_use(&self) -> Option<u64> {
            self.0.lock().first().map(|(used, _)| *used)
        }

        fn reclaim(&self) -> Option<Unneeded> {
            let mut all = self.0.lock();
            (!all.is_empty()).then(|| {
                drop(all.remove(0));
                Unneeded::new(())
            })
        }
    }

    #[test]
    fn the_least_recently_used_bytes_of_any_holder_are_reclaimed_first() {
        let budget = Budget::new(10);
        let holders = [Arc::new(HeldParts::default()), Arc::new(HeldParts::default())];
        for holder in &holders {
            budget.register(Arc::downgrade(holder) as Weak<dyn Reclaimable>);
        }
        let hold = |n: usize, bytes: u64| holders[n].0.lock().push((budget.next_use(), budget.take(bytes).unwrap()));
        [1, 0, 1].into_iter().for_each(|n| hold(n, 3));
        let held = || [holders[0].bytes(), holders[1].bytes()];
        assert!(budget.take(11).is_err());
        assert_eq!(held(), [3, 6], "nothing gives way where that does not help");
        let live = budget.take(2).unwrap();
        assert_eq!((held(), budget.used()), ([3, 3], 8));
        let more = budget.take(5).unwrap();
        assert_eq!((held(), budget.used()), ([0, 3], 10));
        assert!(budget.take(4).is_err());
        assert_eq!(held(), [0, 3]);
        drop((live, more));
    }

    #[test]
    fn bytes_counted_beyond_the_limit_leave_no_room_for_others() {
        let budget = Budget::new(10);
        let (_first, copy) = (budget.take(8).unwrap(), budget.count(8));
        assert_eq!(budget.take(1).unwrap_err(), NoRoom { wanted: 1, used: 16, limit: 10 });
        drop(copy);
        assert!(budget.take(2).is_ok());
    }

    #[test]
    fn a_lower_limit_refuses_more_and_takes_nothing_back() {
        let budget = Budget::new(10);
        let ticket = budget.take(8).unwrap();
        budget.set_limit(4);
        assert_eq!(budget.take(1).unwrap_err(), NoRoom { wanted: 1, used: 8, limit: 4 });
        budget.set_limit(12);
        assert!(budget.take(4).is_ok() && ticket.bytes() == 8);
    }

    #[test]
    fn a_ticket_merges_another_and_releases_bytes_when_it_shrinks() {
        let budget = Budget::new(10);
        let mut ticket = budget.take(4).unwrap();
        ticket.merge(budget.take(5).unwrap());
        assert_eq!((ticket.bytes(), budget.used()), (9, 9));
        assert!(ticket.split_above(9).is_none());
        let above = ticket.split_above(6).unwrap();
        assert_eq!((ticket.bytes(), above.bytes(), budget.used()), (6, 3, 9));
        drop(above);
        ticket.raise_to(3);
        assert_eq!((ticket.bytes(), budget.used()), (6, 6));
        ticket.raise_to(12);
        assert_eq!((ticket.bytes(), budget.used()), (12, 12), "even beyond the limit");
        ticket.shrink_to(2);
        ticket.shrink_to(8);
        assert_eq!((ticket.bytes(), budget.used()), (2, 2));
        drop(ticket);
        assert_eq!(budget.used(), 0);
    }
}
