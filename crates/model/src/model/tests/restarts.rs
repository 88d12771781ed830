//! Sequences across a restart: the server is stopped or dies, and another one continues with its store.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal};

use super::machine::{Machine, OLDEST, Server, durable, start};
use super::{load, request};
use crate::config::server::file::ControlMode;
use crate::device::stand_in::StandIns;
use crate::error::{Failure, NotCopied};
use crate::model::sequences::restart;
use crate::model::*;

#[test]
fn a_planned_restart_loses_no_step() {
    let all = ["drain", "step", "every"].map(|when| [OLDEST, "direct { }"].map(|strategy| (when, strategy)));
    for (when, strategy) in all.into_iter().flatten() {
        let machine = Machine::new(when, strategy);
        let first = machine.serve();
        (1..=6).for_each(|id| assert_eq!(first.sum(id, 10 * id as i32, start), 10 * id as i32));
        assert_eq!(first.sum(6, 1, |s| s.end = true), 61);
        assert_eq!(first.sum(5, 1, |_| {}), 51);
        first.stop();
        let second = machine.serve();
        let steps: Vec<u64> = second.resumable().into_iter().map(|(_, step)| step).collect();
        assert_eq!(steps, [1, 1, 1, 1, 2], "{when} {strategy}");
        (1..=4).for_each(|id| assert_eq!(second.sum(id, 2, |_| {}), 10 * id as i32 + 2));
        assert_eq!(second.sum(4, 3, |s| s.end = true), 45);
        assert_eq!(second.sum(5, 1, |s| s.step = Some(3)), 52, "the count of steps goes on");
        assert!(matches!(second.refusal(6, |_| {}), Refusal::Unknown(_)), "it has ended");
        assert_eq!(second.resumable(), []);
        second.stop();
        let third = machine.serve();
        assert_eq!(third.resumable().len(), 4, "{when} {strategy}");
        assert_eq!(third.sum(5, 1, |_| {}), 53);
    }
}

/// The list is read in portions, so that no request waits long for the model's lock.
#[test]
fn a_long_list_of_stored_sequences_names_each_once() {
    let machine = Machine::new("drain", "oldest { max_candidate_sequences: 600 }");
    let first = machine.serve();
    (1..=600).for_each(|id| assert_eq!(first.sum(id, 1, start), 1));
    first.stop();
    let second = machine.serve();
    let mut ids: Vec<Id> = second.resumable().into_iter().map(|(id, _)| id).collect();
    ids.sort();
    assert_eq!(ids, (1..=600).map(Id::from).collect::<Vec<_>>());
}

#[test]
fn a_sequence_continues_after_a_crash_only_from_its_last_answer() {
    for (when, sum) in [("step", Some(8)), ("drain", None)] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        first.sum(7, 1, start);
        first.stop();
        let second = machine.serve();
        assert_eq!(second.sum(7, 2, |_| {}), 3);
        assert_eq!(second.sum(7, 4, |_| {}), 7);
        let after = machine.serve_from(&machine.crashed());
        match sum {
            Some(sum) => assert_eq!(after.sum(7, 1, |_| {}), sum),
            // The state that was written at the stop of the first server is older than the last answer.
            None => assert_eq!(after.refusal(7, |_| {}), Refusal::Unknown(None)),
        }
    }
}

#[test]
fn an_ended_sequence_is_not_resumed_after_a_crash() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    server.sum(1, 1, start);
    server.sum(2, 1, start);
    server.sum(1, 1, |s| s.end = true);
    assert!(server.repository.drop_sequence("sum", &Id::from(2)).unwrap());
    // After this call the store has finished its earlier work.
    server.sum(3, 1, start);
    assert_eq!(machine.serve_from(&machine.crashed()).resumable(), [(Id::from(3), 1)]);
}

