//! Sequences of models with plug-ins across a restart: the scratch of processors stays with the state, and a first state is made once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use sequor_core::{EndReason, Refusal};

use super::machine::{Machine, OLDEST, answered, start};
use super::request;
use super::{initializers, processors};
use crate::backend::mock::MockBackend;
use crate::error::Failure;
use crate::model::load::Mailbox;
use crate::model::sequences::restart;
use crate::model::*;
use crate::processing::PlaceRules;
use crate::processing::wat_fixture::ProcessorWat;

/// A machine whose model has these plug-ins.
fn machine(when: &str, toml: &str, equip: fn(&Path, &Repository)) -> Machine {
    let mut machine = Machine::new(when, OLDEST);
    machine.equip = equip;
    fs_err::write(machine.folder.path().join("guest.wasm"), processors::guest().component()).unwrap();
    let toml = format!("{toml}[durability]\nwhen = \"{when}\"\n");
    fs_err::write(machine.model().join("sequor.toml"), toml).unwrap();
    machine
}

fn with_processors(folder: &Path, repository: &Repository) {
    let rules = PlaceRules { dir: Some(folder.to_owned()), strikes: 3, ..PlaceRules::default() };
    repository.run_processors(rules, Box::new(processors::component)).unwrap();
}

fn with_an_initializer(folder: &Path, repository: &Repository) {
    repository.run_processors(PlaceRules::default(), Box::new(initializers::no_processor)).unwrap();
    let rules = PlaceRules { dir: Some(folder.to_owned()), strikes: 3, ..PlaceRules::default() };
    repository.run_initializers(rules, Box::new(initializers::component)).unwrap();
}

#[test]
fn the_scratch_of_processors_stays_with_the_state() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, processors::TOML, with_processors);
        let first = machine.serve();
        assert_eq!(first.sum(7, 5, start), 10_005);
        assert_eq!(first.sum(7, 1, |_| {}), 20_006, "its second call");
        assert_eq!(first.sum(7, 1001, |_| {}), 1001, "a reply runs nothing");
        assert_eq!(first.sum(8, 1001, start), 1001);
        if when == "step" {
            let after = machine.serve_from(&machine.crashed());
            assert_eq!(after.sum(7, 1, |_| {}), 30_007);
            assert_eq!(after.sum(8, 1, |_| {}), 10_001);
        }
        first.stop();
        let second = machine.serve();
        let steps: Vec<u64> = second.resumable().into_iter().map(|(_, step)| step).collect();
        assert_eq!(steps, [3, 1], "{when}");
        assert_eq!(second.sum(7, 1, |_| {}), 30_007, "{when}: its third call");
        assert_eq!(second.sum(8, 1001, |_| {}), 1001, "{when}: nothing has run yet");
        second.stop();
        let third = machine.serve();
        assert_eq!(third.sum(8, 1, |_| {}), 10_001, "{when}: its first run");
        assert_eq!(third.sum(7, 1, |_| {}), 40_008, "{when}");
    }
}

#[test]
fn a_processor_that_fails_or_refuses_the_first_step_after_a_restart_leaves_the_sequence_as_it_was() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, processors::TOML, with_processors);
        let first = machine.serve();
        first.sum(7, 5, start);
        first.stop();
        let second = machine.serve();
        for trap_or_refusal in [1000, 1002] {
            let failed = second.send(7, trap_or_refusal, |_| {}).unwrap_err();
            assert!(matches!(&failed, Failure::Processor(failure) if !failure.ended), "{when}: {failed:?}");
            assert_eq!(second.resumable(), [(sequor_core::Id::from(7), 1)], "{when}: it waits again");
        }
        assert_eq!(second.sum(7, 1, |_| {}), 20_006, "{when}");
    }
}

