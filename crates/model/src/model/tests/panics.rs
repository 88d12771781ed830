//! A panic in the middle of a task of a plug-in: a fault of the server's own code. The request is refused, and nothing waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

use sequor_core::{EndReason, Refusal};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::processors::{TOML, loaded};
use crate::error::Failure;

/// Whether the next line of a plug-in panics.
static PANICS: AtomicBool = AtomicBool::new(false);

/// Panics in the thread that logs a line of a plug-in.
#[derive(Debug)]
struct PanicsOnLine;

impl Subscriber for PanicsOnLine {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target() == "sequor::plugin"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        assert!(!PANICS.swap(false, Ordering::AcqRel), "as the test wants");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_request_whose_task_panics_is_refused_and_blocks_nothing() {
    tracing::subscriber::set_global_default(PanicsOnLine).unwrap();
    let fixture = loaded(TOML);
    let is_panic = |value: i32, start: bool| {
        PANICS.store(true, Ordering::Release);
        let failure = fixture.send(7, value, |s| s.start = start).unwrap_err();
        matches!(&failure, Failure::Internal(text) if text.contains("has panicked"))
    };
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    assert!(is_panic(1000, false), "while it is prepared");
    assert_eq!(fixture.sum(7, 1, |_| {}), 20_006, "its sequence goes on");
    assert!(is_panic(771, false), "after its run");
    let Err(Failure::Refused(refused)) = fixture.send(7, 1, |_| {}) else { panic!("its sequence has ended") };
    assert!(matches!(refused.refusal, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Broken), "{refused:?}");
    assert_eq!(fixture.repository.live(), 0, "nothing is in flight");
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
}
