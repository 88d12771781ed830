//! What the contract promises beyond answers: events go with questions, a model's own `max_wait` holds, codes have texts.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{RejectionReason, RejectionStatus};
use crate::scheduling::AT_ONCE;
use crate::scheduling::guest::Source;
use crate::scheduling::stand_in::{Does, StandInVersion};
use crate::scheduling::tests::rig::{Rig, plans};

#[test]
fn events_go_with_the_question_that_follows_them() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=4);
    rig.drain();
    rig.submit(1, false, true);
    rig.drain();
    let script = rig.version.script.lock();
    assert_eq!((script.observed, script.plans), (0, 5), "one call a question");
    assert_eq!(script.told.kind.iter().filter(|kind| **kind == 3).count(), 4);
    drop(script);
    // More than go with a question are reported before it.
    rig.starts(11..=10 + AT_ONCE as u64);
    rig.turn();
    let script = rig.version.script.lock();
    assert_eq!((script.observed, script.plans), (1, 6));
}

#[test]
fn a_models_own_max_wait_takes_the_place_of_the_default() {
    let mut rig = Rig::open(plans(), |options| options.max_wait = Some(Duration::from_secs(5)));
    rig.version.does(Does::Starve);
    rig.starts(1..=2);
    assert_eq!(rig.drain(), [1]);
    rig.wait(4999);
    assert_eq!(rig.turn(), None);
    rig.wait(1);
    assert_eq!((rig.turn(), rig.binding.show().fallbacks), (Some(1), 1));
}

#[test]
fn clients_read_the_codes_of_the_version_that_decides() {
    let text = "this tenant is over its quota".to_owned();
    let reason = RejectionReason { text, status: RejectionStatus::ResourceExhausted, retry_after: None };
    let version = StandInVersion::names_code("3f2a", plans(), reason.clone());
    let rig = Rig::around(version.clone(), version, |_| {});
    assert_eq!(rig.binding.port.rejection(7), None, "it decides nothing yet");
    rig.binding.open().unwrap();
    assert_eq!((rig.binding.port.rejection(7), rig.binding.port.rejection(8)), (Some(reason), None));
    let source: Arc<dyn Source> = StandInVersion::new("77b0", plans());
    rig.binding.replace(&source).unwrap();
    assert_eq!(rig.binding.port.rejection(7), None);
}