#[test]
fn a_counted_step_that_was_refused_after_its_run_gets_no_answer_of_another_step() {
    let post = processors::refusing_post();
    let guest = ProcessorWat { post: &post, ..processors::guest() };
    for when in ["never", "drain", "step"] {
        let machine = machine(when, processors::TOML, with_processors);
        fs_err::write(machine.folder.path().join("guest.wasm"), guest.component()).unwrap();
        let mut server = machine.serve();
        assert_eq!(server.sum(7, 5, |s| (s.start, s.step) = (true, Some(1))), 10_005);
        assert_eq!(server.sum(7, 1, |s| s.step = Some(2)), 20_006);
        assert!(matches!(server.send(7, 772, |s| s.step = Some(3)).unwrap_err(), Failure::Processor(_)), "{when}");
        assert_eq!(server.refusal(7, |s| s.step = Some(3)), Refusal::StepGone { want: 4 }, "{when}");
        if when != "never" {
            server.stop();
            server = machine.serve();
            assert_eq!(server.refusal(7, |s| s.step = Some(3)), Refusal::StepGone { want: 4 }, "{when}, restarted");
        }
        assert_eq!(
            server.sum(7, 1, |s| s.step = Some(4)),
            36_183,
            "{when}: eight runs have moved the state, and the scratch is as it was"
        );
    }
}

#[test]
fn a_repeated_counted_step_gets_the_answer_of_the_processors() {
    for when in ["drain", "step"] {
        let machine = machine(when, processors::TOML, with_processors);
        let first = machine.serve();
        first.sum(7, 5, |s| (s.start, s.step) = (true, Some(1)));
        assert_eq!(first.sum(7, 1, |s| s.step = Some(2)), 20_006);
        first.stop();
        let second = machine.serve();
        assert_eq!(second.sum(7, 1, |s| s.step = Some(2)), 20_006, "{when}: the answer of the first time");
        assert_eq!(second.sum(7, 1, |s| s.step = Some(3)), 30_007, "{when}");
    }
}

#[test]
fn a_step_is_busy_until_its_reply_is_in_the_store() {
    let machine = machine("step", processors::TOML, with_processors);
    let server = machine.serve();
    server.sum(7, 5, |s| (s.start, s.step) = (true, Some(1)));
    machine.hold_disk(true);
    let second = server.repository.submit(request(7, 1001, |s| s.step = Some(2))).unwrap();
    while server.repository.live_sequences("sum").unwrap().iter().all(|live| live.step < 2) {
        std::thread::yield_now();
    }
    assert_eq!(server.refusal(7, |s| s.step = Some(2)), Refusal::StepBusy { step: 2 });
    machine.hold_disk(false);
    let of = |answer: InferAnswer| answer.outputs[0].tensor.data.to_vec();
    let first = of(answered(second));
    assert_eq!(
        (of(server.send(7, 1, |s| s.step = Some(2)).unwrap()), &first[..]),
        (first.clone(), &1001i32.to_le_bytes()[..])
    );
}

/// A processor answers value 1001 without a run.
#[test]
fn a_step_that_cannot_be_stored_goes_on_from_the_stored_state_and_scratch() {
    let machine = machine("step", processors::TOML, with_processors);
    let server = machine.serve();
    assert_eq!([server.sum(7, 5, start), server.sum(7, 1, |_| {})], [10_005, 20_006]);
    for value in [1, 1001] {
        machine.fail_disk(true);
        let failed = server.send(7, value, |_| {}).unwrap_err();
        assert!(matches!(failed, Failure::NotStored { goes_on: true, .. }), "{failed:?}");
        assert_eq!(server.resumable(), [(sequor_core::Id::from(7), 2)], "{value}");
        machine.fail_disk(false);
    }
    assert_eq!(server.sum(7, 1, |_| {}), 30_007, "its third call");
    assert_eq!(server.sum(7, 1001, |_| {}), 1001);
    assert_eq!(server.sum(7, 1, |_| {}), 40_008);
}

/// The state that a later step leaves contains what the reply left.
#[test]
fn a_reply_that_cannot_be_stored_ends_a_sequence_whose_later_step_has_run() {
    let machine = machine("step", processors::TOML, with_processors);
    let server = machine.serve();
    server.sum(7, 5, start);
    machine.hold_disk(true);
    let wait_for = |step| {
        while server.repository.live_sequences("sum").unwrap().iter().all(|live| live.step < step) {
            std::thread::yield_now();
        }
    };
    let reply = server.repository.submit(request(7, 1001, |_| {})).unwrap();
    wait_for(2);
    let later = server.repository.submit(request(7, 1, |_| {})).unwrap();
    wait_for(3);
    machine.fail_disk(true);
    machine.hold_disk(false);
    let outcome = |pending: Pending| {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap_err()
    };
    let failed = outcome(reply);
    assert!(matches!(failed, Failure::NotStored { goes_on: false, .. }), "{failed:?}");
    let failed = outcome(later);
    assert!(!matches!(failed, Failure::NotStored { goes_on: true, .. }), "{failed:?}");
    machine.fail_disk(false);
    let gone = server.refusal(7, |_| {});
    assert!(matches!(gone, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Unsealed), "{gone:?}");
}

