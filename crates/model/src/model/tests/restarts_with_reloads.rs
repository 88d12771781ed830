//! Sequences that a new version of their model takes over, with restarts and crashes in between.

use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal};

use super::load;
use super::machine::{Machine, OLDEST, Server, durable, start};
use crate::error::Failure;
use crate::model::SequenceStep;
use crate::state::tier::Successions;

pub(super) fn carrying(when: &str, strategy: &str) -> Machine {
    let machine = Machine::new(when, strategy);
    set_reload(&machine, when, "carry");
    machine
}

pub(super) fn set_reload(machine: &Machine, when: &str, then: &str) {
    let toml = format!("[durability]\nwhen = \"{when}\"\n[reload]\ndrain = \"1s\"\nthen = \"{then}\"\n");
    fs_err::write(machine.model().join("sequor.toml"), toml).unwrap();
}

/// Adds a version whose answers are larger than the sum: by 1000 for each version after the first.
pub(super) fn put_version(machine: &Machine, server: &Server, version: u32) {
    let folder = machine.model().join(version.to_string());
    fs_err::create_dir(&folder).unwrap();
    fs_err::write(folder.join("model.onnx"), format!("accumulate INT32 plus={}", 1000 * (version - 1))).unwrap();
    load(&server.repository, &machine.model());
}

pub(super) fn move_all(machine: &Machine, server: &Server) {
    machine.clock.advance(Duration::from_secs(2));
    while server.repository.live() > 0 {
        server.repository.tick();
        std::thread::yield_now();
    }
}

pub(super) fn waiting(server: &Server) -> Vec<(Id, u64, u64)> {
    let kept = server.repository.resumable("sum").unwrap().into_iter();
    kept.map(|kept| (kept.id, kept.version, kept.step)).collect()
}

