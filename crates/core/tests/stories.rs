//! Faults that the properties have found in the core, each as the shortest scenario that shows it.

mod rig;

use std::num::NonZeroU32;
use std::time::Duration;

use rig::{MS, Rig, oldest, spec};
use sequor_core::*;

const ASKS: Hooks = Hooks {
    plan: false,
    admit: true,
    observe: false,
    columns: policy::columns::ALL,
    window: 0,
    numbers: 0,
    keys: 0,
    max_wait: None,
};
const PLANS: Hooks = Hooks {
    plan: true,
    admit: false,
    observe: false,
    columns: policy::columns::ALL,
    window: 0,
    numbers: 0,
    keys: 0,
    max_wait: None,
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn key(req: u32) -> Req {
    Req::new(req, NonZeroU32::MIN)
}

fn counted(step: u64) -> impl FnOnce(&mut Submit) {
    move |s| s.step = Some(step)
}

#[test]
fn a_policy_that_defers_beside_an_evictable_sequence_does_not_stop_the_clock() {
    let mut rig = Rig::new(LoadSpec { idle_soft: Some(ms(10)), external: Some(ASKS), ..spec(oldest(1), 1) });
    rig.submit(1, true, false);
    rig.wait(1000);
    rig.drain();
    rig.wait(20);
    rig.submit(2, true, false);
    // The victim is evictable since 10 ms, and no sequence took its slot. The next call must return.
    rig.wait(1);
    assert_eq!(rig.usage().backlog, 1);
}

/// A sequence that waits for long because no slot is free was not passed over: the policy is asked about the next slot.
#[test]
fn the_wait_limit_of_an_admission_counts_from_the_time_a_slot_is_free() {
    let mut rig = Rig::new(LoadSpec { external: Some(ASKS), ..spec(oldest(1), 1) });
    let admits = |rig: &mut Rig, answers: Vec<Admission>| {
        let round = rig.core.consult(rig.now, LoadId::FIRST).expect("a question");
        rig.core.answer(rig.now, round, PolicyAnswer::Admit(Ok(answers)), &mut Vec::new());
    };
    rig.submit(1, true, false);
    admits(&mut rig, vec![Admission::Take { instance: 0 }]);
    rig.drain();
    rig.submit(2, true, false);
    rig.submit(3, true, false);
    rig.wait(5000);
    rig.submit(1, false, true);
    rig.drain();
    admits(&mut rig, vec![Admission::Defer, Admission::Take { instance: 0 }]);
    let taken: Vec<&Effect> = rig.seen.iter().filter(|e| matches!(e, Effect::Note(Note::Fallback(_)))).collect();
    assert!(taken.is_empty(), "{taken:?}");
    assert_eq!((rig.usage().backlog, rig.batch().is_some()), (1, true), "the younger has the slot");
}

#[test]
fn the_policy_is_asked_about_a_new_start_after_a_cancelled_start() {
    let mut rig = Rig::new(LoadSpec { external: Some(ASKS), ..spec(oldest(1), 1) });
    let first = rig.submit(1, true, false);
    rig.apply(Event::Cancel(key(first)));
    assert!(rig.core.consult(rig.now, LoadId::FIRST).is_none());
    rig.seen.clear();
    rig.submit(2, true, false);
    assert!(rig.seen.contains(&Effect::Consult(LoadId::FIRST)), "{:?}", rig.seen);
    let round = rig.core.consult(rig.now, LoadId::FIRST).expect("a question");
    assert_eq!((round.see.backlog, round.see.live, rig.core.consult(rig.now, LoadId::FIRST).is_none()), (1, 1, true));
}

#[test]
fn the_end_of_an_older_sequence_does_not_hide_that_of_the_younger() {
    let mut rig = Rig::new(LoadSpec { depth: 2, ..spec(oldest(2), 1) });
    rig.submit(7, true, true);
    rig.submit(7, true, false);
    let (old, young) = (rig.batch().unwrap(), rig.batch().unwrap());
    rig.ran(&young);
    let young = rig.core.find(&Id::Int(7), None).unwrap();
    rig.apply(Event::End(young, EndReason::Admin));
    rig.ran(&old);
    assert_eq!(rig.core.tombstone(&Id::Int(7)).map(|stone| stone.why), Some(EndReason::Admin));
}

#[test]
fn a_sequence_that_left_while_a_step_ran_is_remembered_with_that_step() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit(7, true, false);
    let batch = rig.batch().unwrap();
    let seq = rig.core.find(&Id::Int(7), None).unwrap();
    rig.apply(Event::End(seq, EndReason::Admin));
    rig.ran(&batch);
    assert_eq!(rig.core.tombstone(&Id::Int(7)).map(|stone| stone.step), Some(1));
}

