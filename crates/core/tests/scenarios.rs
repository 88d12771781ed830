//! The core's behaviour in short scenarios, with virtual time, one thread that pulls, and answers collected by request.

mod rig;

use std::num::NonZeroU32;
use std::time::Duration;

use rig::{MS, Rig, oldest, spec};
use sequor_core::*;

#[test]
fn a_sequence_starts_steps_and_ends_and_its_id_is_unknown_afterwards() {
    let mut rig = Rig::new(spec(oldest(2), 2));
    let (a, b, c) = (rig.submit(7, true, false), rig.submit(7, false, false), rig.submit(7, false, true));
    assert_eq!(rig.drain(), [1, 1, 1]);
    assert!([a, b, c].iter().all(|r| rig.answers[r] == Ok(())));
    let late = rig.submit(7, false, false);
    let Err(Refusal::Unknown(Some(stone))) = rig.answers[&late] else { panic!("{:?}", rig.answers[&late]) };
    assert_eq!((stone.why, stone.step, rig.usage().slots_used), (EndReason::End, 3, 0));
    let never = rig.submit(8, false, false);
    assert_eq!(rig.answers[&never], Err(Refusal::Unknown(None)));
}

#[test]
fn a_batch_never_has_two_requests_of_a_sequence() {
    let mut rig = Rig::new(spec(oldest(4), 4));
    for id in [1, 2] {
        rig.submit(id, true, false);
        rig.submit(id, false, false);
    }
    assert_eq!(rig.drain(), [2, 2]);
}

#[test]
fn a_sequence_without_a_slot_waits_in_the_backlog_and_queues_requests() {
    let mut rig = Rig::new(spec(oldest(1), 4));
    rig.submit(1, true, false);
    let waits = rig.submit(2, true, false);
    let behind = rig.submit(2, false, true);
    rig.drain();
    assert_eq!((rig.usage().backlog, rig.answers.get(&waits)), (1, None));
    rig.submit(1, false, true);
    rig.drain();
    assert_eq!((rig.answers[&waits], rig.answers[&behind]), (Ok(()), Ok(())));
    assert_eq!(rig.usage(), Usage { live: 0, backlog: 0, slots_used: 0, slots: 1, ready: 0 });
}

#[test]
fn an_id_can_start_again_before_its_end_has_run() {
    let mut rig = Rig::new(spec(oldest(2), 2));
    rig.submit(5, true, true);
    rig.submit(5, true, false);
    assert_eq!(rig.drain(), [2]);
    assert_eq!((rig.usage().live, rig.ended.clone()), (1, vec![EndReason::End]));
}

#[test]
fn a_start_on_a_live_id_restarts_it_in_its_slot() {
    let mut rig = Rig::new(spec(oldest(2), 2));
    rig.submit(5, true, false);
    rig.drain();
    rig.submit(5, true, false);
    let batch = rig.batch().unwrap();
    assert!(matches!(batch.ops[..], [SlotOp::Init(slot, _)] if slot.ix == 0));
    rig.ran(&batch);
    assert_eq!((rig.ended.clone(), rig.usage().live), (vec![EndReason::Restarted], 1));
}

#[test]
fn idle_time_runs_from_the_later_of_arrival_and_completion() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit(1, true, false);
    let batch = rig.batch().unwrap();
    rig.wait(5_000);
    rig.ran(&batch);
    rig.wait(999);
    assert_eq!(rig.usage().live, 1);
    rig.wait(1);
    assert_eq!((rig.usage().live, rig.ended.clone()), (0, vec![EndReason::Idle]));
    assert!(matches!(rig.next(), Next::Tidy(ops) if matches!(ops[..], [SlotOp::Free(_)])));
}

