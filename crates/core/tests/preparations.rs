//! Preparations in short scenarios: the driver's possible answers to a lent request, and what may happen in between.
#![allow(clippy::expect_used, reason = "a test may panic")]

mod rig;

use std::num::NonZeroU32;

use rig::{Rig, oldest, spec};
use sequor_core::*;

fn key(req: u32) -> Req {
    Req::new(req, NonZeroU32::MIN)
}

fn steps(n: u32) -> Preparation {
    Preparation::RunSteps(RequestMeta::default(), NonZeroU32::new(n).expect("above 0"))
}

/// Every request is prepared first.
fn prepares(slots: u32, max_batch: u32) -> Rig {
    Rig::new(LoadSpec { stages: Stages { pre: true, ..Stages::default() }, ..spec(oldest(slots), max_batch) })
}

fn start(rig: &mut Rig, id: u64) -> u32 {
    let req = rig.submit(id, true, false);
    rig.apply(Event::Prepared(key(req), Preparation::Run(RequestMeta::default())));
    assert_eq!(rig.drain(), [1]);
    req
}

/// START and END of each row of a batch, and the slot operations before it.
fn row(rig: &mut Rig) -> (bool, bool, Vec<SlotOp>) {
    let batch = rig.batch().expect("a batch");
    let row = batch.real().next().expect("a row");
    rig.ran(&batch);
    (row.start, row.end, batch.ops)
}

#[test]
fn a_request_of_several_steps_runs_them_in_its_slot_and_is_answered_once() {
    let mut rig = prepares(1, 1);
    let req = rig.submit(1, true, true);
    rig.apply(Event::Prepared(key(req), steps(3)));
    // START with the first row, END with the last; the slot gets its first state once.
    let rows: Vec<_> = (0..3).map(|_| row(&mut rig)).collect();
    assert_eq!(
        rows.iter().map(|(start, end, _)| (*start, *end)).collect::<Vec<_>>(),
        [(true, false), (false, false), (false, true)]
    );
    assert!(matches!(rows[0].2[..], [SlotOp::Init(..)]) && rows[1].2.is_empty() && rows[2].2.is_empty());
    assert_eq!((rig.answers[&req], rig.usage().live), (Ok(()), 0));
    assert_eq!(rig.core.tombstone(&Id::Int(1)).map(|stone| stone.step), Some(1), "they are one step of the client");
}

#[test]
fn a_request_between_its_steps_lets_others_run_and_ignores_cancellation() {
    let mut rig = prepares(2, 1);
    start(&mut rig, 1);
    start(&mut rig, 2);
    let long = rig.submit(1, false, false);
    rig.apply(Event::Prepared(key(long), steps(2)));
    row(&mut rig);
    let short = rig.submit(2, false, false);
    rig.apply(Event::Prepared(key(short), Preparation::Run(RequestMeta::default())));
    rig.apply(Event::Cancel(key(long)));
    assert_eq!(rig.drain(), [1, 1]);
    assert_eq!((rig.answers[&long], rig.answers[&short], rig.usage().live), (Ok(()), Ok(()), 2));
}

#[test]
fn an_ended_sequence_stops_its_request_between_two_steps() {
    let mut rig = prepares(1, 1);
    start(&mut rig, 1);
    let req = rig.submit(1, false, false);
    rig.apply(Event::Prepared(key(req), steps(1000)));
    let batch = rig.batch().expect("a batch");
    let seq = rig.core.find(&Id::Int(1), None).expect("it lives");
    rig.apply(Event::End(seq, EndReason::Admin));
    assert_eq!(rig.answers.get(&req), None, "its step runs");
    rig.ran(&batch);
    assert_eq!((rig.answers[&req], rig.usage().live), (Err(Refusal::Ended(EndReason::Admin)), 0));
}

#[test]
fn a_later_step_that_fails_ends_the_sequence_and_the_first_does_not() {
    for (ran, lives) in [(0, 1), (1, 0)] {
        let mut rig = prepares(1, 1);
        start(&mut rig, 1);
        let req = rig.submit(1, false, false);
        rig.apply(Event::Prepared(key(req), steps(2)));
        (0..ran).for_each(|_| drop(row(&mut rig)));
        let batch = rig.batch().expect("a batch");
        rig.apply(Event::Ran { batch: batch.id, rows: vec![RowEnd::Failed] });
        assert_eq!((rig.answers[&req], rig.usage().live), (Ok(()), lives), "the driver's answer says what failed");
    }
}