#[test]
fn a_repeated_step_never_gets_the_answer_of_an_earlier_incarnation() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit_with(1, true, false, counted(1));
    rig.submit_with(1, false, false, counted(2));
    rig.drain();
    rig.submit_with(1, true, false, counted(1));
    rig.submit_with(1, false, false, counted(2));
    let again = rig.submit_with(1, false, false, counted(2));
    assert_eq!(rig.answers.get(&again), Some(&Err(Refusal::StepBusy { step: 2 })));
}

#[test]
fn a_step_that_is_not_durable_yet_is_not_answered_again() {
    let mut rig = Rig::new(LoadSpec { stages: Stages { seal: true, ..Stages::default() }, ..spec(oldest(1), 1) });
    rig.submit_with(1, true, false, counted(1));
    rig.drain();
    let again = rig.submit_with(1, true, false, counted(1));
    assert_eq!(rig.answers.get(&again), Some(&Err(Refusal::StepBusy { step: 1 })));
}

#[test]
fn a_sequence_that_is_rolled_back_leaves_memory_without_an_end() {
    for why in [EndReason::RolledBack, EndReason::Unsealed] {
        let mut rig = Rig::new(LoadSpec { stages: Stages { seal: true, ..Stages::default() }, ..spec(oldest(1), 1) });
        rig.submit(1, true, false);
        let first = rig.batch().unwrap();
        rig.ran(&first);
        rig.apply(Event::Sealed(first.id, Vec::new()));
        let second = rig.submit(1, false, false);
        let batch = rig.batch().unwrap();
        rig.ran(&batch);
        let behind = rig.submit(1, false, true);
        rig.apply(Event::Sealed(batch.id, vec![(key(second), Refusal::Ended(why))]));
        let refused = Some(&Err(Refusal::Ended(why)));
        assert_eq!((rig.answers.get(&second), rig.answers.get(&behind)), (refused, refused));
        assert_eq!((rig.ended.as_slice(), rig.usage().live), ([why].as_slice(), 0));
        let is_end = why == EndReason::Unsealed;
        assert_eq!(rig.ended_with.len(), if is_end { 2 } else { 0 }, "{why:?}");
        assert_eq!(rig.core.tombstone(&Id::from(1)).is_some(), is_end, "{why:?}");
    }
}

#[test]
fn a_cancelled_step_is_expected_again_where_the_sequence_lives_on() {
    let mut rig = Rig::new(LoadSpec { cancel_ends: false, ..spec(oldest(1), 1) });
    rig.submit_with(1, true, false, counted(1));
    let second = rig.submit_with(1, false, false, counted(2));
    let third = rig.submit_with(1, false, false, counted(3));
    rig.apply(Event::Cancel(key(second)));
    assert_eq!(rig.answers.get(&third), Some(&Err(Refusal::StepGap { want: 2 })));
    let retry = rig.submit_with(1, false, false, counted(2));
    rig.drain();
    assert_eq!(rig.answers.get(&retry), Some(&Ok(())));
}

#[test]
fn a_cancelled_end_does_not_revive_a_replaced_sequence() {
    let mut rig = Rig::new(LoadSpec { cancel_ends: false, ..spec(oldest(2), 1) });
    rig.submit(7, true, false);
    let end = rig.submit(7, false, true);
    rig.submit(7, true, true);
    rig.apply(Event::Cancel(key(end)));
    rig.drain();
    let late = rig.submit(7, false, false);
    assert!(matches!(rig.answers.get(&late), Some(Err(Refusal::Unknown(_)))), "{:?}", rig.answers.get(&late));
    assert_eq!(rig.usage().live, 0);
}