#[test]
fn an_idle_sequence_ends_at_the_second_of_two_scans() {
    let expiry = Expiry::TwoScans { every: Duration::from_secs(10) };
    let mut rig = Rig::new(LoadSpec { expiry, ..spec(oldest(4), 4) });
    rig.submit(1, true, false);
    rig.drain();
    rig.wait(9_000);
    rig.submit(2, true, false);
    rig.drain();
    // A step between the scans at 10 s and 20 s keeps the second sequence.
    rig.wait(6_000);
    rig.submit(2, false, false);
    rig.drain();
    for (live, ended) in [(1, vec![EndReason::Idle]), (0, vec![EndReason::Idle; 2])] {
        rig.wait(9_999 - rig.now.0 / MS % 10_000);
        assert_eq!(rig.usage().live, live + 1);
        rig.wait(1);
        assert_eq!((rig.usage().live, rig.ended.clone()), (live, ended));
    }
}

#[test]
fn a_start_may_ask_for_its_own_idle_time_up_to_the_longest() {
    let asks = |ms| move |s: &mut Submit| s.idle = Some(Duration::from_millis(ms));
    let longest = Some(Duration::from_secs(3));
    let mut rig = Rig::new(LoadSpec { idle_longest: longest, ..spec(oldest(4), 4) });
    rig.submit_with(1, true, false, asks(2000));
    rig.submit_with(2, true, false, asks(500));
    rig.submit_with(3, true, false, asks(60_000));
    rig.submit(4, true, false);
    rig.drain();
    // A later step cannot change the idle time.
    rig.submit_with(4, false, false, asks(60_000));
    rig.drain();
    let ends = [500, 1000, 2000, 3000].map(|at| {
        rig.wait(at - rig.now.0 / MS - 1);
        let before = rig.usage().live;
        rig.wait(1);
        (before, rig.usage().live)
    });
    assert_eq!(ends, [(4, 3), (3, 2), (2, 1), (1, 0)]);
    assert_eq!(rig.core.tombstone(&Id::Int(3)).and_then(|stone| stone.idle), longest);

    // Without a maximum, no idle time can be asked for.
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit_with(1, true, false, asks(500));
    rig.drain();
    rig.wait(999);
    assert_eq!(rig.usage().live, 1);
}

#[test]
fn cancelling_a_queued_step_ends_the_sequence_and_a_running_step_finishes() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let first = rig.submit(1, true, false);
    let second = rig.submit(1, false, false);
    let third = rig.submit(1, false, false);
    let batch = rig.batch().unwrap();
    rig.apply(Event::Cancel(Req::new(first, NonZeroU32::MIN)));
    rig.apply(Event::Cancel(Req::new(second, NonZeroU32::MIN)));
    assert_eq!((rig.answers[&second], rig.answers[&third]), (Err(Refusal::Cancelled), Err(Refusal::Cancelled)));
    rig.ran(&batch);
    assert_eq!((rig.answers[&first], rig.usage().live, rig.ended.clone()), (Ok(()), 0, vec![EndReason::Cancelled]));
}

#[test]
fn direct_pads_the_holes_below_the_highest_ready_row() {
    let strategy = Strategy::Direct { rows: RowLayout::Fixed, delay: Duration::ZERO, min_use: 0.0 };
    let mut rig = Rig::new(spec(strategy, 4));
    for id in 1..=3 {
        rig.submit(id, true, false);
    }
    assert_eq!(rig.drain(), [3]);
    rig.submit(3, false, false);
    let batch = rig.batch().unwrap();
    assert_eq!(batch.rows.len(), 3);
    assert!(matches!(batch.rows[..], [Row::Pad, Row::Pad, Row::Real(_)]));
}

#[test]
fn an_idle_victim_gives_its_slot_to_a_start_in_need() {
    let mut rig = Rig::new(LoadSpec { idle_soft: Some(Duration::from_millis(100)), ..spec(oldest(1), 1) });
    rig.submit(1, true, false);
    rig.drain();
    let waits = rig.submit(2, true, false);
    assert_eq!(rig.drain(), Vec::<usize>::new());
    rig.wait(100);
    assert_eq!(rig.drain(), [1]);
    assert_eq!((rig.answers[&waits], rig.ended.clone()), (Ok(()), vec![EndReason::Evicted]));
}