/// With `preserve_ordering` the answer of a reply waits for its turn, and later steps of its sequence run meanwhile.
#[test]
fn a_reply_that_leaves_late_does_not_overwrite_a_later_step_in_the_store() {
    let machine = machine("step", processors::TOML, with_processors);
    let file = machine.model().join("config.pbtxt");
    let config = fs_err::read_to_string(&file).unwrap();
    let ordered = OLDEST.replace('}', "preserve_ordering: true }");
    fs_err::write(file, config.replace(OLDEST, &ordered)).unwrap();
    let server = machine.serve();
    server.sum(9, 5, start);
    server.sum(7, 5, |s| (s.start, s.step) = (true, Some(1)));
    machine.hold_disk(true);
    let before = server.repository.submit(request(9, 1, |_| {})).unwrap();
    machine.wait_for_held_commit();
    let wait_for = |step| {
        let is_there = |live: &LiveSequence| live.id == sequor_core::Id::from(7) && live.step == step;
        while !server.repository.live_sequences("sum").unwrap().iter().any(is_there) {
            std::thread::yield_now();
        }
    };
    let second = server.repository.submit(request(7, 1001, |s| s.step = Some(2))).unwrap();
    wait_for(2);
    let third = server.repository.submit(request(7, 1, |s| s.step = Some(3))).unwrap();
    wait_for(3);
    machine.hold_disk(false);
    let value = |pending| i32::from_le_bytes(answered(pending).outputs[0].tensor.data[..].try_into().unwrap());
    assert_eq!((value(before), value(second), value(third)), (20_006, 1001, 20_006));
    let after = machine.serve_from(&machine.crashed());
    assert_eq!(after.sum(7, 1, |s| s.step = Some(3)), 20_006, "the answer of the third step, not of the second");
    assert_eq!(after.sum(7, 1, |s| s.step = Some(4)), 30_007);
}

#[test]
fn a_stored_scratch_is_refused_if_the_processors_have_changed() {
    let machine = machine("drain", processors::TOML, with_processors);
    let first = machine.serve();
    first.sum(7, 5, start);
    first.stop();
    let toml = machine.model().join("sequor.toml");
    let before = fs_err::read_to_string(&toml).unwrap();
    fs_err::write(&toml, "[durability]\nwhen = \"drain\"\n").unwrap();
    let changed = machine.serve();
    match changed.send(7, 1, |_| {}).unwrap_err() {
        Failure::NotResumed { why, .. } => {
            assert_eq!(why, "the files of version 1 or its processors have changed since");
        }
        other => panic!("{other:?}"),
    }
    changed.stop();
    fs_err::write(&toml, before).unwrap();
    assert_eq!(machine.serve().sum(7, 1, |_| {}), 20_006, "nothing was lost by that");
}

#[test]
fn a_restored_sequence_continues_from_its_state_without_the_initializer() {
    for when in ["drain", "step"] {
        let machine = machine(when, initializers::TOML, with_an_initializer);
        let first = machine.serve();
        assert_eq!(first.sum(7, 1000, start), 2000, "its first state is 1000");
        assert_eq!(first.sum(8, 10, start), 310, "three steps of 100");
        first.stop();
        let second = machine.serve();
        assert_eq!(second.sum(7, 1, |_| {}), 2001, "{when}");
        assert_eq!(second.sum(8, 1, |_| {}), 311, "{when}");
        assert_eq!(second.sum(7, 1000, start), 2000, "a START on it begins anew");
        second.stop();
        let third = machine.serve();
        assert_eq!(third.sum(8, 1000, start), 2000, "{when}: also where it was not read");
    }
}

#[test]
fn a_stored_sequence_that_a_processor_ends_is_remembered_with_its_name() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, processors::TOML, with_processors);
        let pre = processors::ending_pre();
        let guest = processors::ending_guest(&pre).component();
        fs_err::write(machine.folder.path().join("guest.wasm"), guest).unwrap();
        let first = machine.serve();
        first.sum(7, 5, start);
        first.stop();
        let second = machine.serve();
        let ended = second.send(7, 1002, |_| {}).unwrap_err();
        assert!(matches!(&ended, Failure::Processor(failure) if failure.ended), "{when}: {ended:?}");
        let Err(Failure::Refused(gone)) = second.send(7, 1, |_| {}) else { panic!("{when}: it lives") };
        let Refusal::Unknown(Some(stone)) = gone.refusal else { panic!("{when}: {gone:?}") };
        assert_eq!((stone.why, stone.step), (EndReason::Rejected, 1), "{when}");
        assert_eq!(gone.ended_by.map(|by| by.plugin).as_deref(), Some("guest"), "{when}");
    }
}