#[test]
fn moved_sequences_continue_on_the_new_version_after_a_restart() {
    for when in ["drain", "step", "every"] {
        for strategy in [OLDEST, "direct { }"] {
            let machine = carrying(when, strategy);
            let first = machine.serve();
            (1..=3).for_each(|id| assert_eq!(first.sum(id, 10 * id as i32, start), 10 * id as i32));
            put_version(&machine, &first, 2);
            move_all(&machine, &first);
            assert_eq!(first.sum(1, 1, |_| {}), 1011, "{when}: this one has run on version 2");
            machine.clock.advance(Duration::from_secs(1));
            first.stop();
            let second = machine.serve();
            let wanted = [(1, 2), (2, 1), (3, 1)].map(|(id, step)| (Id::from(id), 2, step));
            assert_eq!(waiting(&second), wanted, "{when} {strategy}");
            let exported = second.repository.find("sum", "2").unwrap().export(&Id::from(2));
            assert!(exported.is_ok(), "{when}: that version goes on from it. {exported:?}");
            assert_eq!(second.sum(1, 1, |s| s.step = Some(3)), 1012, "{when}");
            assert_eq!(second.sum(2, 1, |s| s.step = Some(2)), 1021, "{when}: this one was between two versions");
            assert_eq!(second.sum(2, 1, |s| s.end = true), 1022, "{when}");
            machine.clock.advance(Duration::from_secs(1));
            second.repository.tick();
            assert_eq!(second.sum(3, 1, |_| {}), 1031, "{when}: four of its five idle seconds have passed");
            machine.clock.advance(Duration::from_secs(6));
            second.repository.tick();
            assert!(matches!(second.refusal(3, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::Idle));
        }
    }
}

#[test]
fn a_crash_at_any_time_of_a_reload_loses_no_step_that_was_answered() {
    for strategy in [OLDEST, "direct { }"] {
        let machine = carrying("step", strategy);
        let first = machine.serve();
        let count = |step: &mut SequenceStep| (step.start, step.step) = (true, Some(1));
        (1..=3).for_each(|id| assert_eq!(first.sum(id, 10 * id as i32, count), 10 * id as i32));
        put_version(&machine, &first, 2);
        let crashed = machine.serve_from(&machine.crashed());
        assert_eq!(waiting(&crashed), [1, 2, 3].map(|id| (Id::from(id), 2, 1)), "{strategy}");
        drop(crashed);
        assert_eq!(first.sum(3, 1, |_| {}), 31, "it still runs on version 1");
        let crashed = machine.serve_from(&machine.crashed());
        let steps = [(1, 1), (2, 1), (3, 2)].map(|(id, step)| (Id::from(id), 2, step));
        assert_eq!(waiting(&crashed), steps, "{strategy}");
        assert_eq!([1, 2, 3].map(|id| crashed.sum(id, 1, |_| {})), [1011, 1021, 1032], "{strategy}");
        drop(crashed);
        move_all(&machine, &first);
        assert_eq!(first.sum(2, 1, |s| s.step = Some(1)), 20, "{strategy}: answered again");
        let crashed = machine.serve_from(&machine.crashed());
        assert_eq!([1, 2, 3].map(|id| crashed.sum(id, 1, |_| {})), [1011, 1021, 1032], "{strategy}, between the two");
        drop(crashed);
        assert_eq!(first.sum(1, 1, |s| s.step = Some(2)), 1011);
        let crashed = machine.serve_from(&machine.crashed());
        assert_eq!([1, 2].map(|id| crashed.sum(id, 1, |_| {})), [1012, 1021], "{strategy}: the first has run");
    }
}

#[test]
fn a_counting_client_continues_on_the_new_version_from_the_durable_step() {
    let machine = carrying("every\"\nevery = 1 # \"", OLDEST);
    let first = machine.serve();
    let answer = first.sum(1, 10, |s| (s.start, s.step) = (true, Some(1)));
    assert_eq!(answer, 10);
    durable(&first, 1, 1);
    put_version(&machine, &first, 2);
    let crashed = machine.serve_from(&machine.crashed());
    let [(_, 2, step)] = waiting(&crashed)[..] else { panic!("{:?}", waiting(&crashed)) };
    assert!(matches!(crashed.send(1, 1, |_| {}).unwrap_err(), Failure::NotResumed { .. }), "it may have gone on");
    assert_eq!(crashed.sum(1, 1, |s| s.step = Some(step + 1)), 1011);
}

#[test]
fn a_sequence_that_ended_after_its_move_stays_ended_after_a_crash() {
    let machine = carrying("step", OLDEST);
    let first = machine.serve();
    (1..=4).for_each(|id| assert_eq!(first.sum(id, 10, start), 10));
    put_version(&machine, &first, 2);
    move_all(&machine, &first);
    assert_eq!(first.sum(1, 1, |s| s.end = true), 1011);
    assert!(first.repository.drop_sequence("sum", &Id::from(2)).unwrap());
    assert_eq!(first.sum(3, 1, start), 1001, "a new sequence");
    let crashed = machine.serve_from(&machine.crashed());
    assert_eq!(waiting(&crashed), [(Id::from(3), 2, 1), (Id::from(4), 2, 1)]);
    assert_eq!(crashed.sum(3, 1, |_| {}), 1002);
    drop(crashed);
    machine.clock.advance(Duration::from_secs(6));
    first.repository.tick();
    first.sum(5, 1, start);
    assert_eq!(
        waiting(&machine.serve_from(&machine.crashed())),
        [(Id::from(5), 2, 1)],
        "the others were idle too long"
    );
}

#[test]
fn stored_sequences_continue_on_each_further_version() {
    for when in ["drain", "step", "every"] {
        let machine = carrying(when, OLDEST);
        let first = machine.serve();
        (1..=2).for_each(|id| assert_eq!(first.sum(id, 10, start), 10));
        first.stop();
        let second = machine.serve();
        put_version(&machine, &second, 2);
        put_version(&machine, &second, 3);
        assert_eq!(waiting(&second), [1, 2].map(|id| (Id::from(id), 3, 1)), "{when}");
        assert_eq!(second.sum(1, 1, |_| {}), 2011, "{when}");
        // Version 2 comes back. Sequences continue there, also those that wait.
        fs_err::remove_dir_all(machine.model().join("3")).unwrap();
        load(&second.repository, &machine.model());
        assert_eq!(second.sum(2, 1, |_| {}), 1011, "{when}");
        second.stop();
        let third = machine.serve();
        assert_eq!(waiting(&third), [1, 2].map(|id| (Id::from(id), 2, 2)), "{when}");
        assert_eq!([1, 2].map(|id| third.sum(id, 1, |_| {})), [1012, 1012], "{when}");
    }
}

#[test]
fn a_version_without_carry_uses_no_state_of_another_version() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST);
        let first = machine.serve();
        assert_eq!(first.sum(1, 10, start), 10);
        first.stop();
        let second = machine.serve();
        set_reload(&machine, when, "end");
        put_version(&machine, &second, 2);
        drained(&machine, &second);
        let refused = second.send(1, 1, |_| {}).unwrap_err();
        assert!(matches!(refused, Failure::NotResumed { .. }), "{when}: {refused:?}");
    }
}