#[test]
fn a_reload_takes_new_starts_and_live_sequences_finish_where_they_began() {
    let mut rig = Rig::new(spec(oldest(2), 2));
    rig.submit(1, true, false);
    rig.drain();
    rig.apply(Event::Loaded(LoadId::new(1, NonZeroU32::MIN), LoadSpec { version: 2, ..spec(oldest(2), 2) }));
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time(10_000 * MS) });
    rig.submit(2, true, false);
    assert_eq!(rig.core.usage(LoadId::new(1, NonZeroU32::MIN)).live, 1);
    let stays = rig.submit(1, false, true);
    assert_eq!(rig.drain(), [1]);
    assert_eq!(rig.answers[&stays], Ok(()));
    assert!(matches!(rig.next(), Next::Gone));
}

#[test]
fn a_retired_load_that_stays_resumes_states_until_its_limit() {
    let mut rig = Rig::new(spec(oldest(2), 2));
    let new = LoadId::new(1, NonZeroU32::MIN);
    rig.apply(Event::Loaded(new, LoadSpec { version: 2, ..spec(oldest(2), 2) }));
    rig.apply(Event::Stay(LoadId::FIRST));
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time(100 * MS) });
    assert!(matches!(rig.next(), Next::Sleep(_)), "nothing lives on it, and it stays");
    let on_old = |s: &mut Submit| (s.adopt, s.adopt_on) = (Some(4), Some(LoadId::FIRST));
    let step = rig.submit_with(1, false, false, on_old);
    rig.submit_with(2, true, false, on_old);
    assert_eq!((rig.core.usage(LoadId::FIRST).live, rig.core.usage(new).live), (1, 1), "a START goes to the new one");
    assert_eq!((rig.drain(), rig.answers[&step]), (vec![1], Ok(())));
    rig.wait(100);
    assert_eq!(rig.ended, [EndReason::Drained]);
    rig.submit_with(3, false, false, on_old);
    assert_eq!((rig.core.usage(LoadId::FIRST).live, rig.core.usage(new).live), (0, 2), "its time is over");
    assert!(matches!(rig.next(), Next::Tidy(_)) && matches!(rig.next(), Next::Gone));
}

/// Its last sequence goes back to the store, and only this load can go on from the state.
#[test]
fn a_load_that_is_retired_already_stays_if_another_one_serves() {
    for serves in [true, false] {
        let mut rig = Rig::new(spec(oldest(2), 2));
        rig.submit(1, true, false);
        rig.drain();
        if serves {
            rig.apply(Event::Loaded(LoadId::new(1, NonZeroU32::MIN), LoadSpec { version: 2, ..spec(oldest(2), 2) }));
        }
        rig.apply(Event::Retire { load: LoadId::FIRST, until: Time(100 * MS) });
        rig.apply(Event::Stay(LoadId::FIRST));
        let seq = rig.core.find(&Id::from(1), None).unwrap();
        rig.apply(Event::End(seq, EndReason::RolledBack));
        assert_eq!(rig.core.takes_back(rig.now, LoadId::FIRST), serves);
        rig.wait(100);
        assert!(!rig.core.takes_back(rig.now, LoadId::FIRST));
    }
}

/// Moves all waiting sequences of the first load that may move.
fn move_starts(rig: &mut Rig, to: LoadId) -> usize {
    let waiting = rig.core.waiting_starts(LoadId::FIRST);
    let may = waiting.into_iter().filter(|seq| rig.core.may_move(rig.now, *seq, to)).collect::<Vec<_>>();
    may.iter().for_each(|seq| rig.apply(Event::MoveStart(*seq, to)));
    may.len()
}

