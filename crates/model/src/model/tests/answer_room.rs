//! Runs whose answers would find no room: clients have not taken the answers of earlier ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Fixture;
use crate::error::{ExceededLimit, Failure};
use crate::model::AnswerLimit;

#[derive(Debug, Default)]
struct Room {
    is_full: AtomicBool,
    held: AtomicU64,
}

impl AnswerLimit for Room {
    fn exceeded(&self) -> Option<ExceededLimit> {
        self.is_full.load(Ordering::Relaxed).then_some(ExceededLimit::AnswerBytes { used: 2, limit: 1 })
    }

    fn add_answer(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove_answer(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[test]
fn a_request_that_finds_no_room_for_its_answer_changes_nothing() {
    let (fixture, room) = (Fixture::new(u64::MAX), Arc::<Room>::default());
    fixture.repository.limit_answers(Arc::clone(&room) as Arc<dyn AnswerLimit>);
    let refused = |id, start| {
        room.is_full.store(true, Ordering::Relaxed);
        let refused = fixture.send(id, 100, |step| step.start = start).unwrap_err();
        room.is_full.store(false, Ordering::Relaxed);
        assert!(matches!(refused, Failure::Limit(ExceededLimit::AnswerBytes { .. })), "{refused:?}");
    };
    assert_eq!(fixture.sum(7, 40, |step| step.start = true), 40);
    refused(7, false);
    assert_eq!(fixture.sum(7, 2, |_| {}), 42, "the step was not counted");
    refused(8, true);
    assert!(fixture.send(8, 1, |_| {}).is_err(), "no sequence is left");
    assert_eq!(fixture.sum(8, 1, |step| step.start = true), 1);
    assert_eq!(room.held.load(Ordering::Relaxed), 0, "small answers do not count here");
}