/// Lets the drain time of a replaced version pass.
fn drained(machine: &Machine, server: &Server) {
    machine.clock.advance(Duration::from_secs(1));
    server.repository.tick();
}

#[test]
fn stored_sequences_resume_on_a_replaced_version_for_the_whole_drain() {
    for when in ["drain", "step", "every"] {
        for new_version in [false, true] {
            let machine = carrying(when, OLDEST);
            set_reload(&machine, when, "end");
            let first = machine.serve();
            (1..=3).for_each(|id| assert_eq!(first.sum(id, 10, start), 10));
            first.stop();
            let second = machine.serve();
            assert_eq!(second.sum(4, 10, start), 10);
            if new_version {
                put_version(&machine, &second, 2);
            } else {
                fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32 plus=1000").unwrap();
                load(&second.repository, &machine.model());
            }
            machine.clock.advance(Duration::from_millis(900));
            second.repository.tick();
            assert_eq!([1, 4].map(|id| second.sum(id, 1, |_| {})), [11, 11], "{when}: stored and live");
            assert_eq!(second.sum(2, 10, start), 1010, "{when}: new ones begin on the new version");
            assert_eq!(second.sum(1, 1, |_| {}), 12, "{when}");
            drained(&machine, &second);
            for id in [1, 4] {
                let ended = second.refusal(id, |_| {});
                assert!(
                    matches!(ended, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Drained),
                    "{when}: {ended:?}"
                );
            }
            let refused = second.send(3, 1, |_| {}).unwrap_err();
            assert!(matches!(refused, Failure::NotResumed { .. }), "{when}: {refused:?}");
            assert_eq!(second.sum(2, 1, |_| {}), 1011, "{when}");
            let model = second.repository.0.catalog.models().remove(0);
            while model.loads().len() > 1 {
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn a_carry_is_forgotten_once_the_old_version_serves_again() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST);
        let first = machine.serve();
        assert_eq!(first.sum(1, 10, start), 10);
        first.stop();
        let second = machine.serve();
        put_version(&machine, &second, 2);
        fs_err::remove_dir_all(machine.model().join("2")).unwrap();
        set_reload(&machine, when, "end");
        load(&second.repository, &machine.model());
        assert_eq!(second.sum(1, 1, |_| {}), 11, "{when}: the files that made its state serve again");
        second.stop();
        let third = machine.serve();
        put_version(&machine, &third, 2);
        drained(&machine, &third);
        let refused = third.send(1, 1, |_| {}).unwrap_err();
        assert!(matches!(refused, Failure::NotResumed { .. }), "{when}: {refused:?}");
    }
}

#[test]
fn a_reload_during_another_moves_the_sequences_of_both_old_versions() {
    for when in ["never", "drain", "step"] {
        let machine = carrying(when, OLDEST);
        let server = machine.serve();
        assert_eq!(server.sum(1, 10, start), 10);
        put_version(&machine, &server, 2);
        machine.clock.advance(Duration::from_millis(500));
        assert_eq!(server.sum(2, 10, start), 1010);
        put_version(&machine, &server, 3);
        // Each of the two drain times ends by itself. No other deadline wakes the timer.
        machine.clock.advance(Duration::from_millis(600));
        server.repository.tick();
        move_all(&machine, &server);
        assert_eq!([1, 2].map(|id| server.sum(id, 1, |_| {})), [2011, 2011], "{when}");
    }
}

#[test]
fn a_rollback_during_a_reload_moves_all_sequences_to_the_first_version() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST);
        let server = machine.serve();
        assert_eq!(server.sum(1, 10, start), 10);
        put_version(&machine, &server, 2);
        assert_eq!(server.sum(2, 10, start), 1010);
        fs_err::remove_dir_all(machine.model().join("2")).unwrap();
        load(&server.repository, &machine.model());
        move_all(&machine, &server);
        assert_eq!(waiting(&server), [1, 2].map(|id| (Id::from(id), 1, 1)), "{when}");
        assert_eq!(server.sum(1, 1, |_| {}), 11, "{when}");
        server.stop();
        let second = machine.serve();
        assert_eq!([1, 2].map(|id| second.sum(id, 1, |_| {})), [12, 11], "{when}");
    }
}