#[test]
fn waiting_starts_of_a_replaced_load_begin_on_the_next_one() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let new = LoadId::new(1, NonZeroU32::MIN);
    let lives = rig.submit(1, true, false);
    let whole = [rig.submit(2, true, false), rig.submit(2, false, false), rig.submit(2, false, true)];
    let names = rig.submit_with(3, true, false, |s| s.version = Some(1));
    let timed = rig.submit_with(4, true, false, |s| s.backlog_until = Some(Time(50 * MS)));
    let last = rig.submit(5, true, false);
    rig.apply(Event::Loaded(new, LoadSpec { version: 2, ..spec(oldest(2), 2) }));
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time(100 * MS) });
    assert_eq!(move_starts(&mut rig, new), 3);
    let usage = |rig: &Rig, load: LoadId| (rig.core.usage(load).live, rig.core.usage(load).backlog);
    assert_eq!((usage(&rig, LoadId::FIRST), usage(&rig, new)), ((2, 1), (3, 1)), "two slots, in the order of the wait");
    assert_eq!((rig.answers.len(), rig.ended.as_slice()), (0, [EndReason::Spilled; 3].as_slice()), "none is refused");
    let late = rig.submit(5, false, false);
    rig.serves = new;
    rig.drain();
    assert!(whole.iter().chain([&timed, &last, &late]).all(|req| rig.answers[req] == Ok(())), "{:?}", rig.answers);
    rig.serves = LoadId::FIRST;
    rig.drain();
    assert_eq!(rig.answers[&lives], Ok(()));
    rig.wait(100);
    assert_eq!(rig.answers[&names], Err(Refusal::Ended(EndReason::Drained)), "it waits for its version");
    assert_eq!(usage(&rig, LoadId::FIRST).0, 0);
}

#[test]
fn a_moved_start_keeps_its_deadline_and_a_full_load_takes_none() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let (new, full) = (LoadId::new(1, NonZeroU32::MIN), LoadId::new(2, NonZeroU32::MIN));
    rig.submit(1, true, false);
    let timed = rig.submit_with(2, true, false, |s| s.backlog_until = Some(Time(50 * MS)));
    let mut none = spec(oldest(1), 1);
    none.limits.live = 1;
    rig.apply(Event::Loaded(full, none));
    rig.submit(8, true, false);
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time(1000 * MS) });
    assert_eq!(move_starts(&mut rig, full), 0, "it has as many sequences as it may have");
    rig.apply(Event::Loaded(new, LoadSpec { version: 2, ..spec(oldest(1), 1) }));
    rig.submit(9, true, false);
    assert_eq!(move_starts(&mut rig, new), 1);
    rig.wait(50);
    assert!(
        matches!(rig.answers[&timed], Err(Refusal::BacklogTimeout { waited, .. }) if waited == Duration::from_millis(50))
    );
}

#[test]
fn a_retired_load_does_not_stay_if_no_load_takes_new_sequences() {
    let mut rig = Rig::new(spec(oldest(2), 2));
    rig.apply(Event::Stay(LoadId::FIRST));
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time(100 * MS) });
    assert!(matches!(rig.next(), Next::Gone));
}

#[test]
fn a_backlogged_sequence_is_refused_with_all_its_requests_at_its_timeout() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit(1, true, false);
    rig.drain();
    let until = |s: &mut Submit| s.backlog_until = Some(Time(50 * MS));
    let (a, b) = (rig.submit_with(2, true, false, until), rig.submit(2, false, false));
    rig.wait(50);
    for req in [a, b] {
        assert!(matches!(rig.answers[&req], Err(Refusal::BacklogTimeout { .. })), "{:?}", rig.answers[&req]);
    }
}

