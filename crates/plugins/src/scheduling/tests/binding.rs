//! The transitions of a binding, one by one.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::*;

use super::rig::{LOAD, Rig, admits, plans};
use crate::scheduling::guest::Source;
use crate::scheduling::report::BindingState;
use crate::scheduling::stand_in::{Does, MS, StandInVersion};
use crate::scheduling::{Clock, SchedulerHost};

#[test]
fn a_guest_decides_and_observes_events_in_order() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=3);
    assert_eq!(rig.drain(), [1, 1, 1], "one by one, as this guest would have it");
    rig.submit(2, false, true);
    rig.drain();
    rig.submit(1, false, false);
    rig.drain();
    let script = rig.version.script.lock();
    // Three began and got slots. Then come the runs, in the order in which they were reported before the next question.
    assert_eq!(script.events.kind, [1, 2, 1, 2, 1, 2, 6, 3, 6, 3, 6, 3, 6, 3, 5]);
    assert_eq!(&script.events.keys[..4], [100, 0, 200, 0], "one key feature a row");
    assert_eq!(
        (script.events.keys[14], script.events.keys[6]),
        (200, 0),
        "an end has the key of its START, a batch has none"
    );
    assert_eq!((script.events.amount[14], script.plans), (1, 5));
    drop(script);
    assert_eq!((rig.binding.show().calls, rig.binding.show().fallbacks, rig.all_answered()), (5, 0, true));
}

#[test]
fn a_failed_instance_loses_its_round_and_restarts_after_its_back_off() {
    for does in [Does::Trap, Does::Time, Does::Memory] {
        let mut rig = Rig::open(plans(), |_| {});
        rig.starts(1..=4);
        rig.version.does(does);
        assert_eq!(rig.turn(), Some(4), "the built-in takes the very round");
        assert_eq!((rig.binding.state(), rig.rang()), (BindingState::Recovering, true));
        let shown = rig.binding.show();
        assert_eq!((shown.fallbacks, shown.strikes), (1, 1));
        assert_eq!(shown.last_fault.unwrap().kind, format!("{does:?}").to_lowercase());
        rig.version.does(Does::First);
        assert_eq!(rig.keep(), Some(Time(100 * MS)));
        rig.submit(1, false, false);
        assert_eq!(rig.turn(), Some(1), "meanwhile the built-in decides");
        rig.wait(100);
        rig.keep();
        assert_eq!((rig.binding.state(), rig.version.script.lock().starts), (BindingState::Active, 2));
        rig.submit(1, false, true);
        rig.drain();
        assert!(rig.all_answered(), "{does:?}");
        assert_eq!(rig.version.script.lock().plans, 2);
    }
}

#[test]
fn three_strikes_within_a_minute_park_a_plug_in_and_end_its_questions() {
    let mut rig = Rig::open(plans(), |_| {});
    for n in 0..3 {
        rig.version.does(Does::Trap);
        rig.submit(n + 1, true, false);
        assert_eq!(rig.turn(), Some(1));
        rig.wait(400);
        rig.version.does(Does::First);
        rig.keep();
    }
    assert_eq!(rig.binding.state(), BindingState::Parked);
    let parked = rig.metrics.plugin("puppet").parked_at("encoder");
    assert_eq!(parked.get(), 1);
    let calls = rig.version.script.lock().plans;
    rig.starts(7..=8);
    assert_eq!((rig.drain(), rig.version.script.lock().plans, rig.all_answered()), (vec![2], calls, true));
    let lines = rig.binding.journal.after(0);
    let last = &lines.last().unwrap().message;
    assert_eq!(
        last,
        "puppet is parked on encoder after 3 strikes in 60 s (trap: index out of bounds, src/lib.rs:41). Requests go on with \
         \"oldest\". sequor plugin show puppet; then unpark or rollback."
    );
    rig.binding.unpark().unwrap();
    assert_eq!(parked.get(), 0);
    rig.starts(9..=9);
    rig.drain();
    assert_eq!((rig.binding.state(), rig.version.script.lock().plans), (BindingState::Active, calls + 1));
}

