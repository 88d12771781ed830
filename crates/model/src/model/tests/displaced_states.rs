//! States that are kept for later sequences and give way to a START.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::Fixture;
use crate::model::*;
use crate::state::budget::{Reclaimable, Ticket, Unneeded};

/// After this time, a thread waits for a lock that it holds itself.
const ITSELF: Duration = Duration::from_secs(20);

/// Kept states of all the bytes that a model may have.
#[derive(Debug)]
struct DisplacedStates {
    ticket: Mutex<Option<Ticket>>,
    model: Weak<sequences::ModelScheduler>,
    /// Whether the thread that freed them could get the model's lock.
    freed: Arc<Mutex<Vec<bool>>>,
}

impl Reclaimable for DisplacedStates {
    fn bytes(&self) -> u64 {
        self.ticket.lock().as_ref().map_or(0, Ticket::bytes)
    }

    fn least_use(&self) -> Option<u64> {
        self.ticket.lock().as_ref().map(|_| 0)
    }

    fn reclaim(&self) -> Option<Unneeded> {
        drop(self.ticket.lock().take()?);
        Some(Unneeded::new(FreedStates { model: Weak::clone(&self.model), freed: Arc::clone(&self.freed) }))
    }
}

struct FreedStates {
    model: Weak<sequences::ModelScheduler>,
    freed: Arc<Mutex<Vec<bool>>>,
}

impl Drop for FreedStates {
    fn drop(&mut self) {
        let model = self.model.upgrade().unwrap();
        // An instance's thread may have the lock for a moment. This thread would wait for itself.
        self.freed.lock().push(model.table.try_lock_for(ITSELF).is_some());
    }
}

#[test]
fn kept_states_are_freed_without_the_lock_of_the_model_whose_start_displaces_them() {
    let fixture = Fixture::new(8);
    let model = fixture.repository.0.catalog.entries.read()["sum"].model.clone().unwrap();
    let (ticket, freed) = (Mutex::new(Some(model.budget().take(8).unwrap())), Arc::<Mutex<Vec<bool>>>::default());
    let kept = Arc::new(DisplacedStates { ticket, model: Arc::downgrade(&model), freed: Arc::clone(&freed) });
    model.budget().register(Arc::downgrade(&kept) as Weak<dyn Reclaimable>);
    assert_eq!(fixture.sum(1, 5, |s| s.start = true), 5);
    assert_eq!(*freed.lock(), [true]);
}