#[test]
fn a_start_on_a_stored_id_discards_the_stored_state() {
    for when in ["drain", "step"] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        first.sum(7, 40, start);
        first.stop();
        let second = machine.serve();
        assert_eq!(second.sum(7, 1, start), 1, "{when}");
        let left = machine.serve_from(&machine.crashed()).resumable();
        assert_eq!(left, if when == "step" { vec![(Id::from(7), 1)] } else { vec![] });
        assert_eq!(second.sum(7, 1, |_| {}), 2);
    }
}

#[test]
fn a_state_continues_only_with_the_model_files_that_made_it() {
    let machine = Machine::new("drain", OLDEST);
    let first = machine.serve();
    first.sum(7, 40, start);
    first.stop();
    let weights = machine.model().join("1/weights.bin");
    fs_err::write(&weights, "other").unwrap();
    let changed = machine.serve();
    let why = match changed.send(7, 1, |_| {}).unwrap_err() {
        Failure::NotResumed { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why, "the files of version 1 or its processors have changed since");
    assert_eq!(without_load(&changed), [(1, 1)].into(), "which the load has told operators");
    assert_eq!(changed.sum(8, 1, start), 1, "others are served");
    changed.stop();
    fs_err::remove_file(weights).unwrap();
    let again = machine.serve();
    assert_eq!(without_load(&again), [(1, 1)].into(), "now it is the other one, which the changed files made");
    assert_eq!(again.sum(7, 2, |_| {}), 42, "nothing was lost by that");
}

/// The number of stored sequences that the model does not continue, by version.
fn without_load(server: &Server) -> BTreeMap<u64, usize> {
    restart::without_load(&server.repository.0.catalog.models()[0])
}

/// The state on the accelerator is lost, and the stored one is not.
#[test]
fn stored_sequences_of_a_failed_accelerator_go_on_after_a_restart() {
    let gpus = StandIns::new(1, 64 << 20);
    let machine = Machine::new("step", OLDEST).on(&gpus);
    let first = machine.serve();
    first.sum(7, 40, start);
    gpus.break_down();
    assert!(matches!(first.send(7, 1, |_| {}), Err(Failure::Run(_))));
    let Refusal::Unknown(Some(stone)) = first.refusal(7, |_| {}) else { panic!("its sequence has ended") };
    assert_eq!((stone.why, stone.step), (EndReason::DeviceLost, 1));
    first.stop();
    gpus.mend();
    assert_eq!(machine.serve().sum(7, 2, |_| {}), 42);
}

/// The stored state belongs to no server then, so another one continues from it at once.
#[test]
fn a_sequence_of_a_failed_accelerator_goes_on_on_another_server() {
    let gpus = StandIns::new(1, 64 << 20);
    let machine = Machine::new("step", OLDEST).on(&gpus).sharing();
    let (first, second) = (machine.serve(), machine.serve());
    first.sum(7, 40, start);
    gpus.break_down();
    assert!(matches!(first.send(7, 1, |_| {}), Err(Failure::Run(_))));
    gpus.mend();
    assert_eq!(second.sum(7, 2, |_| {}), 42);
}

/// The model has no other instance, so the failed ones take its steps.
#[test]
fn a_failed_accelerator_loses_no_sequence_that_was_in_the_store() {
    let gpus = StandIns::new(1, 64 << 20);
    let machine = Machine::new("step", OLDEST).on(&gpus);
    let first = machine.serve();
    (7..=10).for_each(|id| assert_eq!(first.sum(id, 40, start), 40));
    first.stop();
    let second = machine.serve();
    assert_eq!(second.sum(7, 1, |_| {}), 41);
    gpus.break_down();
    for id in [8, 7, 9, 10, 8, 9] {
        assert!(second.send(id, 1, |_| {}).is_err(), "{id}");
    }
    second.stop();
    gpus.mend();
    let third = machine.serve();
    assert_eq!([7, 8, 9, 10].map(|id| third.send(id, 2, |_| {}).is_ok()), [true; 4]);
}

#[test]
fn with_every_a_start_after_a_failure_of_the_accelerator_discards_the_stored_state() {
    let gpus = StandIns::new(2, 64 << 20);
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST).on(&gpus).configured("count: 2", "count: 1");
    let first = machine.serve();
    first.sum(7, 40, start);
    durable(&first, 7, 3);
    gpus.break_one(0);
    assert!(matches!(first.send(7, 1, |_| {}), Err(Failure::Run(_))));
    assert_eq!(first.sum(7, 1, |s| (s.start, s.step) = (true, Some(1))), 1);
    gpus.mend();
    let after = machine.serve_from(&machine.crashed());
    assert_eq!(after.resumable(), [(Id::from(7), 1)]);
    assert_eq!(after.sum(7, 2, |s| s.step = Some(2)), 3);
}