/// The processor declares an output of one row, so the outputs of two runs do not fit. Only the sequence of that request ends.
#[test]
fn a_sequence_that_ends_with_its_run_takes_no_other_of_its_batch_with_it() {
    let one_row = "
        (i64.store (i32.load offset=12 (i32.load offset=72 (local.get 0))) (i64.const 1))
        (i32.store8 (i32.const 1024) (i32.const 0))
        (memory.copy (i32.const 1028) (i32.add (local.get 0) (i32.const 64)) (i32.const 16))
        (global.set $heap (i32.const 8192))
        (i32.const 1024)";
    let guest = ProcessorWat { configure: one_row, manifest: "wants = [\"pre\"]\n", ..processors::guest() };
    for (when, ends) in [("step", 1), ("step", 2), ("every", 1), ("every", 2)] {
        let machine = machine(when, processors::TOML, with_processors);
        fs_err::write(machine.folder.path().join("guest.wasm"), guest.component()).unwrap();
        // A batch has a row of each of the two sequences.
        let file = machine.model().join("config.pbtxt");
        let direct = "direct { minimum_slot_utilization: 1.0 max_queue_delay_microseconds: 60000000 }";
        let config = fs_err::read_to_string(&file).unwrap().replace(OLDEST, direct);
        fs_err::write(file, config.replace("max_batch_size: 4", "max_batch_size: 2").replace("count: 2", "count: 1"))
            .unwrap();
        let server = machine.serve();
        let submit = |id: u64, value: i32, starts: bool| {
            server.repository.submit(super::request(id, value, |s| s.start = starts)).unwrap()
        };
        let answer =
            |pending: Pending| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending);
        let lives = 3 - ends;
        // Its second run is in one batch with the other's second step.
        let two_runs = submit(ends, 100, true);
        let value = |answer: InferAnswer| i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap());
        assert_eq!(value(answer(submit(lives, 5, true)).unwrap()), 5);
        let second = submit(lives, 1, false);
        let failed = answer(two_runs).unwrap_err();
        assert!(matches!(&failed, Failure::Processor(failure) if failure.ended), "{failed:?}");
        assert_eq!(value(answer(second).unwrap()), 6, "{when}, {ends} ends");
        assert_eq!(server.repository.live(), 1);
    }
}

/// The server stops while a request is between two runs. Its state is neither that of before the request nor that of after it.
#[test]
fn a_sequence_that_has_run_in_part_when_the_server_stops_is_counted_as_lost() {
    let (begun, running) = sync_channel(1);
    let (goes_on, held) = sync_channel::<()>(1);
    let (is_held, held) = (Arc::new(AtomicBool::new(false)), parking_lot::Mutex::new(held));
    let holds = Arc::clone(&is_held);
    let mut machine = machine("drain", processors::TOML, with_processors);
    machine.backend = MockBackend::with_hook(Arc::new(move |_| {
        if holds.swap(false, Ordering::AcqRel) {
            begun.send(()).unwrap();
            held.lock().recv().unwrap();
        }
    }));
    let server = machine.serve();
    assert_eq!(server.sum(7, 5, start), 10_005);
    is_held.store(true, Ordering::Release);
    // It has two runs.
    let in_part = server.repository.submit(request(7, 100, |_| {})).unwrap();
    running.recv().unwrap();
    let model = server.repository.0.catalog.entries.read()["sum"].model.clone().unwrap();
    let left = std::thread::scope(|scope| {
        let stopping = scope.spawn(|| restart::keep_live(&model));
        while !model.loads().iter().any(|load| load.mail.iter().any(Mailbox::is_full)) {
            std::thread::yield_now();
        }
        goes_on.send(()).unwrap();
        stopping.join().unwrap()
    });
    assert_eq!((left.kept, left.lost, left.why.is_some()), (0, 1, true), "{left:?}");
    answered(in_part);
}