#[test]
fn a_policys_rejection_reports_whether_it_ended_the_sequence() {
    let hooks = Hooks { plan: true, columns: policy::columns::ALL, ..Hooks::default() };
    let rejects_the_first = |rig: &mut Rig, ends: bool| {
        let Next::Ask(mut round) = rig.next() else { panic!("no question") };
        round.picks.reject = vec![Rejection { candidate: 0, code: 7, ends }];
        let mut out = Vec::new();
        rig.core.answer(rig.now, round, PolicyAnswer::Plan(Ok(Decision::Fire)), &mut out);
        rig.take(out);
    };
    for (ends, ended) in [(true, vec![1, 2]), (false, vec![])] {
        // `cancel_ends` has the opposite value, because it must not affect rejections.
        let mut rig = Rig::new(LoadSpec { cancel_ends: !ends, ..spec(oldest(1), 1) });
        rig.submit(1, true, false);
        rig.drain();
        rig.apply(Event::Attach(LoadId::FIRST, Some(hooks)));
        rig.submit(1, false, false);
        rig.submit(1, false, false);
        rejects_the_first(&mut rig, ends);
        assert_eq!(rig.answers[&1], Err(Refusal::Policy(7)));
        assert_eq!((rig.ended_with.clone(), rig.usage().live == 0), (ended, ends));
    }
}

#[test]
fn ovms_refuses_where_triton_waits_or_restarts() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let ovms = |s: &mut Submit| s.dialect = Dialect::OVMS;
    rig.submit_with(1, true, false, ovms);
    rig.drain();
    let live = rig.submit_with(1, true, false, ovms);
    let full = rig.submit_with(2, true, false, ovms);
    assert_eq!((rig.answers[&live], rig.answers[&full]), (Err(Refusal::Live), Err(Refusal::TooMany { limit: 1 })));
    rig.submit_with(1, false, true, ovms);
    let ending = rig.submit_with(1, true, false, ovms);
    assert_eq!(rig.answers[&ending], Err(Refusal::Ending));
    rig.drain();
    let assigned = rig.submit_with(0, true, false, |s| (s.dialect, s.fresh_id) = (Dialect::OVMS, 99));
    rig.drain();
    assert_eq!((rig.answers[&assigned], rig.core.find(&Id::Int(99), None).is_some()), (Ok(()), true));
}

#[test]
fn counted_steps_are_taken_once() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let step = |n| move |s: &mut Submit| s.step = Some(n);
    rig.submit_with(1, true, false, step(1));
    rig.submit_with(1, false, false, step(2));
    let busy = rig.submit_with(1, false, false, step(2));
    assert_eq!(rig.answers[&busy], Err(Refusal::StepBusy { step: 2 }));
    rig.drain();
    rig.submit_with(1, false, false, step(2));
    assert!(matches!(rig.seen.last(), Some(Effect::Replay(..))));
    let gap = rig.submit_with(1, false, false, step(5));
    let gone = rig.submit_with(1, false, false, step(1));
    assert_eq!(
        (rig.answers[&gap], rig.answers[&gone]),
        (Err(Refusal::StepGap { want: 3 }), Err(Refusal::StepGone { want: 3 }))
    );
}

#[test]
fn a_step_continues_from_a_state_that_the_driver_holds() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let goes_on = rig.submit_with(1, false, false, |s| (s.adopt, s.step) = (Some(41), Some(42)));
    let batch = rig.batch().unwrap();
    assert!(matches!(batch.ops[..], [SlotOp::Adopt(..)]), "{:?}", batch.ops);
    rig.ran(&batch);
    let again = rig.submit_with(1, false, true, |s| s.step = Some(43));
    assert_eq!(rig.drain(), [1]);
    assert_eq!((rig.answers[&goes_on], rig.answers[&again]), (Ok(()), Ok(())));
    assert_eq!(rig.core.tombstone(&Id::Int(1)).map(|t| t.step), Some(43));
}