#[test]
fn idle_time_stops_while_no_server_runs() {
    let machine = Machine::new("drain", OLDEST);
    let first = machine.serve();
    first.sum(1, 1, start);
    machine.clock.advance(Duration::from_secs(3));
    first.sum(2, 1, start);
    first.stop();
    machine.clock.advance(Duration::from_secs(3600));
    let second = machine.serve();
    machine.clock.advance(Duration::from_secs(3));
    assert_eq!(second.sum(2, 1, |_| {}), 2, "2 of its 5 s are left");
    let Refusal::Unknown(Some(stone)) = second.refusal(1, |_| {}) else { panic!("it is unknown") };
    assert_eq!((stone.why, stone.step), (EndReason::Idle, 1));
    assert_eq!(second.resumable(), []);
}

#[test]
fn idle_time_continues_over_restarts_if_no_step_arrives() {
    for when in ["drain", "step", "every"] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        [7, 8].iter().for_each(|id| assert_eq!(first.sum(*id, 1, start), 1));
        machine.clock.advance(Duration::from_secs(2));
        first.stop();
        machine.clock.advance(Duration::from_secs(3600));
        let second = machine.serve();
        machine.clock.advance(Duration::from_secs(2));
        second.repository.tick();
        assert_eq!(second.resumable().len(), 2, "{when}");
        second.stop();
        machine.clock.advance(Duration::from_secs(3600));
        let third = machine.serve();
        machine.clock.advance(Duration::from_millis(500));
        assert_eq!(third.sum(7, 1, |_| {}), 2, "{when}: half a second of its five is left");
        machine.clock.advance(Duration::from_secs(1));
        let ended = third.refusal(8, |_| {});
        assert!(matches!(ended, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Idle), "{when}: {ended:?}");
        third.stop();
        assert_eq!(machine.serve().sum(7, 1, |_| {}), 3, "{when}: it has been idle for a second");
    }
}

/// The idle time that each sequence has left, of ten minutes.
fn seconds_left(server: &Server) -> Vec<(Id, u64)> {
    let kept = server.repository.resumable("sum").unwrap().into_iter();
    kept.map(|kept| (kept.id, kept.left.unwrap().as_secs_f64().round() as u64)).collect()
}

#[test]
fn after_a_crash_idle_time_continues_for_stored_and_restarts_for_live_sequences() {
    let machine = Machine::new("step\"\n[sequence]\nidle = \"10m\" # \"", OLDEST);
    let first = machine.serve();
    assert_eq!(first.sum(7, 40, start), 40);
    first.stop();
    let second = machine.serve();
    assert_eq!(second.sum(8, 1, start), 1);
    for _ in 0..4 {
        machine.clock.advance(Duration::from_secs(60));
        second.repository.tick();
    }
    machine.clock.advance(Duration::from_secs(59));
    second.repository.tick();
    // After this call the store has finished its earlier work.
    second.repository.find("sum", "").unwrap().export(&Id::from(7)).unwrap();
    let crashed = machine.serve_from(&machine.crashed());
    assert_eq!(seconds_left(&crashed), [(Id::from(7), 360), (Id::from(8), 600)]);
    machine.clock.advance(Duration::from_secs(60));
    crashed.stop();
    let after = machine.serve_from(&machine.folder.path().join("crashed"));
    assert_eq!(seconds_left(&after), [(Id::from(7), 300), (Id::from(8), 300)]);
}