#[test]
fn sequences_in_preparation_count_against_the_limits() {
    let stages = Stages { initialize: true, ..Stages::default() };
    let limits = LoadLimits { backlog: 1, ..LoadLimits::default() };
    let mut rig = Rig::new(LoadSpec { stages, limits, ..spec(oldest(1), 1) });
    let starts: Vec<u32> = (1..=3).map(|id| rig.submit(id, true, false)).collect();
    let refused = rig.answers.get(&starts[2]);
    assert!(matches!(refused, Some(Err(Refusal::BacklogFull { .. }))), "{refused:?}");
    let ovms = rig.submit_with(9, true, false, |s| s.dialect = Dialect::OVMS);
    assert_eq!(rig.answers.get(&ovms), Some(&Err(Refusal::TooMany { limit: 1 })));
}

#[test]
fn a_victim_within_its_soft_idle_time_is_not_evicted() {
    let mut rig = Rig::new(LoadSpec { idle_soft: Some(ms(100)), ..spec(oldest(1), 1) });
    rig.submit(1, true, false);
    rig.drain();
    let ovms = rig.submit_with(2, true, false, |s| s.dialect = Dialect::OVMS);
    assert_eq!(rig.answers.get(&ovms), Some(&Err(Refusal::TooMany { limit: 1 })));
}

#[test]
fn a_start_behind_an_unknown_step_opens_a_sequence() {
    let stages = Stages { activate: true, ..Stages::default() };
    let mut rig = Rig::new(LoadSpec { stages, ..spec(oldest(1), 1) });
    let (stray, start) = (rig.submit(1, false, false), rig.submit(1, true, false));
    rig.apply(Event::Prepared(key(stray), Preparation::Refuse { refusal: Refusal::Unknown(None), ends: false }));
    rig.apply(Event::Prepared(key(start), Preparation::Run(RequestMeta::default())));
    rig.drain();
    assert_eq!((rig.answers.get(&stray), rig.answers.get(&start)), (Some(&Err(Refusal::Unknown(None))), Some(&Ok(()))));
}

#[test]
fn a_wait_answered_by_a_detached_policy_delays_no_request() {
    let mut rig = Rig::new(LoadSpec { external: Some(PLANS), ..spec(oldest(1), 1) });
    rig.submit(1, true, false);
    let Next::Ask(round) = rig.next() else { panic!("no question") };
    rig.apply(Event::Attach(LoadId::FIRST, None));
    let late = Decision::Wait(Time(900 * MS));
    let next = rig.core.answer(rig.now, round, PolicyAnswer::Plan(Ok(late)), &mut Vec::new());
    assert!(matches!(next, Next::Run(_)), "{next:?}");
}

/// A policy may be parked for its answer before the answer arrives. The round still counts as its own.
#[test]
fn an_open_round_counts_one_fallback_if_its_policy_is_detached() {
    let plans = |hooks| {
        let mut rig = Rig::new(LoadSpec { external: Some(PLANS), ..spec(oldest(1), 1) });
        rig.submit(1, true, false);
        let Next::Ask(round) = rig.next() else { panic!("no question") };
        rig.seen.clear();
        rig.apply(Event::Attach(LoadId::FIRST, hooks));
        let mut out = std::mem::take(&mut rig.seen);
        rig.core.answer(rig.now, round, PolicyAnswer::Plan(Err(PolicyFault::Trap)), &mut out);
        out.iter().filter(|e| **e == Effect::Note(Note::Fallback(LoadId::FIRST))).count()
    };
    assert_eq!(
        (plans(None), plans(Some(ASKS)), plans(Some(PLANS))),
        (1, 0, 0),
        "where another decides, nothing is lost"
    );
    let mut rig = Rig::new(LoadSpec { external: Some(ASKS), ..spec(oldest(1), 1) });
    rig.submit(1, true, false);
    let round = rig.core.consult(rig.now, LoadId::FIRST).expect("a question");
    rig.seen.clear();
    rig.apply(Event::Attach(LoadId::FIRST, None));
    let mut out = std::mem::take(&mut rig.seen);
    rig.core.answer(rig.now, round, PolicyAnswer::Admit(Err(PolicyFault::Trap)), &mut out);
    assert_eq!(out.iter().filter(|e| **e == Effect::Note(Note::Fallback(LoadId::FIRST))).count(), 1);
}

