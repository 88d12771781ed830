//! Sequences over a restart: the server is stopped, or dies, and another one goes on with its store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Condvar, Mutex};
use sequor_core::{EndReason, Id, Refusal, Stage};
use tempfile::TempDir;

use super::{load, request};
use crate::backend::mock::MockBackend;
use crate::error::Failure;
use crate::model::*;
use crate::state::tier::{
    self, EndedState, FoundState, StateHead, Successions, Tier, TierChange, TierError, TierKey, TierUsage,
};
use crate::telemetry::Metrics;

const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 2 } ]
    sequence_batching { STRATEGY max_sequence_idle_microseconds: 5000000 state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

/// A model's files and a store, which outlive servers.
pub(super) struct Machine {
    pub(super) folder: TempDir,
    /// Maximum bytes of states: on disk, and in memory.
    limit: u64,
    memory: u64,
    pub(super) clock: Clock,
    /// Gives a server its plug-ins.
    pub(super) equip: fn(&Path, &Repository),
    disk: Arc<SlowDisk>,
}

/// Holds commits up, and counts them.
#[derive(Debug, Default)]
struct SlowDisk {
    is_held: Mutex<bool>,
    changed: Condvar,
    /// Commits that have begun, and those that were not held up any more.
    begun: AtomicU64,
    commits: AtomicU64,
    /// States that were to be written.
    states: AtomicU64,
}

impl SlowDisk {
    fn hold(&self, held: bool) {
        *self.is_held.lock() = held;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct SlowTier(tier::DiskTier, Arc<SlowDisk>);

impl Tier for SlowTier {
    fn get(&self, key: &TierKey) -> FoundState {
        self.0.get(key)
    }

    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError> {
        self.1.begun.fetch_add(1, Ordering::Release);
        let mut held = self.1.is_held.lock();
        while *held {
            self.1.changed.wait(&mut held);
        }
        self.1.commits.fetch_add(1, Ordering::Release);
        drop(held);
        let states = changes.iter().filter(|change| matches!(change, TierChange::Put { .. })).count();
        self.1.states.fetch_add(states as u64, Ordering::Relaxed);
        self.0.put_batch(changes)
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.0.head(key)
    }

    fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)> {
        self.0.list(model)
    }

    fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)> {
        self.0.take_ended(model)
    }

    fn successions(&self, model: &str) -> Successions {
        self.0.successions(model)
    }

    fn usage(&self) -> TierUsage {
        self.0.usage()
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        self.0.next_epoch(least)
    }

    fn close(&self) {
        self.0.close();
    }
}

pub(super) struct Server {
    pub(super) repository: Repository,
    stopped: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stopped {
            self.repository.stop();
        }
    }
}

impl Machine {
    pub(super) fn new(when: &str, strategy: &str) -> Machine {
        let machine = Machine {
            folder: tempfile::tempdir().unwrap(),
            limit: u64::MAX,
            memory: u64::MAX,
            clock: Clock::manual(),
            equip: |_, _| {},
            disk: Arc::default(),
        };
        fs_err::create_dir_all(machine.model().join("1")).unwrap();
        fs_err::write(machine.model().join("config.pbtxt"), CONFIG.replace("STRATEGY", strategy)).unwrap();
        fs_err::write(machine.model().join("sequor.toml"), format!("[durability]\nwhen = \"{when}\"\n")).unwrap();
        fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32").unwrap();
        machine
    }

    /// With so much memory for states.
    pub(super) fn with_memory(self, memory: u64) -> Machine {
        Machine { memory, ..self }
    }

    /// Holds up what the store has to write, or lets it go on.
    pub(super) fn hold_disk(&self, held: bool) {
        self.disk.hold(held);
    }

