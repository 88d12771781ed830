//! The ids that this server owns, takes over or gives up, without a table.

use std::time::Duration;

use sequor_core::Dialect;
use tokio::sync::oneshot;

use super::*;
use crate::model::request::{InferRequest, SequenceStep};
use crate::model::runtime::Clock;
use crate::model::sequences::gate::SubmittedRequest;
use crate::model::sequences::gate::look_times::MAX_LOOK_INTERVAL;
use crate::model::sequences::jobs::RequestOrigin;
use crate::state::tier;

fn gate() -> (Arc<SequenceGate>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let tier = tier::open(folder.path(), u64::MAX, Duration::ZERO).unwrap().tier;
    let store = SequenceStore::new(Arc::new(tier), 1, Clock::manual()).unwrap();
    (Arc::new(SequenceGate::new(Arc::new(store))), folder)
}

fn request(id: u64, start: bool) -> InferRequest {
    InferRequest {
        model: "m".to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id: Id::from(id), start, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: Vec::new(),
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

type Submitted = oneshot::Receiver<Result<SubmittedRequest, crate::error::Failure>>;

/// Sends a request to the gate. Returns what it finds there, and where its submission would be reported.
fn enter(gate: &SequenceGate, id: u64, start: bool) -> (AtGate<InferRequest>, Submitted) {
    let (sender, submitted) = oneshot::channel();
    let defer = |request| DeferredRequest::new(request, None, RequestOrigin::default(), sender, Time::ZERO);
    (gate.enter(&Id::from(id), request(id, start), defer), submitted)
}

/// The period in which a request was let through.
fn period_of(at: &AtGate<InferRequest>) -> HeldPeriod {
    let AtGate::Open(_, period) = at else { panic!("it is not let through") };
    *period
}

/// Ends a claim. Returns how many requests went on, and whether another claim must follow.
fn claimed(gate: &SequenceGate, id: u64, is_held: bool) -> (u32, bool) {
    let mut went_on = 0;
    loop {
        match gate.after_claim(&Id::from(id), is_held) {
            AfterClaim::Next(_) => went_on += 1,
            AfterClaim::Begins => return (went_on, true),
            AfterClaim::Done => return (went_on, false),
        }
    }
}

#[test]
fn requests_that_arrive_together_cause_one_claim() {
    let (gate, _folder) = gate();
    assert!(matches!(enter(&gate, 7, false).0, AtGate::Claims(_)));
    assert!(matches!(enter(&gate, 7, false).0, AtGate::Waits(_)));
    assert!(matches!(enter(&gate, 8, false).0, AtGate::Claims(_)), "another sequence");
    assert_eq!(claimed(&gate, 7, true), (2, false));
    assert!(matches!(enter(&gate, 7, false).0, AtGate::Open(..)));
    assert_eq!(gate.claim_failed(&Id::from(8)).len(), 1);
    assert!(matches!(enter(&gate, 8, false).0, AtGate::Claims(_)), "nothing is left of the claim that failed");
}

#[test]
fn a_request_whose_client_has_gone_leaves_its_queue_at_once() {
    let (gate, _folder) = gate();
    let id = Id::from(7);
    let mut places = Vec::new();
    for _ in 0..4 {
        let (AtGate::Claims(number) | AtGate::Waits(number), _) = enter(&gate, 7, false) else {
            panic!("it is not held")
        };
        places.push(GatePlace::new(&gate, id.clone(), number));
    }
    let waiting = || gate.ids.lock().get_mut(&id).and_then(GateStage::queue).map(|queue| queue.len());
    assert_eq!(waiting(), Some(4));
    places[1].leave();
    places[0].leave();
    assert_eq!(waiting(), Some(2));
    assert_eq!(claimed(&gate, 7, true), (2, false));
    // Those that went on are not there any more, and others are not touched.
    assert!(gate.try_close(&id));
    let later = enter(&gate, 7, false);
    places.iter().for_each(GatePlace::leave);
    assert!(gate.reopen(&id));
    assert_eq!((waiting(), claimed(&gate, 7, true)), (Some(1), (1, false)));
    drop(later);
}

#[test]
fn a_start_behind_steps_of_an_unknown_id_claims_it_once_more() {
    let (gate, _folder) = gate();
    let all = [false, false, true, false].map(|start| enter(&gate, 7, start));
    assert_eq!(claimed(&gate, 7, false), (2, true));
    assert_eq!(claimed(&gate, 7, true), (2, false));
    drop(all);
}

#[test]
fn an_id_is_not_given_up_while_a_request_is_on_its_way_to_the_table() {
    let (gate, _folder) = gate();
    let (id, first) = (Id::from(7), enter(&gate, 7, true));
    assert_eq!(gate.close(&id, Time::ZERO), HandoverGate::Busy, "it is claimed");
    claimed(&gate, 7, true);
    let second = enter(&gate, 7, false);
    assert_eq!((gate.close(&id, Time::ZERO), gate.try_close(&id)), (HandoverGate::Busy, false));
    gate.entered(&id, period_of(&second.0));
    assert_eq!(gate.close(&id, Time::ZERO), HandoverGate::Closed { asked: false });
    assert!(matches!(enter(&gate, 7, false).0, AtGate::Waits(_)), "it must not find an empty table");
    gate.set_asked(&id, true);
    let look = |micros: u64| gate.close(&id, Time::ZERO + Duration::from_micros(micros));
    assert_eq!((look(400), look(500)), (HandoverGate::Busy, HandoverGate::Closed { asked: true }));
    gate.set_asked(&id, false);
    assert_eq!(look(600), HandoverGate::Closed { asked: false }, "the instance has replied");
    drop((first, second));
}

#[test]
fn a_request_from_before_a_loss_does_not_count_for_one_that_is_on_its_way_after_it() {
    let (gate, _folder) = gate();
    let (id, first) = (Id::from(7), enter(&gate, 7, true));
    claimed(&gate, 7, true);
    let early = enter(&gate, 7, false);
    gate.lose(&id);
    let again = enter(&gate, 7, true);
    claimed(&gate, 7, true);
    let late = enter(&gate, 7, false);
    gate.entered(&id, period_of(&early.0));
    assert_eq!((gate.close(&id, Time::ZERO), gate.try_close(&id)), (HandoverGate::Busy, false));
    gate.entered(&id, period_of(&late.0));
    assert!(gate.try_close(&id));
    drop((first, again));
}

#[test]
fn a_sequence_that_stays_busy_is_looked_at_more_and_more_rarely() {
    let (gate, _folder) = gate();
    let (id, first) = (Id::from(7), enter(&gate, 7, true));
    claimed(&gate, 7, true);
    // Asked for once a millisecond, for six seconds.
    let times = (0..6000).map(|n| Time::ZERO + Duration::from_millis(n));
    let looks: Vec<Time> = times.filter(|now| gate.close(&id, *now) != HandoverGate::Busy).collect();
    assert!((100..200).contains(&looks.len()), "{}", looks.len());
    assert!(looks.windows(2).all(|two| two[1].since(two[0]) <= MAX_LOOK_INTERVAL), "{looks:?}");
    assert_eq!(looks[..4], [0, 1, 2, 3].map(|n| Time::ZERO + Duration::from_millis(n)), "a short wait stays short");
    drop(first);
}

#[test]
fn a_request_that_waits_for_a_release_claims_the_sequence_again() {
    let (gate, _folder) = gate();
    let (id, first) = (Id::from(7), enter(&gate, 7, true));
    claimed(&gate, 7, true);
    assert!(gate.try_close(&id) && gate.release(&id));
    assert_eq!(gate.close(&id, Time::ZERO), HandoverGate::Gone);
    let second = enter(&gate, 7, false);
    assert!(matches!(second.0, AtGate::Waits(_)));
    assert_eq!(gate.released(&id, false), Some(false));
    assert_eq!(claimed(&gate, 7, true), (1, false));
    assert!(gate.try_close(&id) && gate.release(&id));
    assert_eq!((gate.released(&id, true), gate.owns(&id)), (None, true), "a release that failed");
    assert!(gate.try_close(&id) && gate.release(&id));
    assert_eq!((gate.released(&id, false), gate.owns(&id)), (None, false));
    drop(first);
}

#[test]
fn requests_of_a_lost_sequence_claim_it_again() {
    let (gate, _folder) = gate();
    let (id, first) = (Id::from(7), enter(&gate, 7, true));
    claimed(&gate, 7, true);
    assert!(gate.try_close(&id));
    let second = enter(&gate, 7, false);
    assert_eq!((gate.lose(&id), gate.lose(&id)), (Some(false), None));
    assert_eq!(claimed(&gate, 7, true), (1, false));
    assert_eq!((gate.lose(&id), gate.owns(&id)), (None, false));
    assert!(!gate.try_close(&id) && !gate.reopen(&id), "nothing is left of it");
    drop((first, second));
}
