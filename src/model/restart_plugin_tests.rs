//! Sequences of models with plug-ins over a restart: the scratch of processors stays with the state, and a first state is made once.

use std::path::Path;

use super::restart_tests::{Machine, OLDEST, start};
use super::*;
use super::{initializer_tests, processor_tests};
use crate::error::Failure;
use crate::processing::PlaceRules;

/// A machine whose model has these plug-ins.
fn machine(when: &str, toml: &str, equip: fn(&Path, &Repository)) -> Machine {
    let mut machine = Machine::new(when, OLDEST);
    machine.equip = equip;
    fs_err::write(machine.folder.path().join("guest.wasm"), processor_tests::guest().component()).unwrap();
    let toml = format!("{toml}[durability]\nwhen = \"{when}\"\n");
    fs_err::write(machine.model().join("sequor.toml"), toml).unwrap();
    machine
}

fn with_processors(folder: &Path, repository: &Repository) {
    let rules = PlaceRules { dir: Some(folder.to_owned()), strikes: 3, ..PlaceRules::default() };
    repository.run_processors(rules, Box::new(processor_tests::component)).unwrap();
}

fn with_an_initializer(folder: &Path, repository: &Repository) {
    repository.run_processors(PlaceRules::default(), Box::new(initializer_tests::no_processor)).unwrap();
    let rules = PlaceRules { dir: Some(folder.to_owned()), strikes: 3, ..PlaceRules::default() };
    repository.run_initializers(rules, Box::new(initializer_tests::component)).unwrap();
}

#[test]
fn the_scratch_of_processors_stays_with_the_state() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, processor_tests::TOML, with_processors);
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
fn a_counted_step_is_answered_again_with_what_the_processors_made() {
    for when in ["drain", "step"] {
        let machine = machine(when, processor_tests::TOML, with_processors);
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
fn other_processors_do_not_go_on_with_a_scratch() {
    let machine = machine("drain", processor_tests::TOML, with_processors);
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
fn a_sequence_goes_on_from_its_state_and_not_from_a_new_first_one() {
    for when in ["drain", "step"] {
        let machine = machine(when, initializer_tests::TOML, with_an_initializer);
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