#[test]
fn a_load_with_a_hold_starts_once_enough_requests_wait_and_never_holds_again() {
    let strategy = Strategy::Direct { rows: RowLayout::Compact, delay: Duration::ZERO, min_use: 0.0 };
    let mut rig = Rig::new(LoadSpec { hold: Some(Hold { requests: 3, backlog: 1 }), ..spec(strategy, 2) });
    rig.submit(1, true, false);
    rig.submit(1, false, false);
    rig.submit(2, true, false);
    assert_eq!(rig.drain(), Vec::<usize>::new(), "the backlog is empty");
    rig.submit(3, true, false);
    assert_eq!(rig.drain(), [2, 1]);
    rig.submit(1, false, false);
    assert_eq!(rig.drain(), [1]);
}

#[test]
fn an_invalid_policy_answer_is_discarded_and_the_built_in_policy_decides() {
    let hooks = Hooks { plan: true, columns: policy::columns::ALL, ..Hooks::default() };
    let mut rig = Rig::new(LoadSpec { external: Some(hooks), ..spec(oldest(2), 2) });
    rig.submit(1, true, false);
    let Next::Ask(mut round) = rig.next() else { panic!("no question") };
    round.picks.fire = vec![0, 3];
    let mut out = Vec::new();
    let next = rig.core.answer(rig.now, round, PolicyAnswer::Plan(Ok(Decision::Fire)), &mut out);
    assert!(out.contains(&Effect::Note(Note::Fault(LoadId::FIRST, PolicyFault::Index))), "{out:?}");
    assert!(matches!(next, Next::Run(batch) if batch.real().count() == 1));
}

#[test]
fn picks_that_went_stale_are_dropped_without_a_fault() {
    let hooks = Hooks { plan: true, columns: policy::columns::ALL, ..Hooks::default() };
    let mut rig = Rig::new(LoadSpec { external: Some(hooks), ..spec(oldest(2), 2) });
    let gone = rig.submit(1, true, false);
    rig.submit(2, true, false);
    let Next::Ask(mut round) = rig.next() else { panic!("no question") };
    rig.apply(Event::Cancel(Req::new(gone, NonZeroU32::MIN)));
    round.picks.fire = vec![0, 1];
    let mut out = Vec::new();
    let next = rig.core.answer(rig.now, round, PolicyAnswer::Plan(Ok(Decision::Fire)), &mut out);
    assert_eq!(out, [Effect::Note(Note::Stale(LoadId::FIRST, 1))]);
    assert!(matches!(next, Next::Run(batch) if batch.real().count() == 1));
}

#[test]
fn operators_list_live_sequences_in_pages_and_ended_sequences() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit(1, true, false);
    rig.drain();
    rig.wait(100);
    rig.submit_with(2, true, false, |s| s.backlog_until = Some(Time(400 * MS)));
    rig.submit(2, false, false);
    let (seen, rest) = rig.core.seen(0, 1);
    assert_eq!((seen.len(), rest), (1, Some(1)));
    let [first] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((&first.id, first.stage, first.placement, first.step), (&Id::Int(1), Stage::Idle, Some((0, 0)), 1));
    assert_eq!(first.due, Time(1000 * MS));
    let (seen, rest) = rig.core.seen(1, 100);
    let [second] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(
        (second.stage, second.queued, second.began, second.due),
        (Stage::Backlogged, 2, Time(100 * MS), Time(400 * MS))
    );
    assert_eq!((first.waits_since, second.waits_since), (None, Some(Time(100 * MS))));
    assert_eq!((rest, rig.core.seen(7, 100)), (None, (vec![], None)));

    rig.wait(50);
    rig.submit(1, true, false);
    rig.submit(2, true, false);
    let began: Vec<_> = rig.core.seen(0, 100).0.into_iter().map(|seen| (seen.began, seen.waits_since)).collect();
    let (now, waits) = (Time(150 * MS), Some(Time(100 * MS)));
    assert_eq!(began, [(now, None), (now, waits)], "a START begins a new life, and keeps the place in the backlog");
    rig.drain();

    rig.apply(Event::End(first.seq, EndReason::Admin));
    rig.drain();
    let ended = rig.core.ended(10);
    assert_eq!(
        ended.iter().map(|(id, stone)| (id.clone(), stone.why)).collect::<Vec<_>>(),
        [(Id::Int(1), EndReason::Admin)]
    );
}

