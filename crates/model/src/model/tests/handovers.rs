//! The window of a reload between the record of the successor and its service, and a store that fails while sequences move.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::Id;

use super::machine::{Machine, OLDEST, Server, start};
use super::restarts_with_reloads::{carrying, move_all, put_version, waiting};
use crate::error::Failure;
use crate::model::load::LoadedModel;
use crate::model::sequences::carry::Handover;
use crate::model::sequences::{ModelScheduler, state_transfer};

fn scheduler(server: &Server) -> Arc<ModelScheduler> {
    server.repository.0.catalog.models().remove(0)
}

fn load_of(server: &Server, version: u64) -> Arc<LoadedModel> {
    scheduler(server).load_for(Some(version)).unwrap()
}

/// A server that serves version 1 and whose store has three sequences of it. The files of version 2 are there, but not loaded. A second
/// server has the load of version 2.
fn before_version_2() -> (Machine, Server, (Server, Machine)) {
    let (machine, other) = (carrying("step", OLDEST), carrying("step", OLDEST));
    let first = machine.serve();
    (1..=3).for_each(|id| assert_eq!(first.sum(id, 10, start), 10));
    first.stop();
    let (second, there) = (machine.serve(), other.serve());
    put_version(&other, &there, 2);
    let (from, to) = (other.model().join("2"), machine.model().join("2"));
    fs_err::create_dir(&to).unwrap();
    fs_err::copy(from.join("model.onnx"), to.join("model.onnx")).unwrap();
    (machine, second, (there, other))
}

#[test]
fn a_handover_serves_the_old_version_and_after_a_crash_the_new_version() {
    let (machine, server, (there, _other)) = before_version_2();
    assert_eq!(server.sum(3, 1, |_| {}), 11);
    let handover = Handover::begin(&scheduler(&server), vec![load_of(&server, 1)], &[load_of(&there, 2)]);
    assert_eq!(waiting(&server), [1, 2].map(|id| (Id::from(id), 1, 1)));
    assert_eq!([1, 3].map(|id| server.sum(id, 1, |_| {})), [11, 12]);
    let crashed = machine.serve_from(&machine.crashed());
    assert_eq!(waiting(&crashed), [(1, 2), (2, 1), (3, 3)].map(|(id, step)| (Id::from(id), 2, step)));
    assert_eq!([1, 2, 3].map(|id| crashed.sum(id, 1, |_| {})), [1012, 1011, 1013]);
    drop(crashed);
    // The new version does not serve after all.
    handover.withdraw(&scheduler(&server));
    assert_eq!([1, 2, 3].map(|id| server.sum(id, 1, |_| {})), [12, 11, 13]);
    let crashed = machine.serve_from(&machine.crashed());
    assert!(
        matches!(crashed.send(2, 1, |_| {}).unwrap_err(), Failure::NotResumed { .. }),
        "nothing goes on from version 1"
    );
}

#[test]
fn stored_sequences_move_to_the_new_version_while_both_versions_serve() {
    let (machine, first, (_there, _other)) = before_version_2();
    first.stop();
    let config = machine.model().join("config.pbtxt");
    let text = fs_err::read_to_string(&config).unwrap();
    fs_err::write(&config, format!("{text} version_policy {{ all {{ }} }}")).unwrap();
    let server = machine.serve();
    // The next server uses only the newest version, as after a reload.
    fs_err::write(&config, text).unwrap();
    assert_eq!(server.sum(3, 1, |_| {}), 11, "it lives on version 1");
    let handover = Handover::begin(&scheduler(&server), vec![load_of(&server, 1)], &[load_of(&server, 2)]);
    assert_eq!([1, 3].map(|id| server.sum(id, 1, |_| {})), [1011, 12]);
    let crashed = machine.serve_from(&machine.crashed());
    assert_eq!([1, 2, 3].map(|id| crashed.sum(id, 1, |_| {})), [1012, 1011, 1013]);
    drop(crashed);
    handover.complete(&scheduler(&server));
    assert_eq!([1, 2, 3].map(|id| server.sum(id, 1, |_| {})), [1012, 1011, 13]);
}

/// Version 2 continues from the states of version 1. Then the files of version 1 come back while the disk is full, and that handover is withdrawn.
#[test]
fn a_handover_withdrawn_on_a_full_disk_is_not_written_later() {
    let (machine, other) = (carrying("step", OLDEST), carrying("step", OLDEST));
    let (server, there) = (machine.serve(), other.serve());
    assert_eq!(server.sum(1, 10, start), 10);
    put_version(&machine, &server, 2);
    move_all(&machine, &server);
    machine.fail_disk(true);
    let handover = Handover::begin(&scheduler(&server), vec![load_of(&server, 2)], &[load_of(&there, 1)]);
    machine.fail_disk(false);
    handover.withdraw(&scheduler(&server));
    server.stop();
    assert_eq!(machine.serve().sum(1, 1, |_| {}), 1011);
}

/// The store accepts nothing, so Sequor leaves it alone for a second. Sequences that are due meanwhile move in memory.
#[test]
fn sequences_move_in_memory_while_the_store_fails() {
    let machine = carrying("every\"\nevery = 1000 # \"", OLDEST).with_memory(12).with_limit(50);
    let server = machine.serve();
    (1..=3).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
    put_version(&machine, &server, 2);
    machine.clock.advance(Duration::from_millis(900));
    assert_eq!(server.sum(4, 10, start), 1010, "the first one has made room");
    // After this call the store has finished its earlier work.
    assert!(server.repository.drop_sequence("sum", &Id::from(4)).unwrap());
    machine.clock.advance(Duration::from_millis(200));
    // Sequences that are due are asked every 20 ms. The store is tried again after a second.
    for _ in 0..30 {
        server.repository.tick();
        // Each instance finishes its earlier requests before it copies a state.
        (1..=3).for_each(|id| drop(state_transfer::export(&scheduler(&server), &Id::from(id), None)));
        machine.clock.advance(Duration::from_millis(20));
    }
    assert_eq!(waiting(&server).len(), 3, "all of them moved meanwhile");
    assert_eq!(machine.states_written(), 1, "no other one was to be written");
    assert_eq!([1, 2, 3].map(|id| server.sum(id, 1, |_| {})), [1011; 3]);
}