#[test]
fn a_policy_answer_that_waits_until_now_runs_the_batch_at_once() {
    let mut rig = Rig::new(LoadSpec { external: Some(PLANS), ..spec(oldest(1), 1) });
    rig.submit(1, true, false);
    let Next::Ask(round) = rig.next() else { panic!("no question") };
    let next = rig.core.answer(rig.now, round, PolicyAnswer::Plan(Ok(Decision::Wait(rig.now))), &mut Vec::new());
    assert!(matches!(next, Next::Run(_)), "{next:?}");
}

#[test]
fn a_stateless_request_wakes_an_instance_that_can_take_it() {
    let strategy = Strategy::Stateless { batching: false, preferred: vec![], delay: Duration::ZERO, in_order: false };
    let mut rig = Rig::new(LoadSpec { instances: 2, ..spec(strategy, 1) });
    let other = Instance { load: LoadId::FIRST, n: 1 };
    rig.submit(0, false, false);
    assert!(rig.batch().is_some());
    // The first instance is busy and asleep, as with a second batch in flight. The other has nothing to do.
    assert!(matches!(rig.next(), Next::Sleep(None)));
    assert!(matches!(rig.core.next(rig.now, other, &mut Vec::new()), Next::Sleep(None)));
    rig.seen.clear();
    rig.submit(0, false, false);
    assert_eq!(rig.seen, [Effect::Wake(other)]);
}

#[test]
fn a_retired_load_stops_after_its_last_stateless_answer() {
    let strategy = Strategy::Stateless { batching: false, preferred: vec![], delay: Duration::ZERO, in_order: false };
    let stages = Stages { post: true, ..Stages::default() };
    let mut rig = Rig::new(LoadSpec { stages, ..spec(strategy, 1) });
    let req = rig.submit(0, false, false);
    rig.drain();
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time::NEVER });
    assert!(matches!(rig.next(), Next::Sleep(_)));
    rig.seen.clear();
    rig.apply(Event::Posted(key(req)));
    assert!(rig.seen.iter().any(|e| matches!(e, Effect::Wake(_))), "{:?}", rig.seen);
    assert!(matches!(rig.next(), Next::Gone));
}

/// The columns that a policy wants also hold for sequences that wait for a slot, and for those that could lose one.
#[test]
fn an_admission_shows_no_more_than_was_asked_for() {
    let few = Hooks { columns: policy::columns::STEP, window: 1, ..ASKS };
    let mut rig = Rig::new(LoadSpec { idle_soft: Some(ms(10)), external: Some(few), ..spec(oldest(2), 2) });
    rig.submit(1, true, false);
    rig.submit(2, true, false);
    rig.wait(1000);
    rig.drain();
    rig.submit(3, true, false);
    rig.submit(4, true, false);
    let round = rig.core.consult(rig.now, LoadId::FIRST).expect("a question");
    let PolicyQuestion::Admit { victims, .. } = &round.asked else { panic!("{round:?}") };
    assert_eq!((round.see.len, round.see.not_shown, victims.len), (1, 1, 1));
    assert_eq!((victims.step.len(), victims.seq.len(), victims.ready.len(), victims.slot.len()), (1, 0, 0, 0));
}

/// Before its thread has stored the state of a new life, a slot holds another client's state.
#[test]
fn a_state_is_readable_once_the_first_run_of_its_incarnation_has_ended() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let at = |rig: &Rig| rig.core.state_of(rig.core.find(&Id::Int(1), None).expect("a sequence")).map(|at| at.step);
    rig.submit(1, true, false);
    assert_eq!(at(&rig), None);
    let batch = rig.batch().expect("a batch");
    assert!(matches!(batch.ops[..], [SlotOp::Init(..)]));
    assert_eq!(at(&rig), None, "its thread has the batch and has not given the slot its state");
    rig.ran(&batch);
    assert_eq!(at(&rig), Some(1));
    rig.submit(1, false, false);
    let batch = rig.batch().expect("a batch");
    assert_eq!(at(&rig), Some(1), "a step leaves the state of the one before until it has run");
    rig.ran(&batch);
    // A START on the live id: until it has run, the slot holds the state of the previous life.
    rig.submit(1, true, false);
    assert_eq!(at(&rig), Some(2));
    let batch = rig.batch().expect("a batch");
    assert_eq!(at(&rig), None);
    rig.ran(&batch);
    assert_eq!(at(&rig), Some(1));
}