/// A request without a sequence, in this level.
fn of_level(rig: &mut Rig, level: u32, change: impl FnOnce(&mut Submit)) -> u32 {
    rig.submit_with(0, false, false, |submit| {
        (submit.id, submit.queue.level) = (Id::None, level);
        change(submit);
    })
}

fn stateless() -> LoadSpec {
    let strategy = Strategy::Stateless { batching: true, preferred: vec![], delay: Duration::ZERO, in_order: false };
    spec(strategy, 1)
}

/// The request that runs next.
fn runs(rig: &mut Rig) -> Option<u32> {
    let batch = rig.batch()?;
    rig.ran(&batch);
    batch.real().next().map(|row| row.req.ix)
}

#[test]
fn a_request_of_level_1_behind_10_000_of_level_2_is_next() {
    let mut rig = Rig::new(stateless());
    let low: Vec<u32> = (0..10_000).map(|_| of_level(&mut rig, 2, |_| {})).collect();
    let high = of_level(&mut rig, 1, |_| {});
    assert_eq!([runs(&mut rig), runs(&mut rig)], [high, low[0]].map(Some));
}

#[test]
fn a_request_past_its_timeout_moves_to_the_end_of_its_level_if_it_is_delayed() {
    let mut rig = Rig::new(stateless());
    let until = |submit: &mut Submit| submit.queue_until = Some(Time(5 * MS));
    let delayed = of_level(&mut rig, 1, |submit| {
        until(submit);
        submit.queue.delays = true;
    });
    let ahead = of_level(&mut rig, 1, |_| {});
    let refused = of_level(&mut rig, 1, until);
    let other = of_level(&mut rig, 2, |_| {});
    rig.wait(5);
    let waited = Duration::from_millis(5);
    assert_eq!(
        rig.answers[&refused],
        Err(Refusal::QueueTimeout { waited, ahead: 1 }),
        "the delayed one is behind it by then"
    );
    assert_eq!([runs(&mut rig), runs(&mut rig), runs(&mut rig)], [ahead, delayed, other].map(Some));
}

#[test]
fn a_level_has_a_maximum_of_its_own() {
    let mut rig = Rig::new(stateless());
    let at_most = |submit: &mut Submit| submit.queue.most = 2;
    let taken = [of_level(&mut rig, 1, at_most), of_level(&mut rig, 2, at_most), of_level(&mut rig, 1, at_most)];
    let refused = of_level(&mut rig, 1, at_most);
    assert_eq!(rig.answers[&refused], Err(Refusal::QueueFull { limit: 2 }));
    assert_eq!([runs(&mut rig), runs(&mut rig), runs(&mut rig)], [taken[0], taken[2], taken[1]].map(Some));
}

#[test]
fn a_start_of_a_lower_level_gets_the_slot_first() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    rig.submit(1, true, false);
    let low = rig.submit_with(2, true, true, |submit| submit.queue.level = 2);
    let high = rig.submit_with(3, true, true, |submit| submit.queue.level = 1);
    rig.submit(1, false, true);
    rig.drain();
    assert_eq!((rig.answers[&low], rig.answers[&high]), (Ok(()), Ok(())));
    let slotted = |effect: &Effect| matches!(effect, Effect::Note(Note::Slotted(..)));
    assert_eq!(rig.seen.iter().filter(|effect| slotted(effect)).count(), 3);
    let released: Vec<u32> =
        rig.seen.iter().filter_map(|e| if let Effect::Release(req) = e { Some(req.ix) } else { None }).collect();
    assert!(released.iter().position(|r| *r == high) < released.iter().position(|r| *r == low), "{released:?}");
}