#[test]
fn with_every_a_crash_does_not_count_idle_time_of_an_outdated_state() {
    let machine = Machine::new("every\"\nevery = 2\n[sequence]\nidle = \"10m\" # \"", OLDEST);
    let first = machine.serve();
    (1..=2).for_each(|n| assert_eq!(first.sum(7, 1, |s| (s.start, s.step) = (n == 1, Some(n))), n as i32));
    durable(&first, 7, 2);
    machine.clock.advance(Duration::from_secs(500));
    let crashed = machine.serve_from(&machine.crashed());
    machine.clock.advance(Duration::from_secs(100));
    crashed.stop();
    let after = machine.serve_from(&machine.folder.path().join("crashed"));
    let [(_, left)] = seconds_left(&after)[..] else { panic!("one waits") };
    assert_eq!(left, 500, "it waited for a hundred seconds for sure");
}

#[test]
fn a_counting_client_continues_from_the_durable_step_with_durability_every() {
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST);
    let first = machine.serve();
    let message = first.send(7, 1, |s| (s.start, s.step) = (true, Some(1))).unwrap();
    assert_eq!(message.parameters, [("sequor_durable_step".to_owned(), Parameter::Int(0))]);
    first.sum(8, 5, start);
    (2..=4).for_each(|n| assert_eq!(first.sum(7, 1, |s| s.step = Some(n)), n as i32));
    // After this call the store has finished its earlier work.
    durable(&first, 8, 3);
    let after = machine.serve_from(&machine.crashed());
    let (ids, _): (Vec<Id>, Vec<u64>) = after.resumable().into_iter().unzip();
    assert_eq!(ids, [7, 8].map(Id::from));
    match after.send(8, 1, |_| {}).unwrap_err() {
        Failure::NotResumed { why, .. } => assert!(why.contains("later steps may have been answered"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(after.refusal(7, |s| s.step = Some(5)), Refusal::StepGap { want: 4 });
    let again = after.send(7, 100, |s| s.step = Some(3)).unwrap();
    assert_eq!(again.outputs[0].tensor.data[..], 3_i32.to_le_bytes(), "the answer of the first time");
    assert_eq!(after.sum(7, 1, |s| s.step = Some(4)), 4);
    after.stop();
    // A planned restart loses nothing, whether the client numbers its steps or not.
    first.stop();
    let second = machine.serve();
    assert_eq!(second.sum(7, 1, |s| s.step = Some(5)), 5);
    assert_eq!(second.sum(8, 1, |_| {}), 6);
    // The state on disk is older than the last answer.
    let after = machine.serve_from(&machine.crashed());
    assert!(matches!(after.send(8, 1, |_| {}).unwrap_err(), Failure::NotResumed { .. }));
    assert_eq!(after.refusal(7, |s| s.step = Some(6)), Refusal::StepGap { want: 5 });
}

#[test]
fn an_answered_start_discards_the_old_state_with_durability_every() {
    let machine = Machine::new("every\"\nevery = 1 # \"", OLDEST);
    let server = machine.serve();
    server.sum(7, 40, |s| (s.start, s.step) = (true, Some(1)));
    durable(&server, 7, 1);
    server.sum(7, 1, |s| (s.start, s.step) = (true, Some(1)));
    let after = machine.serve_from(&machine.crashed());
    assert_eq!(after.sum(7, 1, |s| s.step = Some(2)), 2);
}

#[test]
fn a_failed_start_discards_the_state_of_the_old_incarnation() {
    for when in ["drain", "step", "every\"\nevery = 1 # \""] {
        let machine = Machine::new(when, OLDEST);
        fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32 poison=13").unwrap();
        let first = machine.serve();
        for id in [7, 8] {
            first.sum(id, 40, |s| (s.start, s.step) = (true, Some(1)));
            if when.starts_with("every") {
                durable(&first, id, 1);
            }
            assert!(matches!(first.send(id, 13, start).unwrap_err(), Failure::Run(_)), "{when}");
        }
        let after = machine.serve_from(&machine.crashed());
        for step in [None, Some(1), Some(2)] {
            assert_eq!(after.refusal(7, |s| s.step = step), Refusal::Unknown(None), "{when} {step:?}");
        }
        assert_eq!(first.sum(7, 1, |_| {}), 1, "{when}: it has its first state");
        first.stop();
        let second = machine.serve();
        assert_eq!(second.sum(7, 1, |_| {}), 2, "{when}");
        assert_eq!(second.sum(8, 1, |_| {}), 1, "{when}: after a planned restart too");
    }
}

/// A model whose first load fails.
fn load_in_vain(folder: &Path, repository: &Repository) {
    let file = folder.join("sum/1/model.onnx");
    let right = fs_err::read(&file).unwrap();
    fs_err::write(&file, "nonsense").unwrap();
    repository.load(&folder.join("sum"));
    assert!(matches!(repository.statuses().remove(0).availability, Availability::Failed(_)));
    fs_err::write(&file, right).unwrap();
}

/// A model whose load fails once its graph is there: it names a scheduler, and there is none.
fn start_in_vain(folder: &Path, repository: &Repository) {
    let file = folder.join("sum/sequor.toml");
    let right = fs_err::read_to_string(&file).unwrap();
    fs_err::write(&file, format!("{right}[plugins.scheduler]\nuse = \"missing\"\n")).unwrap();
    repository.load(&folder.join("sum"));
    assert!(matches!(repository.statuses().remove(0).availability, Availability::Failed(_)));
    fs_err::write(&file, right).unwrap();
}

#[test]
fn a_load_that_fails_keeps_the_reasons_of_ended_sequences() {
    for in_vain in [load_in_vain as fn(&Path, &Repository), start_in_vain] {
        let mut machine = Machine::new("step", OLDEST);
        let first = machine.serve();
        first.sum(7, 1, start);
        first.sum(7, 1, |s| s.end = true);
        first.stop();
        machine.equip = in_vain;
        let second = machine.serve();
        let Refusal::Unknown(Some(stone)) = second.refusal(7, |_| {}) else { panic!("it is not known how it ended") };
        assert_eq!((stone.why, stone.step), (EndReason::End, 2));
    }
}

/// A server that loads and unloads models on request.
fn govern(folder: &Path, repository: &Repository) {
    repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories: vec![folder.to_owned()] });
}