/// The state of the previous life is not that of a START which was answered without a run.
#[test]
fn a_start_answered_without_a_run_hides_the_state_of_the_old_incarnation() {
    let stages = Stages { pre: true, ..Stages::default() };
    let mut rig = Rig::new(LoadSpec { stages, ..spec(oldest(1), 1) });
    let start = rig.submit(1, true, false);
    rig.apply(Event::Prepared(key(start), Preparation::Run(RequestMeta::default())));
    rig.drain();
    let seq = rig.core.find(&Id::Int(1), None).expect("a sequence");
    assert_eq!(rig.core.state_of(seq).map(|at| at.step), Some(1));
    let again = rig.submit(1, true, false);
    rig.apply(Event::Prepared(key(again), Preparation::Reply));
    assert_eq!((rig.answers[&again], rig.core.state_of(seq)), (Ok(()), None));
}

fn in_order() -> LoadSpec {
    let strategy = Strategy::Oldest { slots: 2, preferred: vec![], delay: Duration::ZERO, in_order: true };
    LoadSpec { depth: 2, ..spec(strategy, 1) }
}

#[test]
fn a_step_whose_answer_waits_for_its_turn_is_busy_and_not_repeated() {
    let mut rig = Rig::new(in_order());
    for id in [1, 2] {
        rig.submit_with(id, true, false, counted(1));
    }
    rig.drain();
    let (first, second) = (rig.submit_with(1, false, false, counted(2)), rig.submit_with(2, false, false, counted(2)));
    let (slow, quick) = (rig.batch().expect("a batch"), rig.batch().expect("a batch beside it"));
    rig.ran(&quick);
    assert_eq!(rig.answers.get(&second), None, "it waits for the one that was taken before it");
    let seq = rig.core.find(&Id::Int(2), None).expect("a sequence");
    assert!(!rig.core.is_answered(seq));
    let early = rig.submit_with(2, false, false, counted(2));
    assert_eq!(rig.answers[&early], Err(Refusal::StepBusy { step: 2 }));
    let before = rig.submit_with(2, false, false, counted(1));
    assert_eq!(rig.answers[&before], Err(Refusal::StepGone { want: 3 }));
    rig.ran(&slow);
    assert_eq!((rig.answers[&first], rig.answers[&second]), (Ok(()), Ok(())));
    rig.seen.clear();
    let late = rig.submit_with(2, false, false, counted(2));
    assert_eq!(rig.seen, [Effect::Replay(key(late), seq)]);
}

#[test]
fn an_answer_without_a_run_is_sent_after_the_answers_of_earlier_requests() {
    let stages = Stages { pre: true, ..Stages::default() };
    let mut rig = Rig::new(LoadSpec { stages, ..in_order() });
    let runs = |rig: &mut Rig, req| rig.apply(Event::Prepared(key(req), Preparation::Run(RequestMeta::default())));
    for id in [1, 2] {
        let start = rig.submit(id, true, false);
        runs(&mut rig, start);
    }
    let (slow, quick) = (rig.batch().expect("a batch"), rig.batch().expect("a batch beside it"));
    let replied = rig.submit(2, false, false);
    rig.ran(&quick);
    rig.apply(Event::Prepared(key(replied), Preparation::Reply));
    assert!(rig.answers.is_empty(), "{:?}", rig.answers);
    rig.ran(&slow);
    let left: Vec<u32> =
        rig.seen.iter().filter_map(|e| if let Effect::Release(req) = e { Some(req.ix) } else { None }).collect();
    assert_eq!(left, [0, 1, replied]);
}

/// A client may set a far deadline, and is still answered at once.
#[test]
fn deadlines_of_answered_requests_are_not_kept() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit(1, true, false);
    rig.drain();
    for _ in 0..10_000 {
        rig.submit_with(1, false, false, |s| s.queue_until = Some(Time(u64::MAX / 2)));
        rig.drain();
    }
    let waits = rig.submit_with(1, false, false, |s| s.queue_until = Some(Time(MS)));
    assert!(rig.core.armed() <= 64 + 2 * 3, "{} armed", rig.core.armed());
    rig.wait(1);
    assert!(matches!(rig.answers[&waits], Err(Refusal::QueueTimeout { .. })), "a deadline of one that waits is kept");
}