#[test]
fn a_start_answered_without_a_run_initializes_the_state_in_the_next_run() {
    let mut rig = prepares(1, 1);
    let req = rig.submit(1, true, false);
    rig.apply(Event::Prepared(key(req), Preparation::Reply));
    assert_eq!((rig.answers[&req], rig.usage().slots_used), (Ok(()), 1));
    assert!(rig.batch().is_none());
    let next = rig.submit(1, false, false);
    rig.apply(Event::Prepared(key(next), Preparation::Run(RequestMeta::default())));
    let (start, _, ops) = row(&mut rig);
    assert!(start && matches!(ops[..], [SlotOp::Init(_, of)] if of == key(req)), "{ops:?}");
    assert_eq!(rig.answers[&next], Ok(()));
}

/// Answers leave in order, and an earlier one is not there yet.
#[test]
fn a_reply_is_done_before_the_next_step_is_prepared_and_its_answer_may_leave_later() {
    for seal in [false, true] {
        let strategy =
            Strategy::Oldest { slots: 2, preferred: vec![], delay: std::time::Duration::ZERO, in_order: true };
        let stages = Stages { pre: true, seal, ..Stages::default() };
        let mut rig = Rig::new(LoadSpec { stages, ..spec(strategy, 1) });
        let other = rig.submit(1, true, false);
        rig.apply(Event::Prepared(key(other), Preparation::Run(RequestMeta::default())));
        let batch = rig.batch().expect("a batch");
        let (first, second) = (rig.submit(2, true, false), rig.submit(2, false, false));
        rig.seen.clear();
        rig.apply(Event::Prepared(key(first), Preparation::Reply));
        let at = |effect: Effect| rig.seen.iter().position(|seen| *seen == effect);
        let seq = rig.core.find(&Id::Int(2), None);
        let (done, lent) = (at(Effect::Reply { req: key(first), seal }), at(Effect::Prepare(key(second), seq)));
        assert!(done.is_some() && done < lent, "{:?}", rig.seen);
        rig.ran(&batch);
        if seal {
            rig.apply(Event::Sealed(batch.id, Vec::new()));
            assert_eq!((rig.answers[&other], rig.answers.get(&first)), (Ok(()), None), "it is not durable");
            rig.apply(Event::Replied(key(first), None));
        }
        assert_eq!((rig.answers[&other], rig.answers[&first]), (Ok(()), Ok(())));
    }
}

#[test]
fn a_reply_that_is_not_durable_is_refused_and_its_sequence_ends() {
    let stages = Stages { pre: true, seal: true, ..Stages::default() };
    let mut rig = Rig::new(LoadSpec { stages, ..spec(oldest(1), 1) });
    let (first, second) = (rig.submit(1, true, false), rig.submit(1, false, false));
    rig.apply(Event::Prepared(key(first), Preparation::Reply));
    rig.apply(Event::Cancel(key(first)));
    assert_eq!(rig.answers.get(&first), None, "it is done");
    rig.apply(Event::Replied(key(first), Some(EndReason::Fenced)));
    let refused = Err(Refusal::Ended(EndReason::Fenced));
    assert_eq!((rig.answers[&first], rig.answers[&second], rig.usage().live), (refused, refused, 0));
    rig.apply(Event::Replied(key(first), None));
}

#[test]
fn an_end_that_is_answered_without_a_run_ends_its_sequence() {
    let mut rig = prepares(1, 1);
    start(&mut rig, 1);
    let end = rig.submit(1, false, true);
    rig.apply(Event::Prepared(key(end), Preparation::Reply));
    assert_eq!((rig.answers[&end], rig.usage().live, rig.ended.clone()), (Ok(()), 0, vec![EndReason::End]));
}

#[test]
fn a_preparation_may_refuse_its_request_alone_or_with_the_sequence() {
    for (ends, lives) in [(false, 1), (true, 0)] {
        let mut rig = prepares(1, 1);
        start(&mut rig, 1);
        let (refused, behind) = (rig.submit(1, false, false), rig.submit(1, false, false));
        let refusal = Refusal::Failed(9);
        rig.apply(Event::Prepared(key(refused), Preparation::Refuse { refusal, ends }));
        assert_eq!((rig.answers[&refused], rig.usage().live), (Err(refusal), lives));
        let of_behind = rig.answers.get(&behind).copied();
        assert_eq!(of_behind, ends.then_some(Err(Refusal::Ended(EndReason::Rejected))));
    }
}