#[test]
fn nonsense_is_a_strike_that_the_instance_survives() {
    let cases = [
        (Does::Beyond, "index", "plan answered index 5 of 2 candidates"),
        (Does::Twice, "repeat", "plan answered 0 twice"),
        (
            Does::TooMany,
            "index",
            "plan answered index 2 of 2 candidates, and index 3 of 2 candidates, and index 4 of 2 candidates",
        ),
    ];
    for (does, kind, sentence) in cases {
        let mut rig = Rig::open(plans(), |_| {});
        rig.version.does(does);
        rig.starts(1..=2);
        assert_eq!(rig.turn(), Some(2));
        let shown = rig.binding.show();
        let fault = shown.last_fault.unwrap();
        assert_eq!((shown.state, shown.strikes, fault.kind.as_str()), (BindingState::Active, 1, kind));
        assert!(fault.what.starts_with(sentence), "{}", fault.what);
        let line = rig.binding.journal.after(0).pop().unwrap().message;
        assert!(line.contains("built-in used for this round (fallback 1, strike 1 of 3)"), "{line}");
        assert_eq!((rig.version.script.lock().starts, rig.all_answered()), (1, true));
    }
}

#[test]
fn a_busy_guest_gets_no_strike() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=2);
    let active = rig.active().unwrap();
    let taken = active.wait();
    assert_eq!(rig.turn(), Some(2));
    drop(taken);
    let shown = rig.binding.show();
    assert_eq!((shown.state, shown.strikes, shown.fallbacks, shown.calls), (BindingState::Active, 0, 1, 0));
    rig.submit(1, false, false);
    rig.drain();
    // It has the events that happened meanwhile.
    assert_eq!(rig.version.script.lock().events.kind, [1, 2, 1, 2, 6, 3, 3]);
}

#[test]
fn the_core_runs_requests_that_a_plugin_starves() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.version.does(Does::Starve);
    rig.starts(1..=2);
    assert_eq!(rig.drain(), [1]);
    rig.wait(999);
    assert_eq!(rig.turn(), None);
    rig.wait(1);
    assert_eq!(rig.turn(), Some(1));
    assert_eq!((rig.binding.show().fallbacks, rig.binding.show().strikes, rig.all_answered()), (1, 0, true));
}

#[test]
fn a_new_instance_observes_the_live_sequences_and_later_events() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=3);
    rig.drain();
    rig.submit(2, false, true);
    rig.drain();
    rig.version.does(Does::Trap);
    rig.submit(3, false, false);
    rig.turn();
    rig.version.does(Does::First);
    // No guest gets this event: the sequence is among the live ones.
    rig.submit(4, true, false);
    rig.turn();
    rig.wait(100);
    rig.keep();
    rig.submit(1, false, false);
    rig.turn();
    let script = rig.version.script.lock();
    assert_eq!(script.events.kind, [1, 1, 1], "1, 3 and 4 live");
    assert_eq!((&script.events.amount[..], &script.events.keys[..]), (&[1, 2, 1][..], &[100, 300, 400][..]));
    drop(script);
    rig.submit(4, false, true);
    rig.drain();
    assert_eq!(rig.version.script.lock().events.kind, [1, 1, 1, 6, 3], "then what ran, once");
}

#[test]
fn a_shadow_is_asked_but_ignored_and_its_differences_are_counted() {
    let mut rig = Rig::open(admits(), |options| options.shadow = true);
    assert_eq!(rig.binding.state(), BindingState::Shadow);
    rig.starts(1..=3);
    assert_eq!(rig.drain(), [3], "the built-in runs all that are alike");
    rig.submit(1, false, false);
    assert_eq!(rig.drain(), [1]);
    assert_eq!(rig.binding.show().differs, Some((1, 2)));
    rig.version.does(Does::Wait);
    rig.submit(1, false, false);
    assert_eq!(rig.drain(), [1]);
    rig.version.does(Does::Default);
    rig.submit(1, false, false);
    assert_eq!((rig.drain(), rig.binding.show().differs), (vec![1], Some((2, 4))));
    rig.version.does(Does::Trap);
    rig.submit(1, false, true);
    assert_eq!((rig.drain(), rig.binding.state()), (vec![1], BindingState::Recovering));
    rig.version.does(Does::First);
    rig.wait(100);
    rig.keep();
    assert_eq!((rig.binding.state(), rig.binding.show().fallbacks), (BindingState::Shadow, 0));
}

