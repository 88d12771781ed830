//! Sequences over a restart: the server is stopped, or dies, and another one goes on with its store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{Id, Refusal};
use tempfile::TempDir;

use super::tests::{load, request};
use super::*;
use crate::backend::mock::MockBackend;
use crate::error::Failure;
use crate::state::tier::{self, Tier as _};
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
struct Machine {
    folder: TempDir,
    limit: u64,
    clock: Clock,
}

struct Server {
    repository: Repository,
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
    fn new(when: &str, strategy: &str) -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap(), limit: u64::MAX, clock: Clock::manual() };
        fs_err::create_dir_all(machine.model().join("1")).unwrap();
        fs_err::write(machine.model().join("config.pbtxt"), CONFIG.replace("STRATEGY", strategy)).unwrap();
        fs_err::write(machine.model().join("sequor.toml"), format!("[durability]\nwhen = \"{when}\"\n")).unwrap();
        fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32").unwrap();
        machine
    }

    fn model(&self) -> PathBuf {
        self.folder.path().join("sum")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn serve(&self) -> Server {
        self.serve_from(&self.state())
    }

    fn serve_from(&self, state: &Path) -> Server {
        let opened = tier::open(state, self.limit, Duration::ZERO).unwrap();
        assert!(opened.set_aside.is_none(), "{:?}", opened.set_aside);
        let epoch = opened.tier.next_epoch(1).unwrap();
        let store = Arc::new(SequenceStore::new(Arc::new(opened.tier), epoch << 20).unwrap());
        let first_id = Some(repository::first_id_of(epoch));
        let clock = self.clock.clone();
        let options = RepositoryOptions {
            reply_pool: 1 << 20,
            store: Some(store),
            first_id,
            clock,
            ..RepositoryOptions::default()
        };
        let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
        load(&repository, &self.model());
        Server { repository, stopped: false }
    }

    /// What a machine has on its disk if the server dies now.
    fn crashed(&self) -> PathBuf {
        let copy = self.folder.path().join("crashed");
        let _ = fs_err::remove_dir_all(&copy);
        fs_err::create_dir(&copy).unwrap();
        fs_err::copy(self.state().join("sequences.redb"), copy.join("sequences.redb")).unwrap();
        copy
    }
}

impl Server {
    fn send(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> Result<InferAnswer, Failure> {
        let pending = self.repository.submit(request(id, value, change))?;
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
    }

    fn sum(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> i32 {
        let answer = self.send(id, value, change).unwrap();
        i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
    }

    fn refusal(&self, id: u64, change: impl FnOnce(&mut SequenceStep)) -> Refusal {
        match self.send(id, 1, change).unwrap_err() {
            Failure::Refused(refused) => refused.refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Ids and steps of the sequences that wait for their next step.
    fn resumable(&self) -> Vec<(Id, u64)> {
        self.repository.resumable("sum").unwrap().into_iter().map(|kept| (kept.id, kept.step)).collect()
    }

    fn stop(mut self) {
        self.stopped = true;
        self.repository.stop();
    }
}

fn start(step: &mut SequenceStep) {
    step.start = true;
}

const OLDEST: &str = "oldest { max_candidate_sequences: 4 }";

#[test]
fn a_planned_restart_loses_no_step() {
    for (when, strategy) in [("drain", OLDEST), ("drain", "direct { }"), ("step", OLDEST), ("step", "direct { }")] {
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
    assert_eq!(why, "the files of version 1 have changed since");
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
    assert_eq!((stone.why, stone.step), (sequor_core::EndReason::Idle, 1));
    assert_eq!(second.resumable(), []);
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
    assert_eq!(made(&machine.serve()), 2 * epoch + 1, "two servers within one millisecond");
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
