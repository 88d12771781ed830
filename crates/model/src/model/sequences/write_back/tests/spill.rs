//! Files of sequences that leave memory, and a store that is closed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{Id, Time};

use super::*;
use crate::model::load::SequenceStore;
use crate::model::runtime::Clock;
use crate::state::tier;
use crate::sync::Mutex;

/// A model without loads.
struct Host {
    table: Mutex<Table>,
    budget: Budget,
    store: Arc<SequenceStore>,
}

impl SpillHost for Host {
    fn change_table(self: &Arc<Self>, change: &mut dyn FnMut(&mut Table, Time)) {
        change(&mut self.table.lock(), Time::ZERO);
    }

    fn state_budget(&self) -> &Budget {
        &self.budget
    }

    fn sequence_store(&self) -> Option<&Arc<SequenceStore>> {
        Some(&self.store)
    }

    fn model_name(&self) -> &str {
        "sum"
    }
}

#[test]
fn a_sequence_that_leaves_once_the_store_is_closed_keeps_its_file_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let tier = tier::open(folder.path(), u64::MAX, Duration::ZERO).unwrap().tier;
    let store = Arc::new(SequenceStore::new(Arc::new(tier), 1, Clock::manual()).unwrap());
    store.close();
    let (table, budget) = (Mutex::new(Table::new(Duration::ZERO)), Budget::new(u64::MAX));
    let host = Arc::new(Host { table, budget, store });
    let file = Bytes::from_static(b"state");
    let head = Arc::new(StateHead::new((1, [0; 32]), (1, 1), tier::IdleTime::default(), false, &file));
    // If the store reported, it would wait for this lock for ever.
    let mut table = host.table.lock();
    write(&host, &mut table, Time::ZERO, (Id::from(7), Arc::clone(&head), file));
    assert_eq!((table.spilling.writing, table.spilling.paused_until), (0, Time::ZERO + PAUSE));
    assert!(matches!(&table.spilling.failed[..], [(id, of)] if *id == Id::from(7) && Arc::ptr_eq(of, &head)));
}