#[test]
fn the_guest_assigns_slots_and_the_built_in_policy_does_if_it_fails() {
    for (does, strikes) in [(Does::Admit, 0), (Does::AdmitTrap, 1), (Does::AdmitBeyond, 1)] {
        let mut rig = Rig::open(admits(), |_| {});
        rig.version.does(does);
        rig.starts(1..=3);
        assert_eq!(rig.desk.core.lock().usage(LOAD).backlog, 3);
        rig.drain();
        let shown = rig.binding.show();
        assert_eq!(
            (shown.strikes, shown.fallbacks.min(1), rig.all_answered()),
            (strikes, u64::from(strikes), true),
            "{does:?}"
        );
    }
}

#[test]
fn a_plug_in_parked_by_an_operator_is_not_asked() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.binding.park();
    rig.starts(1..=3);
    assert_eq!((rig.drain(), rig.binding.state(), rig.binding.show().calls), (vec![3], BindingState::Parked, 0));
    rig.binding.unpark().unwrap();
    rig.submit(1, false, true);
    rig.drain();
    assert_eq!((rig.binding.state(), rig.binding.show().calls), (BindingState::Active, 1));
    rig.binding.close();
    rig.submit(2, false, true);
    assert_eq!((rig.drain(), rig.keep()), (vec![1], None));
}

#[test]
fn an_attachment_is_refused_where_a_feature_is_missing() {
    let rig = Rig::of(StandInVersion::needs("1", plans(), "chunk_ms"), |_| {});
    assert_eq!(
        rig.binding.open().unwrap_err().to_string(),
        "it needs the feature \"chunk_ms\", which the model's sequor.toml does not name (it names tenant)"
    );
}

#[test]
fn the_text_of_a_sequence_id_is_available_while_the_sequence_lives() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(7..=7);
    let seq = rig.desk.core.lock().find(&Id::Int(7), None).unwrap();
    assert_eq!(rig.desk.sequence_text(seq.handle()).as_deref(), Some("7"));
    rig.submit(7, false, true);
    rig.drain();
    assert_eq!(rig.desk.sequence_text(seq.handle()), None);
}

#[test]
fn an_old_guest_that_fails_late_is_no_strike_against_the_new_one() {
    let rig = Rig::open(plans(), |_| {});
    let old = rig.active().unwrap();
    let new: Arc<dyn Source> = StandInVersion::new("77b0", plans());
    rig.binding.replace(&new).unwrap();
    let failure = crate::scheduling::guest::Strike { fault: PolicyFault::Trap, what: "late".to_owned() };
    rig.binding.strike(Some(&old), &failure);
    assert_eq!((rig.binding.state(), rig.binding.show().strikes), (BindingState::Active, 0));
}

#[test]
fn calls_and_faults_are_counted_under_the_name_of_the_plug_in() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.version.script.lock().memory = 321;
    rig.starts(1..=2);
    rig.turn();
    let value = |rig: &Rig, series: &str| {
        let text = rig.metrics.encode();
        text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' ')).unwrap_or("absent").to_owned()
    };
    let memory = "sequor_plugin_memory_bytes{plugin=\"puppet\",world=\"scheduler\",model=\"encoder\"}";
    assert_eq!(value(&rig, memory), "321");
    rig.version.does(Does::Trap);
    rig.drain();
    let value = |series: &str| value(&rig, series);
    assert_eq!(value("sequor_plugin_call_seconds_count{plugin=\"puppet\",world=\"scheduler\",hook=\"plan\"}"), "2");
    assert_eq!(
        value("sequor_plugin_call_seconds_count{plugin=\"puppet\",world=\"scheduler\",hook=\"observe\"}"),
        "0",
        "events go with questions"
    );
    assert_eq!(value("sequor_plugin_traps_total{plugin=\"puppet\",world=\"scheduler\",reason=\"trap\"}"), "1");
    assert_eq!(value("sequor_plugin_fallback_total{plugin=\"puppet\",world=\"scheduler\"}"), "1");
    assert_eq!(value(memory), "0");
}