#[test]
fn a_drop_while_the_model_is_unloaded_is_remembered() {
    for when in ["drain", "step"] {
        let mut machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        first.sum(7, 40, start);
        first.stop();
        machine.equip = govern;
        let second = machine.serve();
        let served = second.repository.find("sum", "").unwrap();
        served.import(Id::from(8), &served.export(&Id::from(7)).unwrap()).unwrap();
        second.repository.unload_by_request("sum", false).unwrap();
        while !second.repository.0.catalog.models().iter().all(|model| model.loads().is_empty()) {
            std::thread::yield_now();
        }
        assert!([7, 8].iter().all(|id| second.repository.drop_sequence("sum", &Id::from(*id)).unwrap()));
        let is_dropped = |server: &Server| {
            [7, 8].iter().all(|id| match server.refusal(*id, |_| {}) {
                Refusal::Unknown(stone) => stone.is_some_and(|stone| (stone.why, stone.step) == (EndReason::Admin, 1)),
                other => panic!("{other:?}"),
            })
        };
        let crashed = machine.serve_from(&machine.crashed());
        assert!(is_dropped(&crashed), "{when}, after a crash");
        drop(crashed);
        load(&second.repository, &machine.model());
        assert!(is_dropped(&second), "{when}: once the model is loaded again");
    }
}