#[test]
fn a_served_version_with_a_changed_file_takes_over_its_own_sequences() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST);
        let config = machine.model().join("config.pbtxt");
        let text = fs_err::read_to_string(&config).unwrap();
        fs_err::write(&config, format!("{text} version_policy {{ all {{ }} }}")).unwrap();
        let server = machine.serve();
        assert_eq!(server.sum(1, 10, start), 10);
        put_version(&machine, &server, 2);
        // Version 1 still serves, and its file changes.
        fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32 plus=500").unwrap();
        load(&server.repository, &machine.model());
        assert_eq!(server.sum(2, 10, start), 1010);
        machine.clock.advance(Duration::from_secs(2));
        while waiting(&server).is_empty() {
            server.repository.tick();
            std::thread::yield_now();
        }
        assert_eq!(waiting(&server), [(Id::from(1), 1, 1)], "{when}");
        assert_eq!(server.sum(1, 1, |_| {}), 511, "{when}");
    }
}

#[test]
fn a_state_that_waits_through_many_reloads_is_not_forgotten() {
    let machine = carrying("step", OLDEST);
    let first = machine.serve();
    assert_eq!(first.sum(1, 10, start), 10);
    first.stop();
    let server = machine.serve();
    for plus in 1..=Successions::MOST + 6 {
        fs_err::write(machine.model().join("1/model.onnx"), format!("accumulate INT32 plus={plus}")).unwrap();
        load(&server.repository, &machine.model());
    }
    assert_eq!(server.sum(1, 1, |_| {}), 11 + Successions::MOST as i32 + 6);
}

#[test]
fn a_sequence_whose_start_failed_moves_too() {
    for when in ["never", "drain", "step", "every"] {
        for strategy in [OLDEST, "direct { }"] {
            let machine = carrying(when, strategy);
            fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32 poison=13").unwrap();
            let server = machine.serve();
            assert_eq!(server.sum(1, 40, start), 40);
            // The first sequence existed before, the second did not.
            for id in [1, 2] {
                assert!(matches!(server.send(id, 13, start).unwrap_err(), Failure::Run(_)), "{when}");
            }
            put_version(&machine, &server, 2);
            move_all(&machine, &server);
            assert_eq!([1, 2].map(|id| server.sum(id, 1, |_| {})), [1001; 2], "{when} {strategy}: their first states");
        }
    }
}

#[test]
fn a_sequence_restored_by_a_repeated_step_moves_to_the_new_version() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST);
        let first = machine.serve();
        assert_eq!(first.sum(1, 10, |s| (s.start, s.step) = (true, Some(1))), 10);
        first.stop();
        let second = machine.serve();
        assert_eq!(second.sum(1, 10, |s| s.step = Some(1)), 10, "{when}: answered once more");
        put_version(&machine, &second, 2);
        move_all(&machine, &second);
        assert_eq!(second.sum(1, 1, |s| s.step = Some(2)), 1011, "{when}");
    }
}

#[test]
fn a_reload_without_durability_discards_stored_states() {
    let machine = carrying("step", OLDEST);
    let first = machine.serve();
    (1..=2).for_each(|id| assert_eq!(first.sum(id, 10, start), 10));
    set_reload(&machine, "never", "carry");
    put_version(&machine, &first, 2);
    move_all(&machine, &first);
    assert_eq!(first.sum(1, 1, |s| s.end = true), 1011);
    assert_eq!(first.sum(2, 1, |_| {}), 1011);
    first.stop();
    set_reload(&machine, "step", "carry");
    let second = machine.serve();
    assert_eq!(waiting(&second), []);
    assert!([1, 2].iter().all(|id| matches!(second.refusal(*id, |_| {}), Refusal::Unknown(_))));
}

/// Memory is full of sequences that live on the previous version, whose drain time is not over.
#[test]
fn idle_sequences_of_a_replaced_version_are_spilled_too() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST).with_memory(12);
        let server = machine.serve();
        (1..=3).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
        put_version(&machine, &server, 2);
        (4..=6).for_each(|id| assert_eq!(server.sum(id, 10, start), 1010, "{when}"));
        assert_eq!([1, 2, 3].map(|id| server.sum(id, 1, |_| {})), [1011; 3], "{when}: each came back on version 2");
    }
}

/// The version to which these sequences had to move no longer serves, so no step of theirs could be answered from the store.
#[test]
fn sequences_without_a_version_to_move_to_are_not_spilled() {
    for when in ["drain", "step"] {
        let machine = carrying(when, OLDEST).with_memory(12);
        let server = machine.serve();
        (1..=3).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
        put_version(&machine, &server, 2);
        set_reload(&machine, when, "end");
        put_version(&machine, &server, 3);
        let refused = server.send(4, 10, start).unwrap_err();
        assert!(matches!(refused, Failure::StateMemory { .. }), "{when}: {refused:?}");
        assert_eq!([1, 2, 3].map(|id| server.sum(id, 1, |_| {})), [11; 3], "{when}: they go on where they live");
    }
}