    /// Waits until the store is held up.
    pub(super) fn wait_for_held_commit(&self) {
        while self.disk.begun.load(Ordering::Acquire) == self.disk.commits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn model(&self) -> PathBuf {
        self.folder.path().join("sum")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(super) fn serve(&self) -> Server {
        self.serve_from(&self.state())
    }

    pub(super) fn serve_from(&self, state: &Path) -> Server {
        let opened = tier::open(state, self.limit, Duration::ZERO).unwrap();
        assert!(opened.set_aside.is_none(), "{:?}", opened.set_aside);
        let epoch = opened.tier.next_epoch(1).unwrap();
        let store =
            Arc::new(SequenceStore::new(Arc::new(SlowTier(opened.tier, Arc::clone(&self.disk))), epoch).unwrap());
        let first_id = Some(repository::first_id_of(epoch));
        let clock = self.clock.clone();
        let options = RepositoryOptions {
            reply_pool: 1 << 20,
            state_limit: self.memory,
            store: Some(store),
            first_id,
            clock,
            ..RepositoryOptions::default()
        };
        let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
        (self.equip)(self.folder.path(), &repository);
        load(&repository, &self.model());
        Server { repository, stopped: false }
    }

    /// What a machine has on its disk if the server dies now.
    pub(super) fn crashed(&self) -> PathBuf {
        let copy = self.folder.path().join("crashed");
        let _ = fs_err::remove_dir_all(&copy);
        fs_err::create_dir(&copy).unwrap();
        let read = || fs_err::read(self.state().join("sequences.redb")).unwrap();
        // The store may be writing.
        let (mut file, mut again) = (read(), read());
        while file != again {
            (file, again) = (again, read());
        }
        fs_err::write(copy.join("sequences.redb"), file).unwrap();
        copy
    }
}

impl Server {
    pub(super) fn send(
        &self,
        id: u64,
        value: i32,
        change: impl FnOnce(&mut SequenceStep),
    ) -> Result<InferAnswer, Failure> {
        let pending = self.repository.submit(request(id, value, change))?;
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
    }

    pub(super) fn sum(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> i32 {
        let answer = self.send(id, value, change).unwrap();
        i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
    }

    pub(super) fn refusal(&self, id: u64, change: impl FnOnce(&mut SequenceStep)) -> Refusal {
        match self.send(id, 1, change).unwrap_err() {
            Failure::Refused(refused) => refused.refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Ids and steps of the sequences that wait for their next step.
    pub(super) fn resumable(&self) -> Vec<(Id, u64)> {
        self.repository.resumable("sum").unwrap().into_iter().map(|kept| (kept.id, kept.step)).collect()
    }

    pub(super) fn stop(mut self) {
        self.stopped = true;
        self.repository.stop();
    }
}

pub(super) fn start(step: &mut SequenceStep) {
    step.start = true;
}

pub(super) const OLDEST: &str = "oldest { max_candidate_sequences: 4 }";

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

#[test]
fn after_a_crash_a_sequence_goes_on_from_its_last_answer_or_not_at_all() {
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
            // What was written when the first server stopped is older than what the client was answered.
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
    // The store has done what came before this.
    server.sum(3, 1, start);
    assert_eq!(machine.serve_from(&machine.crashed()).resumable(), [(Id::from(3), 1)]);
}

#[test]
fn a_start_on_a_kept_id_begins_anew_and_the_kept_state_is_gone() {
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
fn a_state_goes_on_with_the_model_that_made_it_alone() {
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
    assert_eq!(changed.sum(8, 1, start), 1, "others are served");
    changed.stop();
    fs_err::remove_file(weights).unwrap();
    assert_eq!(machine.serve().sum(7, 2, |_| {}), 42, "nothing was lost by that");
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

/// The last durable step that an answer names, once it is at least this one.
pub(super) fn durable(server: &Server, id: u64, least: i64) -> i64 {
    for step in 0.. {
        let answer = server.send(id, 0, |_| {}).unwrap();
        match &answer.parameters[..] {
            [(name, Parameter::Int(durable))] if name == "sequor_durable_step" => {
                if *durable >= least {
                    return *durable;
                }
            }
            other => panic!("{other:?}"),
        }
        assert!(step < 100_000, "nothing becomes durable");
    }
    0
}

#[test]
fn with_every_an_answer_names_the_durable_step_and_a_client_that_counts_goes_on_from_there() {
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST);
    let first = machine.serve();
    let said = first.send(7, 1, |s| (s.start, s.step) = (true, Some(1))).unwrap();
    assert_eq!(said.parameters, [("sequor_durable_step".to_owned(), Parameter::Int(0))]);
    first.sum(8, 5, start);
    (2..=4).for_each(|n| assert_eq!(first.sum(7, 1, |s| s.step = Some(n)), n as i32));
    // The store has done what came before this.
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
    // A planned restart loses nothing, whether the client counts or not.
    first.stop();
    let second = machine.serve();
    assert_eq!(second.sum(7, 1, |s| s.step = Some(5)), 5);
    assert_eq!(second.sum(8, 1, |_| {}), 6);
    // What it goes on from is older than what it has answered now.
    let after = machine.serve_from(&machine.crashed());
    assert!(matches!(after.send(8, 1, |_| {}).unwrap_err(), Failure::NotResumed { .. }));
    assert_eq!(after.refusal(7, |s| s.step = Some(6)), Refusal::StepGap { want: 5 });
}

#[test]
fn with_every_a_state_of_the_life_before_is_gone_once_a_start_is_answered() {
    let machine = Machine::new("every\"\nevery = 1 # \"", OLDEST);
    let server = machine.serve();
    server.sum(7, 40, |s| (s.start, s.step) = (true, Some(1)));
    durable(&server, 7, 1);
    server.sum(7, 1, |s| (s.start, s.step) = (true, Some(1)));
    let after = machine.serve_from(&machine.crashed());
    assert_eq!(after.sum(7, 1, |s| s.step = Some(2)), 2);
}

#[test]
fn after_a_start_that_failed_nothing_goes_on_from_the_life_before() {
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

/// One second after this, sequences move to version 2, whose answers are 1000 more.
#[test]
fn how_a_sequence_ended_is_known_after_a_restart_and_after_a_crash() {
    for when in ["drain", "step"] {
        let machine = Machine::new(when, OLDEST);
        machine.clock.advance(Duration::from_secs(10));
        let first = machine.serve();
        first.sum(1, 1, start);
        first.sum(1, 1, |s| s.end = true);
        first.sum(2, 1, start);
        assert!(first.repository.drop_sequence("sum", &Id::from(2)).unwrap());
        // The store has done what came before this.
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
fn what_does_not_fit_on_the_disk_is_lost_and_the_rest_is_kept() {
    let machine = Machine { limit: 400, ..Machine::new("drain", OLDEST) };
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
fn an_id_that_the_server_made_is_made_once() {
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

#[test]
fn idle_sequences_go_to_the_store_where_a_start_needs_their_memory() {
    for (when, strategy) in [("drain", OLDEST), ("step", "direct { }"), ("every", OLDEST)] {
        // Three states of four bytes.
        let machine = Machine { memory: 12, ..Machine::new(when, strategy) };
        let server = machine.serve();
        for id in 1..=20 {
            machine.clock.advance(Duration::from_millis(1));
            assert_eq!(server.sum(id, 10 * id as i32, start), 10 * id as i32, "{when}");
        }
        // Those that have been idle longest have left.
        let ids: Vec<Id> = server.resumable().into_iter().map(|(id, _)| id).collect();
        assert_eq!((ids.len(), ids.contains(&Id::from(20))), (17, false), "{ids:?}");
        for round in 1..=5 {
            (1..=20).for_each(|id| assert_eq!(server.sum(id, 1, |_| {}), 10 * id as i32 + round, "{when} {id}"));
        }
        assert_eq!(server.sum(7, 1, |s| s.end = true), 76);
        assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::End));
        assert_eq!(server.sum(8, 1, start), 1, "a START on an id that is not in memory begins anew");
        // They expire as others do.
        machine.clock.advance(Duration::from_secs(6));
        server.repository.live_sequences("sum").unwrap();
        assert!(matches!(server.refusal(1, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::Idle));
        assert_eq!(server.sum(30, 1, start), 1);
        server.stop();
        assert_eq!(machine.serve().resumable(), [(Id::from(30), 1)], "{when}");
    }
}

#[test]
fn what_has_left_memory_survives_a_restart_and_a_crash() {
    let machine = Machine { memory: 12, ..Machine::new("drain", OLDEST) };
    let server = machine.serve();
    (1..=5).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
    // A step that comes back has passed the store, which has done what came before it.
    assert_eq!(server.sum(1, 1, |_| {}), 11);
    assert_eq!(server.sum(2, 1, |_| {}), 11);
    let crashed = machine.serve_from(&machine.crashed());
    let left: Vec<Id> = crashed.resumable().into_iter().map(|(id, _)| id).collect();
    assert!(!left.contains(&Id::from(1)) && !left.contains(&Id::from(2)), "they went on: {left:?}");
    for id in left {
        let Id::Int(id) = id else { panic!("{id:?}") };
        assert_eq!(crashed.sum(id, 1, |_| {}), 11);
    }
    server.stop();
    let second = machine.serve();
    assert_eq!(second.resumable().len(), 5);
    (1..=5).for_each(|id| assert_eq!(second.sum(id, 100, |_| {}), if id < 3 { 111 } else { 110 }));
}

#[test]
fn with_a_full_disk_no_sequence_is_lost_and_a_start_beyond_memory_is_refused() {
    // One file fits, of a hundred bytes and some.
    let machine = Machine { memory: 12, limit: 300, ..Machine::new("drain", OLDEST) };
    let server = machine.serve();
    let mut started = 0;
    let refused = loop {
        machine.clock.advance(Duration::from_millis(1));
        match server.send(started + 1, 10, start) {
            Ok(_) => started += 1,
            Err(failure) => break failure,
        }
        assert!(started < 100, "all of them were started");
    };
    assert!(matches!(refused, Failure::StateMemory { limit: 12, .. }), "{refused:?}");
    assert!(started > 3, "{started}");
    // Each can go on once another one has ended: the file of one is still in memory.
    let live: Vec<Id> = server.repository.live_sequences("sum").unwrap().into_iter().map(|live| live.id).collect();
    let Id::Int(last) = live[0] else { panic!("{live:?}") };
    assert_eq!(server.sum(last, 1, |s| s.end = true), 11);
    for id in (1..=started).filter(|id| *id != last) {
        assert_eq!(server.sum(id, 1, |s| s.end = true), 11, "{id} of {started}");
    }
}

pub(super) fn answered(pending: Pending) -> InferAnswer {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap()
}

#[test]
fn while_the_disk_is_slow_with_every_only_so_many_steps_are_answered_ahead_of_it() {
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST);
    let server = machine.serve();
    machine.disk.hold(true);
    server.sum(7, 1, start);
    server.sum(7, 1, |_| {});
    assert_eq!(server.sum(7, 1, |_| {}), 3, "its write is on its way");
    let mut fourth = server.repository.submit(request(7, 1, |_| {})).unwrap();
    assert!((&mut fourth).now_or_never().is_none());
    let other = server.send(8, 1, start).unwrap();
    assert_eq!(other.parameters, [("sequor_durable_step".to_owned(), Parameter::Int(0))], "others go on");
    machine.disk.hold(false);
    assert_eq!(answered(fourth).parameters, [("sequor_durable_step".to_owned(), Parameter::Int(3))]);
}

#[test]
fn while_the_disk_is_slow_what_waits_shares_a_commit() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    server.sum(1, 1, start);
    machine.disk.hold(true);
    let first = server.repository.submit(request(1, 1, |_| {})).unwrap();
    let waiting: Vec<Pending> =
        (2..=8).map(|id| server.repository.submit(request(id, 1, |s| s.start = true)).unwrap()).collect();
    while server.repository.live_sequences("sum").unwrap().iter().filter(|live| live.stage == Stage::Sealing).count()
        < 8
    {
        std::thread::yield_now();
    }
    let before = machine.disk.commits.load(Ordering::Relaxed);
    machine.disk.hold(false);
    answered(first);
    waiting.into_iter().for_each(|pending| drop(answered(pending)));
    let commits = machine.disk.commits.load(Ordering::Relaxed) - before;
    assert!(commits <= 4, "{commits} commits of 8 steps");
}

#[test]
fn with_step_a_sequence_that_leaves_memory_is_not_written_once_more() {
    let machine = Machine { memory: 12, ..Machine::new("step", OLDEST) };
    let server = machine.serve();
    (1..=8).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
    (1..=8).for_each(|id| assert_eq!(server.sum(id, 1, |s| s.step = Some(2)), 11));
    // The store has done what came before this.
    server.sum(1, 1, |s| s.step = Some(3));
    assert_eq!(machine.disk.states.load(Ordering::Relaxed), 8 + 8 + 1);
    let crashed = machine.serve_from(&machine.crashed());
    (2..=4).for_each(|id| assert_eq!(crashed.sum(id, 5, |s| s.step = Some(2)), 11, "the answer of the first time"));
    (2..=8).for_each(|id| assert_eq!(crashed.sum(id, 5, |s| s.step = Some(3)), 16));
}

#[test]
fn no_further_sequence_leaves_memory_while_the_disk_has_too_much_to_write() {
    let machine = Machine { memory: 12, ..Machine::new("drain", OLDEST) };
    let server = machine.serve();
    machine.disk.hold(true);
    for id in 1..=4 {
        machine.clock.advance(Duration::from_millis(1));
        assert_eq!(server.sum(id, 10, start), 10);
    }
    assert_eq!(server.resumable().len(), 1);
    let mut fifth = server.repository.submit(request(5, 10, |s| s.start = true)).unwrap();
    // Each instance has done what it was asked for before these.
    let live: Vec<Id> = server.repository.live_sequences("sum").unwrap().into_iter().map(|live| live.id).collect();
    let here = live.into_iter().filter_map(|id| if let Id::Int(id) = id { Some(id) } else { None });
    here.filter(|id| *id != 5).for_each(|id| assert_eq!(server.sum(id, 1, |_| {}), 11));
    assert!((&mut fifth).now_or_never().is_none());
    assert_eq!(server.resumable().len(), 1);
    machine.disk.hold(false);
    answered(fifth);
    assert_eq!(server.resumable().len(), 2);
}

#[test]
fn the_answer_of_an_earlier_step_is_not_given_for_a_later_one() {
    let machine = Machine::new("drain", OLDEST);
    let server = machine.serve();
    server.sum(7, 1, |s| (s.start, s.step) = (true, Some(1)));
    assert_eq!(server.sum(7, 1, |_| {}), 2, "this one is not counted");
    assert_eq!(server.refusal(7, |s| s.step = Some(2)), Refusal::StepGone { want: 3 });
    assert_eq!(server.sum(7, 1, |s| s.step = Some(3)), 3);
}

#[test]
fn a_step_that_waits_for_the_disk_when_the_server_stops_is_not_answered_with_the_one_before() {
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST);
    let server = machine.serve();
    machine.disk.hold(true);
    (1..=3).for_each(|n| assert_eq!(server.sum(7, 1, |s| (s.start, s.step) = (n == 1, Some(n))), n as i32));
    let repository = server.repository.clone();
    let _fourth = repository.submit(request(7, 1, |s| s.step = Some(4))).unwrap();
    let live = || repository.live_sequences("sum").unwrap().pop();
    while live().is_none_or(|live| live.stage != Stage::Sealing) {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let stopping = scope.spawn(move || server.stop());
        // Its state has been copied.
        while live().is_some_and(|live| !live.ending) {
            std::thread::yield_now();
        }
        machine.disk.hold(false);
        stopping.join().unwrap();
    });
    let second = machine.serve();
    // It may or may not have been applied; it is applied once.
    match second.send(7, 1, |s| s.step = Some(4)) {
        Ok(answer) => assert_eq!(answer.outputs[0].tensor.data[..], 4_i32.to_le_bytes()),
        Err(Failure::Refused(refused)) => assert!(matches!(refused.refusal, Refusal::StepGone { want: 5 })),
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(second.sum(7, 1, |s| s.step = Some(5)), 5);
}