/// The previous version stays for stored sequences, but not once the model goes out of service.
#[test]
fn a_replaced_version_kept_for_stored_sequences_unloads_with_its_model() {
    let mut machine = Machine::new("drain", OLDEST);
    let first = machine.serve();
    first.sum(7, 40, start);
    first.stop();
    machine.equip = govern;
    let second = machine.serve();
    fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32 plus=1000").unwrap();
    load(&second.repository, &machine.model());
    assert_eq!(second.repository.0.catalog.models()[0].loads().len(), 2);
    second.repository.unload_by_request("sum", false).unwrap();
    while !second.repository.0.catalog.models().iter().all(|model| model.loads().is_empty()) {
        std::thread::yield_now();
    }
}

#[test]
fn the_reason_of_an_ended_sequence_survives_a_restart_and_a_crash() {
    for when in ["drain", "step"] {
        let machine = Machine::new(when, OLDEST);
        machine.clock.advance(Duration::from_secs(10));
        let first = machine.serve();
        first.sum(1, 1, start);
        first.sum(1, 1, |s| s.end = true);
        first.sum(2, 1, start);
        assert!(first.repository.drop_sequence("sum", &Id::from(2)).unwrap());
        // After this call the store has finished its earlier work.
        first.sum(3, 1, start);
        let stone = |server: &Server, id: u64| match server.refusal(id, |_| {}) {
            Refusal::Unknown(stone) => stone.map(|stone| (stone.why, stone.step)),
            other => panic!("{other:?}"),
        };
        let ended = [Some((EndReason::End, 2)), Some((EndReason::Admin, 1))];
        let crashed = machine.serve_from(&machine.crashed());
        let known = if when == "step" { ended } else { [None, None] };
        assert_eq!([1, 2].map(|id| stone(&crashed, id)), known, "{when}, after a crash");
        crashed.stop();
        first.stop();
        machine.clock.advance(Duration::from_secs(60));
        let second = machine.serve();
        assert_eq!([1, 2].map(|id| stone(&second, id)), ended, "{when}");
        let ago: Vec<Duration> = second.repository.ended_sequences("sum").unwrap().iter().map(|e| e.ago).collect();
        assert_eq!(ago, [Duration::from_secs(60); 2]);
        second.stop();
        machine.clock.advance(Duration::from_secs(600));
        assert_eq!(stone(&machine.serve(), 1), None, "they are forgotten in their time");
    }
}

#[test]
fn states_beyond_the_store_limit_are_lost_and_the_rest_is_kept() {
    let machine = Machine::new("drain", OLDEST).with_limit(400);
    let first = machine.serve();
    (1..=4).for_each(|id| assert_eq!(first.sum(id, 1, start), 1));
    first.stop();
    let second = machine.serve();
    let kept = second.resumable();
    assert!(!kept.is_empty() && kept.len() < 4, "{kept:?}");
    for (id, _) in kept {
        let Id::Int(id) = id else { panic!("{id:?}") };
        assert_eq!(second.sum(id, 1, |_| {}), 2);
    }
}

#[test]
fn the_server_never_makes_the_same_id_twice() {
    let machine = Machine::new("drain", OLDEST);
    let made = |server: &Server| {
        let begins = |s: &mut SequenceStep| {
            s.start = true;
            s.id = Id::None;
        };
        let mut request = request(1, 1, begins);
        request.dialect = sequor_core::Dialect::OVMS;
        let pending = server.repository.submit(request).unwrap();
        let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap();
        match &answer.parameters[..] {
            [(name, Parameter::Int(id))] if name == "sequence_id" => *id,
            other => panic!("{other:?}"),
        }
    };
    let (first, epoch) = (machine.serve(), 1 << 14);
    assert_eq!((made(&first), made(&first)), (epoch + 1, epoch + 2));
    first.stop();
    let second = machine.serve();
    let (one, other) = (made(&second), made(&second));
    assert!(one > 64 * epoch && other == one + 1, "two servers within one millisecond: {one}, {other}");
    let crashed = machine.serve_from(&machine.crashed());
    assert!(made(&crashed) > other, "nor one that a crash has cut off");
}