#[test]
fn a_request_cancelled_during_its_preparation_ignores_the_result() {
    let mut rig = prepares(1, 1);
    start(&mut rig, 1);
    let lent = rig.submit(1, false, false);
    rig.apply(Event::Cancel(key(lent)));
    assert_eq!((rig.answers[&lent], rig.usage().live), (Err(Refusal::Cancelled), 0));
    rig.apply(Event::Prepared(key(lent), steps(3)));
    assert!(rig.batch().is_none());
}

#[test]
fn a_start_of_an_ensemble_has_its_slot_before_it_is_prepared_and_its_sequence_does_not_expire() {
    let mut rig =
        Rig::new(LoadSpec { expiry: Expiry::Idle(std::time::Duration::from_millis(10)), ..spec(oldest(1), 1) });
    let reserve = |rig: &mut Rig, id| rig.submit_with(id, true, false, |submit| submit.origin = 1);
    let (first, second) = (reserve(&mut rig, 1), reserve(&mut rig, 2));
    let lent =
        |rig: &Rig, req| rig.seen.iter().any(|effect| matches!(effect, Effect::Prepare(of, _) if *of == key(req)));
    assert!(lent(&rig, first) && !lent(&rig, second), "the second waits for the slot");
    assert_eq!((rig.usage().slots_used, rig.usage().backlog), (1, 1));
    assert!(rig.batch().is_none(), "its inputs are not there");
    rig.apply(Event::Prepared(key(first), Preparation::Run(RequestMeta::default())));
    assert_eq!(rig.drain(), [1]);
    rig.wait(1000);
    assert_eq!((rig.answers[&first], rig.usage().live), (Ok(()), 2));
    let seq = rig.core.find(&Id::Int(1), None).expect("it lives");
    rig.apply(Event::End(seq, EndReason::Member));
    assert!(lent(&rig, second), "the slot goes to the next one");
    assert_eq!(rig.core.tombstone(&Id::Int(1)).map(|stone| stone.why), Some(EndReason::Member));
}

/// They do not leave for the store, and a search for one that can must not pass all of them.
#[test]
fn sequences_of_ensembles_are_not_among_the_idle_ones_and_are_evicted_in_their_order() {
    let mut rig = Rig::new(LoadSpec { idle_soft: Some(std::time::Duration::ZERO), ..spec(oldest(4), 4) });
    for (id, origin) in [(1, 1), (2, 0), (3, 1), (4, 0)] {
        let req = rig.submit_with(id, true, false, |submit| submit.origin = origin);
        if origin != 0 {
            rig.apply(Event::Prepared(key(req), Preparation::Run(RequestMeta::default())));
        }
        assert_eq!(rig.drain(), [1]);
    }
    let idle = |rig: &Rig| -> Vec<Id> {
        rig.core.idle_sequences(LoadId::FIRST).filter_map(|seq| rig.core.id_of(seq).cloned()).collect()
    };
    assert_eq!(idle(&rig), [2, 4].map(Id::Int));
    // An ensemble restarts its sequence, which is the last one to become idle then.
    let again = rig.submit_with(1, true, false, |submit| submit.origin = 1);
    rig.apply(Event::Prepared(key(again), Preparation::Run(RequestMeta::default())));
    rig.drain();
    assert_eq!(idle(&rig), [2, 4].map(Id::Int));
    for (new, evicted) in [(11, 2), (12, 3), (13, 4), (14, 1)] {
        rig.submit(new, true, false);
        assert_eq!(rig.drain(), [1]);
        assert_eq!(rig.core.tombstone(&Id::Int(evicted)).map(|stone| stone.why), Some(EndReason::Evicted), "{evicted}");
    }
    assert_eq!(idle(&rig), [11, 12, 13, 14].map(Id::Int));
}

#[test]
fn many_sequences_that_end_without_a_run_leave_the_backlog_in_one_call() {
    let mut rig = prepares(1, 1);
    start(&mut rig, 1);
    let waiting: Vec<u32> = (2..20_000)
        .map(|id| {
            let req = rig.submit(id, true, true);
            rig.apply(Event::Prepared(key(req), Preparation::Reply));
            req
        })
        .collect();
    assert_eq!(rig.usage().backlog, 19_998);
    let end = rig.submit(1, false, true);
    rig.apply(Event::Prepared(key(end), Preparation::Reply));
    assert!(waiting.iter().all(|req| rig.answers[req] == Ok(())));
    assert_eq!((rig.usage().backlog, rig.usage().live), (0, 0));
}