/// Guests of every kind in random turns: every request is answered in all cases, and only by runs.
#[test]
fn no_request_is_lost_to_a_plug_in() {
    use rand_pcg::rand_core::Rng;
    const ALL: [Does; 14] = [
        Does::First,
        Does::All,
        Does::Trap,
        Does::Time,
        Does::Memory,
        Does::Beyond,
        Does::Twice,
        Does::TooMany,
        Does::Default,
        Does::Starve,
        Does::TrapInObserve,
        Does::TrapInConfigure,
        Does::AdmitTrap,
        Does::AdmitBeyond,
    ];
    for seed in 0..200 {
        let mut chance = rand_pcg::Pcg64::new(seed, 1);
        let mut rig = Rig::open(admits(), |options| options.shadow = seed % 5 == 0);
        let mut live = std::collections::BTreeSet::new();
        for _ in 0..120 {
            let roll = chance.next_u32();
            rig.version.does(ALL[(roll >> 8) as usize % ALL.len()]);
            match roll % 8 {
                0 | 1 => {
                    let id = u64::from(roll >> 16) % 12 + 1;
                    let end = live.contains(&id) && roll >> 30 == 0;
                    rig.submit(id, live.insert(id), end);
                    if end {
                        live.remove(&id);
                    }
                }
                2 => {
                    rig.wait(u64::from(roll >> 20) % 300);
                    rig.keep();
                }
                3 if roll >> 28 == 0 => rig.binding.park(),
                3 if roll >> 28 == 1 => drop(rig.binding.unpark()),
                3 if roll >> 28 < 4 => {
                    let new: Arc<dyn Source> = StandInVersion::new("77b0", admits());
                    drop(rig.binding.replace(&new));
                }
                _ => drop(rig.turn()),
            }
        }
        rig.binding.close();
        for id in live {
            rig.submit(id, false, true);
        }
        rig.drain();
        assert!(rig.all_answered(), "seed {seed}: {:?}", rig.answers);
        assert_eq!(rig.desk.core.lock().usage(LOAD).live, 0, "seed {seed}");
    }
}

#[test]
fn a_binding_is_quick_without_a_guest_or_with_a_quick_guest() {
    let mut rig = Rig::open(plans(), |_| {});
    assert!(!rig.decider().is_quick(), "nothing is known");
    rig.starts(1..=3);
    rig.drain();
    assert!(rig.decider().is_quick());
    let active = rig.active().unwrap();
    let called = active.wait();
    assert!(!rig.decider().is_quick(), "it is being called");
    drop(called);
    let other = StandInVersion::new("b2b2", plans());
    rig.binding.replace(&(other as Arc<dyn Source>)).unwrap();
    assert!(!rig.decider().is_quick(), "nothing is known of another version");
    (0..8).for_each(|_| rig.binding.inline_gate.note(Duration::from_micros(1), Time::default()));
    assert!(rig.decider().is_quick());
    (0..8).for_each(|_| rig.binding.inline_gate.note(Duration::from_millis(1), Time::default()));
    assert!(!rig.decider().is_quick(), "it has become slow");
    rig.binding.park();
    assert!(rig.decider().is_quick(), "no guest runs");
    let mut patient = Rig::open(plans(), |options| options.limits.time = Duration::from_secs(1));
    patient.starts(1..=3);
    patient.drain();
    assert!(!patient.decider().is_quick(), "it may take long now and then");
}

#[test]
fn a_thread_that_has_other_work_never_waits_for_a_guest() {
    let mut rig = Rig::open(plans(), |options| options.limits.time = Duration::from_secs(3600));
    rig.starts(1..=1);
    let who = Instance { load: LOAD, n: 0 };
    let Next::Ask(mut round) = rig.desk.core.lock().next(rig.clock.now(), who, &mut Vec::new()) else { panic!() };
    let (asked, active) = (round.clone(), rig.active().unwrap());
    let called = active.wait();
    assert!(rig.decider().try_ask(&mut round).is_none(), "at once, and not after an hour");
    assert_eq!((round.news.len(), rig.binding.show().fallbacks), (asked.news.len(), 0), "nothing has happened");
    drop(called);
    let answer = rig.decider().try_ask(&mut round).unwrap();
    assert!(matches!(answer.answer, PolicyAnswer::Plan(Ok(Decision::Fire))), "{answer:?}");
}

#[test]
fn a_call_above_a_millisecond_stops_inline_calls_for_a_thousand_times_as_long() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=3);
    rig.drain();
    assert!(rig.decider().is_quick());
    let (short, slow) = (Duration::from_micros(20), Duration::from_millis(10));
    rig.binding.inline_gate.note(slow, rig.clock.now());
    (0..100).for_each(|_| rig.binding.inline_gate.note(short, rig.clock.now()));
    assert!(!rig.decider().is_quick(), "the mean does not count");
    rig.wait(9_999);
    assert!(!rig.decider().is_quick());
    rig.wait(1);
    assert!(rig.decider().is_quick());
}