#[test]
fn a_step_that_is_repeated_after_a_restart_gets_its_answer_once_more() {
    for when in ["drain", "step"] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        first.sum(7, 40, |s| (s.start, s.step) = (true, Some(1)));
        first.sum(7, 2, |s| s.step = Some(2));
        first.stop();
        let second = machine.serve();
        assert_eq!(second.refusal(7, |s| s.step = Some(1)), Refusal::StepGone { want: 3 });
        assert_eq!(second.refusal(7, |s| s.step = Some(4)), Refusal::StepGap { want: 3 });
        for _ in 0..2 {
            let again = second.send(7, 100, |s| s.step = Some(2)).unwrap();
            assert_eq!(again.outputs[0].tensor.data[..], 42_i32.to_le_bytes(), "{when}");
            assert_eq!(again.parameters, [("sequor_replayed".to_owned(), Parameter::Bool(true))]);
        }
        assert_eq!(second.sum(7, 1, |s| s.step = Some(3)), 43, "and it was applied once");
    }
}

#[test]
fn a_client_that_was_not_answered_before_a_crash_repeats_its_step() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    server.sum(7, 40, |s| (s.start, s.step) = (true, Some(1)));
    let after = machine.serve_from(&machine.crashed());
    assert_eq!(after.sum(7, 40, |s| (s.start, s.step) = (false, Some(1))), 40);
    assert_eq!(after.sum(7, 2, |s| s.step = Some(2)), 42);
}

#[test]
fn a_repeated_step_that_was_not_counted_changes_nothing() {
    let machine = Machine::new("drain", OLDEST);
    let first = machine.serve();
    first.sum(7, 40, start);
    first.stop();
    let second = machine.serve();
    assert_eq!(second.refusal(7, |s| s.step = Some(1)), Refusal::StepGone { want: 2 });
    assert_eq!(second.sum(7, 2, |s| s.step = Some(2)), 42);
}

/// A START with a state of its client is durable like any other, and so is a START that copied a sequence.
#[test]
fn a_sequence_that_started_with_a_client_state_resumes_after_a_crash() {
    let machine = Machine::new("step", OLDEST);
    let toml = machine.model().join("sequor.toml");
    fs_err::write(&toml, "[sequence]\nclient_state = true\n[durability]\nwhen = \"step\"\n").unwrap();
    let first = machine.serve();
    let mut with_state = request(7, 5, start);
    let state = request(7, 100, start).inputs.remove(0).tensor;
    with_state.inputs.push(NamedTensor { name: "INPUT_STATE".to_owned(), tensor: state });
    let answer = |request: InferRequest| {
        let pending = first.repository.submit(request).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(pending).unwrap();
        i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
    };
    assert_eq!(answer(with_state), 105);
    assert_eq!(answer(request(8, 1, |s| (s.start, s.from) = (true, Some(Id::from(7))))), 106);
    let after = machine.serve_from(&machine.crashed());
    assert_eq!((after.sum(7, 1, |_| {}), after.sum(8, 1, |_| {})), (106, 107));
    // A stored sequence cannot be copied.
    first.stop();
    let again = machine.serve();
    let refused = again.repository.submit(request(9, 1, |s| (s.start, s.from) = (true, Some(Id::from(7))))).err();
    assert!(matches!(refused, Some(Failure::NotCopied { why: NotCopied::Stored, .. })), "{refused:?}");
}