// === states that the driver holds ===

/// No stage of the load prepares anything, but the driver must prepare this one request.
#[test]
fn a_step_that_adopts_a_state_can_be_lent_before_its_turn() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let adopts = |s: &mut Submit| (s.adopt, s.prepare) = (Some(41), true);
    let first = rig.submit_with(1, false, false, adopts);
    assert!(matches!(rig.seen.last(), Some(Effect::Prepare(req, Some(_))) if *req == key(first)));
    assert!(!rig.seen.iter().any(|effect| matches!(effect, Effect::Note(Note::Started(..)))), "it may not be found");
    let ahead = rig.submit_with(1, false, true, |s| s.step = Some(43));
    assert_eq!(rig.drain(), Vec::<usize>::new());
    rig.apply(Event::Prepared(key(first), Preparation::Run(RequestMeta::default())));
    let (start, _, ops) = row(&mut rig);
    assert!(!start && matches!(ops[..], [SlotOp::Adopt(_, req)] if req == key(first)), "{ops:?}");
    assert_eq!(rig.drain(), [1]);
    assert_eq!((rig.answers[&first], rig.answers[&ahead]), (Ok(()), Ok(())));
    assert_eq!(rig.core.tombstone(&Id::Int(1)).map(|stone| stone.step), Some(43));
}

#[test]
fn a_state_that_is_not_found_begins_no_sequence() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let first = rig.submit_with(1, false, false, |s| (s.adopt, s.prepare) = (Some(41), true));
    let refusal = Refusal::Failed(4);
    rig.apply(Event::Prepared(key(first), Preparation::Refuse { refusal, ends: true }));
    assert_eq!((rig.answers[&first], rig.usage().live), (Err(refusal), 0));
    assert_eq!((rig.core.tombstone(&Id::Int(1)), rig.ended.len()), (None, 0));
}

/// The state goes back to the store. The step behind the cancelled one can be sent again, and then continues from there.
#[test]
fn a_step_behind_a_cancelled_one_learns_that_the_state_went_back() {
    let mut rig = Rig::new(LoadSpec { cancel_ends: false, ..spec(oldest(1), 1) });
    let first = rig.submit_with(1, false, false, |s| (s.adopt, s.prepare) = (Some(41), true));
    let behind = rig.submit(1, false, false);
    rig.apply(Event::Cancel(key(first)));
    assert_eq!(rig.answers[&first], Err(Refusal::Cancelled));
    assert_eq!(rig.answers[&behind], Err(Refusal::Ended(EndReason::Spilled)));
    assert_eq!((rig.usage().live, rig.ended_with.as_slice()), (0, [].as_slice()));
}

#[test]
fn a_counted_step_is_validated_against_the_state_that_it_adopts() {
    for (step, prepare, expected) in [
        (42, true, None),
        (41, true, None),
        (41, false, Some(Refusal::StepGone { want: 42 })),
        (40, true, Some(Refusal::StepGone { want: 42 })),
        (43, true, Some(Refusal::StepGap { want: 42 })),
    ] {
        let mut rig = Rig::new(spec(oldest(1), 1));
        let change = |s: &mut Submit| (s.adopt, s.step, s.prepare) = (Some(41), Some(step), prepare);
        let req = rig.submit_with(1, false, false, change);
        assert_eq!(rig.answers.get(&req).copied(), expected.map(Err), "{step} {prepare}");
    }
}

#[test]
fn an_adopted_sequence_has_the_idle_time_that_its_start_asked_for() {
    let longest = std::time::Duration::from_secs(60);
    let mut rig = Rig::new(LoadSpec { idle_longest: Some(longest), ..spec(oldest(1), 1) });
    let asked = std::time::Duration::from_secs(30);
    rig.submit_with(1, false, false, |s| (s.adopt, s.idle) = (Some(1), Some(asked)));
    rig.drain();
    rig.wait(29_000);
    assert_eq!(rig.usage().live, 1);
    rig.wait(2_000);
    assert_eq!(rig.usage().live, 0);
}
