//! States that are sent to a tier. Answers wait for it, and it gets exactly the states of their steps. The tier is memory of the test.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use sequor_core::{EndReason, Id, Refusal};

use super::{load, request};
use crate::backend::mock::MockBackend;
use crate::device::stand_in::StandIns;
use crate::error::{Failure, StoreFault};
use crate::model::*;
use crate::state::tier::ClosedTask;
use crate::telemetry::Metrics;

const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: PLACE count: 1 } ]
    sequence_batching { max_sequence_idle_microseconds: 600000000 STRATEGY state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

const OLDEST: &str = "oldest { max_candidate_sequences: 1 }";

/// Keeps every batch until the test reports it sealed.
#[derive(Default)]
struct MemoryTier(Mutex<Vec<(BatchToSeal, Sealed)>>);

impl std::fmt::Debug for MemoryTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryTier")
    }
}

impl StateTier for MemoryTier {
    fn seal(&self, batch: BatchToSeal, sealed: Sealed) -> Option<ClosedTask> {
        self.0.lock().push((batch, sealed));
        None
    }

    fn wake(&self) {}
}

impl MemoryTier {
    /// Waits for the next batch.
    fn next(&self) -> (BatchToSeal, Sealed) {
        loop {
            let first = self.0.lock().pop();
            match first {
                Some(batch) => return batch,
                None => std::thread::yield_now(),
            }
        }
    }
}

struct Rig {
    tier: Arc<MemoryTier>,
    repository: Repository,
    _folder: tempfile::TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

impl Rig {
    fn new(strategy: &str, place: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("sum");
        fs_err::create_dir_all(model.join("1")).unwrap();
        let config = CONFIG.replace("STRATEGY", strategy).replace("PLACE", place);
        fs_err::write(model.join("config.pbtxt"), config).unwrap();
        fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
        let tier = Arc::<MemoryTier>::default();
        let options = RepositoryOptions {
            reply_pool: 1 << 20,
            accelerators: Arc::new(StandIns::new(1, 64 << 20)),
            tier: Some(tier.clone()),
            ..RepositoryOptions::default()
        };
        let backend = Arc::new(MockBackend::new().with_stand_ins());
        let repository = Repository::new(backend, options, Metrics::new(true)).unwrap();
        load(&repository, &model);
        Rig { tier, repository, _folder: folder }
    }

    fn submit(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> Pending {
        self.repository.submit(request(id, value, change)).unwrap()
    }
}

fn answer(pending: Pending) -> Result<i32, Failure> {
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)?;
    Ok(i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap()))
}

/// The sum, which is the only number in the state's file.
fn sum(batch: &BatchToSeal, state: &StateToSeal) -> i32 {
    let file = state.copy.as_ref().unwrap().file(&batch.specs, &BTreeMap::new()).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    i32::from_le_bytes(tensors.tensor("INPUT_STATE").unwrap().data().try_into().unwrap())
}

#[test]
fn an_answer_leaves_once_its_state_is_durable() {
    for strategy in [OLDEST, "direct { }"] {
        for place in ["KIND_CPU", "KIND_GPU"] {
            let rig = Rig::new(strategy, place);
            let mut first = rig.submit(7, 40, |s| s.start = true);
            let (batch, sealed) = rig.tier.next();
            let [state] = &batch.states[..] else { panic!("{batch:?}") };
            let is = (batch.model.as_str(), batch.version, state.step, state.end, sum(&batch, state));
            assert_eq!((is, &state.id), (("sum", 1, 1, false, 40), &Id::from(7)), "{strategy} {place}");
            assert!((&mut first).now_or_never().is_none(), "it is not durable yet");
            sealed(vec![]);
            assert_eq!(answer(first).unwrap(), 40);
            let last = rig.submit(7, 2, |s| s.end = true);
            let (batch, sealed) = rig.tier.next();
            let state = &batch.states[0];
            assert_eq!((state.step, state.end, sum(&batch, state)), (2, true, 42));
            sealed(vec![]);
            assert_eq!(answer(last).unwrap(), 42);
        }
    }
}

/// Copies count against `limits.state` as long as the tier holds them. They are never refused.
#[test]
fn copies_of_states_count_until_the_tier_drops_them() {
    for place in ["KIND_CPU", "KIND_GPU"] {
        let rig = Rig::new(OLDEST, place);
        let used = || rig.repository.state_bytes().0;
        let first = rig.submit(7, 40, |s| s.start = true);
        let (batch, sealed) = rig.tier.next();
        let copied = batch.states[0].copy.as_ref().unwrap().len() as u64;
        assert_eq!((copied, used()), (4, 8), "{place}: the state and its copy");
        drop(batch);
        assert_eq!(used(), 4);
        sealed(vec![]);
        answer(first).unwrap();
        assert_eq!(used(), 4);
    }
}

