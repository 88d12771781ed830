//! Bytes of state held, against the server's limit. Taken at START, given back at the end; a sequence that does not fit is refused, and
//! those that live are not affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all states of all models may hold. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<BudgetCounter>);

#[derive(Debug)]
struct BudgetCounter {
    used: AtomicU64,
    limit: u64,
}

/// No room for a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes of state wanted, {used} of {limit} in use")]
pub struct NoRoom {
    pub wanted: u64,
    pub used: u64,
    pub limit: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(BudgetCounter { used: AtomicU64::new(0), limit }))
    }

    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Counts these bytes until the ticket is dropped, also beyond the limit: a copy of a state is never refused, but the next START may be.
    pub fn count(&self, bytes: u64) -> Ticket {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Ticket { budget: self.clone(), bytes }
    }

    /// Takes these bytes until the ticket is dropped.
    pub fn take(&self, bytes: u64) -> Result<Ticket, NoRoom> {
        let limit = self.0.limit;
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Ticket { budget: self.clone(), bytes }),
            Err(used) => Err(NoRoom { wanted: bytes, used, limit }),
        }
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

    /// Adds the bytes of `more`, which is of the same budget.
    pub fn merge(&mut self, mut more: Ticket) {
        self.bytes += std::mem::take(&mut more.bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_takes_nothing() {
        let budget = Budget::new(10);
        let ticket = budget.take(8).unwrap();
        assert_eq!(budget.take(3).unwrap_err(), NoRoom { wanted: 3, used: 8, limit: 10 });
        assert!(budget.take(u64::MAX).is_err());
        drop(ticket);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_counted_beyond_the_limit_leaves_no_room_for_others() {
        let budget = Budget::new(10);
        let (_first, copy) = (budget.take(8).unwrap(), budget.count(8));
        assert_eq!(budget.take(1).unwrap_err(), NoRoom { wanted: 1, used: 16, limit: 10 });
        drop(copy);
        assert!(budget.take(2).is_ok());
    }

    #[test]
    fn a_ticket_grows_by_another_and_gives_back_what_it_shrinks_by() {
        let budget = Budget::new(10);
        let mut ticket = budget.take(4).unwrap();
        ticket.merge(budget.take(5).unwrap());
        assert_eq!((ticket.bytes(), budget.used()), (9, 9));
        ticket.shrink_to(2);
        ticket.shrink_to(8);
        assert_eq!((ticket.bytes(), budget.used()), (2, 2));
        drop(ticket);
        assert_eq!(budget.used(), 0);
    }
}