/// Another sequence gets the only slot before the tier has read the state.
#[test]
fn a_copied_state_is_not_changed_by_later_use_of_its_slot() {
    let rig = Rig::new(OLDEST, "KIND_CPU");
    let only = rig.submit(1, 5, |s| (s.start, s.end) = (true, true));
    let (ended, sealed) = rig.tier.next();
    sealed(vec![]);
    assert_eq!(answer(only).unwrap(), 5);
    let other = rig.submit(2, 9, |s| (s.start, s.end) = (true, true));
    let (batch, sealed) = rig.tier.next();
    assert_eq!((sum(&ended, &ended.states[0]), sum(&batch, &batch.states[0])), (5, 9));
    sealed(vec![]);
    assert_eq!(answer(other).unwrap(), 9);
}

fn unstored(place: usize) -> UnstoredState {
    let (why, fault, error) = (EndReason::Unsealed, StoreFault::Disk, "no room".to_owned());
    UnstoredState { place, why, fault, is_damaged: false, error }
}

/// A step whose own write failed says that its sequence ended; the step behind it, that there is none.
#[test]
fn a_step_behind_one_whose_write_failed_is_told_to_start() {
    let rig = Rig::new(OLDEST, "KIND_CPU");
    let first = rig.submit(7, 40, |s| s.start = true);
    rig.tier.next().1(vec![]);
    assert_eq!(answer(first).unwrap(), 40);
    let second = rig.submit(7, 1, |_| {});
    let (_, sealed) = rig.tier.next();
    let behind = rig.submit(7, 1, |_| {});
    sealed(vec![unstored(0)]);
    let failure = answer(second).unwrap_err();
    assert!(matches!(failure, Failure::NotStored { start: false, .. }), "{failure:?}");
    let Failure::Refused(refused) = answer(behind).unwrap_err() else { panic!("it has no write of its own") };
    assert_eq!(refused.refusal, Refusal::Ended(EndReason::Unsealed));
}

#[test]
fn a_sequence_whose_state_cannot_be_made_durable_ends() {
    let rig = Rig::new(OLDEST, "KIND_CPU");
    let first = rig.submit(7, 40, |s| s.start = true);
    rig.tier.next().1(vec![unstored(0)]);
    let refused = |failure| match failure {
        Failure::Refused(refused) => refused.refusal,
        other => panic!("{other:?}"),
    };
    let Failure::NotStored { start: true, why, .. } = answer(first).unwrap_err() else {
        panic!("its own write failed")
    };
    assert_eq!(why, "no room");
    let next = rig.submit(7, 1, |_| {});
    let Refusal::Unknown(Some(stone)) = refused(answer(next).unwrap_err()) else { panic!("it is remembered") };
    assert_eq!(stone.why, EndReason::Unsealed);
}

#[test]
fn a_state_that_cannot_be_made_durable_drops_its_own_sequence_alone() {
    let rig = Rig::new("direct { minimum_slot_utilization: 1.0 max_queue_delay_microseconds: 60000000 }", "KIND_CPU");
    let pending: Vec<Pending> = (1..=4).map(|id| rig.submit(id, 10, |s| s.start = true)).collect();
    let (batch, sealed) = rig.tier.next();
    let of = |id: u64| batch.states.iter().position(|state| state.id == Id::from(id)).unwrap();
    assert_eq!(batch.states.len(), 4, "one batch");
    sealed(vec![unstored(of(3))]);
    let ended: Vec<Result<i32, Failure>> = pending.into_iter().map(answer).collect();
    assert_eq!(ended.iter().filter(|ended| matches!(ended, Ok(10))).count(), 3);
    assert!(matches!(&ended[2], Err(Failure::NotStored { start: true, .. })), "{ended:?}");
}

/// The request omits its optional inputs, so it runs nothing, and its state is that of the step before.
#[test]
fn a_request_that_is_cancelled_while_its_state_is_made_durable_stops_no_other() {
    let rig = Rig::new("oldest { max_candidate_sequences: 2 }", "KIND_CPU");
    let first = rig.submit(7, 40, |s| s.start = true);
    let (_, sealed) = rig.tier.next();
    drop(first);
    sealed(vec![]);
    let other = rig.submit(8, 3, |s| (s.start, s.end) = (true, true));
    rig.tier.next().1(vec![]);
    assert_eq!(answer(other).unwrap(), 3);
}
