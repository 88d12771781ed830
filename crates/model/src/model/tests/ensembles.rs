//! Ensembles: slots, order, failures and ends over all members.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sequor_core::{DataType, Dialect, EndReason, Id, Refusal, Shape};
use tempfile::TempDir;

use crate::backend::mock::{MockBackend, RunHook};
use crate::error::Failure;
use crate::model::*;
use crate::telemetry::{Metrics, Statistics};

/// The configuration of an ensemble of these steps. Each member's INPUT is the tensor before it.
pub(super) fn ensemble(name: &str, members: &[&str], more: &str) -> String {
    let tensor = |n: usize| match n {
        0 => "IN".to_owned(),
        n if n == members.len() => "OUT".to_owned(),
        n => format!("t{n}"),
    };
    let step = |(n, member): (usize, &&str)| {
        format!(
            "{{ model_name: '{member}' model_version: -1 input_map {{ key: 'INPUT' value: '{}' }} \
             output_map {{ key: 'OUTPUT' value: '{}' }} }}",
            tensor(n),
            tensor(n + 1)
        )
    };
    let steps: Vec<String> = members.iter().enumerate().map(step).collect();
    format!(
        "name: '{name}' platform: 'ensemble' max_batch_size: 4 \
         input {{ name: 'IN' data_type: TYPE_INT32 dims: 1 }} output {{ name: 'OUT' data_type: TYPE_INT32 dims: 1 }} \
         ensemble_scheduling {{ step [ {} ] {more} }}",
        steps.join(", ")
    )
}

pub(super) fn accumulator(slots: u32, idle: &str) -> String {
    format!(
        "backend: 'onnxruntime' max_batch_size: 4 input {{ name: 'INPUT' data_type: TYPE_INT32 dims: 1 }} \
         output {{ name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 }} instance_group {{ kind: KIND_CPU count: 1 }} \
         sequence_batching {{ {idle} oldest {{ max_candidate_sequences: {slots} }} \
         state {{ input_name: 'INPUT_STATE' output_name: 'OUTPUT_STATE' data_type: TYPE_INT32 dims: 1 }} }}"
    )
}

pub(super) const LONG: &str = "max_sequence_idle_microseconds: 600000000";

/// A repository of models, loaded in the given order.
pub(super) struct EnsembleRig {
    pub(super) repository: Repository,
    pub(super) folder: TempDir,
    pub(super) metrics: Metrics,
    clock: Clock,
}

impl Drop for EnsembleRig {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

impl EnsembleRig {
    pub(super) fn new(models: &[(&str, &str, String)]) -> EnsembleRig {
        EnsembleRig::with(models, Clock::default(), None)
    }

    /// Each model is its name, its graph (empty for an ensemble), and its configuration.
    pub(super) fn with(models: &[(&str, &str, String)], clock: Clock, hook: Option<RunHook>) -> EnsembleRig {
        let folder = tempfile::tempdir().unwrap();
        let options = RepositoryOptions { clock: clock.clone(), reply_pool: 1 << 20, ..RepositoryOptions::default() };
        let backend = hook.map_or_else(MockBackend::new, MockBackend::with_hook);
        let metrics = Metrics::new(true);
        let repository = Repository::new(Arc::new(backend), options, metrics.clone()).unwrap();
        let rig = EnsembleRig { repository, folder, metrics, clock };
        for (name, graph, config) in models {
            rig.put(name, graph, config);
        }
        rig.repository.load_all(rig.folder.path()).unwrap();
        rig
    }

    /// A rig without models yet.
    pub(super) fn empty(options: RepositoryOptions) -> EnsembleRig {
        let (clock, metrics) = (options.clock.clone(), Metrics::new(true));
        let repository = Repository::new(Arc::new(MockBackend::new()), options, metrics.clone()).unwrap();
        EnsembleRig { repository, folder: tempfile::tempdir().unwrap(), metrics, clock }
    }

    pub(super) fn put(&self, name: &str, graph: &str, config: &str) {
        let model = self.folder.path().join(name);
        fs_err::create_dir_all(model.join("1")).unwrap();
        fs_err::write(model.join("config.pbtxt"), config).unwrap();
        if !graph.is_empty() {
            fs_err::write(model.join("1/model.onnx"), graph).unwrap();
        }
    }

    /// The usual rig: two accumulators, and ensembles over them in both orders.
    pub(super) fn both_ways(slots: u32) -> EnsembleRig {
        EnsembleRig::new(&both_ways(slots, LONG))
    }

    pub(super) fn faults(&self, model: &str) -> Vec<String> {
        let status = self.repository.statuses().into_iter().find(|status| status.name == model).unwrap();
        match status.availability {
            Availability::Failed(faults) => faults.iter().map(ToString::to_string).collect(),
            Availability::Ready(_) => Vec::new(),
        }
    }

    pub(super) fn send(&self, request: InferRequest) -> Result<InferAnswer, Failure> {
        let pending = self.repository.submit(request)?;
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
    }

    pub(super) fn value(
        &self,
        model: &str,
        id: u64,
        value: i32,
        change: impl FnOnce(&mut SequenceStep),
    ) -> Result<i32, Failure> {
        let answer = self.send(request(model, id, value, change))?;
        assert_eq!(answer.model, model);
        Ok(i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap()))
    }

    pub(super) fn live(&self, model: &str) -> usize {
        self.repository.live_sequences(model).unwrap().len()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.repository.tick();
    }
}

pub(super) fn both_ways(slots: u32, idle: &str) -> [(&'static str, &'static str, String); 4] {
    [
        ("ab", "", ensemble("ab", &["a", "b"], "")),
        ("ba", "", ensemble("ba", &["b", "a"], "")),
        ("a", "accumulate INT32 poison=13", accumulator(slots, idle)),
        ("b", "accumulate INT32 poison=77", accumulator(slots, idle)),
    ]
}

pub(super) fn request(model: &str, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> InferRequest {
    let mut sequence = SequenceStep { id: Id::from(id), ..SequenceStep::default() };
    change(&mut sequence);
    let data = Bytes::copy_from_slice(&value.to_le_bytes());
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data };
    InferRequest {
        model: model.to_owned(),
        version: String::new(),
        id: String::new(),
        sequence,
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "IN".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// The expected answers of two accumulators in series.
#[derive(Default)]
struct Twice(i32, i32);

impl Twice {
    fn step(&mut self, value: i32) -> i32 {
        self.0 += value;
        self.1 += self.0;
        self.1
    }
}

/// The member that a request failed in, whether its sequence ended, and whether it may be retried.
pub(super) fn member(answer: Result<i32, Failure>) -> (String, bool, bool) {
    match answer {
        Err(Failure::Member { member, ended, may_retry, .. }) => (member, ended, may_retry),
        other => panic!("{other:?}"),
    }
}

/// How a sequence of this id ended, according to the next step's refusal.
fn ended(rig: &EnsembleRig, model: &str, id: u64) -> (EndReason, Option<String>) {
    match rig.value(model, id, 1, |_| {}) {
        Err(Failure::Refused(refused)) => match refused.refusal {
            Refusal::Unknown(Some(stone)) => (stone.why, refused.member),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The member that ended the last sequence of this id.
fn ender(rig: &EnsembleRig, model: &str, id: u64) -> Option<String> {
    rig.repository.find_ended(model, &Id::Int(id)).unwrap().unwrap().member
}

#[test]
fn a_sequence_goes_through_all_members_in_order_and_ends_in_all() {
    let rig = EnsembleRig::both_ways(64);
    let all_live = Barrier::new(64);
    std::thread::scope(|scope| {
        for id in 1..=64u64 {
            let (rig, all_live) = (&rig, &all_live);
            scope.spawn(move || {
                let model = if id % 2 == 0 { "ab" } else { "ba" };
                let mut expected = Twice::default();
                for step in 0..20 {
                    if step == 1 {
                        all_live.wait();
                    }
                    let value = i32::try_from(id).unwrap() * 100 + step;
                    let answer = rig.value(model, id, value, |s| (s.start, s.end) = (step == 0, step == 19));
                    assert_eq!(answer.unwrap(), expected.step(value), "step {step} of {model} {id}");
                }
            });
        }
    });
    assert_eq!(["ab", "ba", "a", "b"].map(|model| rig.live(model)), [0; 4]);
    let counted = |model: &str| rig.repository.statistics(model, "").unwrap()[0].counted.clone();
    assert_eq!((counted("a").inference_count, counted("b").inference_count), (64 * 20, 64 * 20));
    assert_eq!((counted("ab").success.count, counted("ba").success.count), (32 * 20, 32 * 20));
    // As in Triton, each request of an ensemble counts as one run. Its time is that of its members' runs together.
    let of_ensembles = ["ab", "ba"].map(counted);
    for of in &of_ensembles {
        assert_eq!((of.inference_count, of.execution_count, of.compute_infer.count), (32 * 20, 32 * 20, 32 * 20));
        assert_eq!(of.batches.get(&1).map(|cost| cost.count), Some(32 * 20));
        assert!(of.last_inference > 0, "it has run");
    }
    for time in
        [|of: &Statistics| of.compute_input, |of: &Statistics| of.compute_infer, |of: &Statistics| of.compute_output]
    {
        let nanos = |of: &Statistics| time(of).nanos;
        let (ensembles, members) = (of_ensembles.iter().map(nanos).sum::<u64>(), ["a", "b"].map(counted));
        assert_eq!(ensembles, members.iter().map(nanos).sum::<u64>());
    }
}

/// With the variable `SEQUOR_DEADLOCK_SECONDS`, the test sends requests for this many seconds.
#[test]
fn ensembles_that_need_the_same_slots_in_opposite_orders_never_wait_for_each_other() {
    let seconds = std::env::var("SEQUOR_DEADLOCK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let (rig, began) = (EnsembleRig::both_ways(1), Instant::now());
    let goes_on = |round: u64| match seconds {
        Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
        None => round < 10,
    };
    std::thread::scope(|scope| {
        for client in 0..64u64 {
            let (rig, goes_on) = (&rig, &goes_on);
            scope.spawn(move || {
                for round in (0..).take_while(|round| goes_on(*round)) {
                    let id = (client << 32) + round + 1;
                    let model = if (client + round) % 2 == 0 { "ab" } else { "ba" };
                    let mut expected = Twice::default();
                    for step in 0..3 {
                        let answer = rig.value(model, id, 2, |s| (s.start, s.end) = (step == 0, step == 2));
                        assert_eq!(answer.unwrap(), expected.step(2));
                    }
                }
            });
        }
    });
    assert_eq!(["ab", "ba", "a", "b"].map(|model| rig.live(model)), [0; 4]);
}

#[test]
fn a_step_that_fails_in_a_member_ends_only_its_sequence_in_all_members() {
    let rig = EnsembleRig::both_ways(8);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    assert_eq!(rig.value("ab", 2, 5, |s| s.start = true).unwrap(), 5);
    // The first member outputs 77, and the second one fails on that.
    assert_eq!(member(rig.value("ab", 1, 72, |_| {})), ("b".to_owned(), true, false));
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [1; 3], "it is over everywhere");
    assert_eq!(ended(&rig, "ab", 1), (EndReason::Member, Some("b".to_owned())));
    assert_eq!(ender(&rig, "ab", 1).as_deref(), Some("b"));
    assert_eq!(rig.value("ab", 2, 1, |_| {}).unwrap(), 11);
    // The first member of the other ensemble fails.
    assert_eq!(member(rig.value("ba", 3, 77, |s| s.start = true)), ("b".to_owned(), true, true));
    assert_eq!(["ba", "a", "b"].map(|model| rig.live(model)), [0, 1, 1]);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5, "the id is free");
}

#[test]
fn a_request_that_no_member_has_run_leaves_the_sequence_as_it_was() {
    let rig = EnsembleRig::both_ways(8);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    let mut wrong = request("ab", 1, 5, |_| {});
    wrong.inputs[0].tensor.dtype = DataType::Fp32;
    assert!(matches!(rig.send(wrong), Err(Failure::Invalid { .. })));
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11);
}

#[test]
fn a_start_on_a_live_id_begins_anew_in_all_members() {
    let rig = EnsembleRig::both_ways(8);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    assert_eq!(rig.value("ab", 1, 5, |_| {}).unwrap(), 15);
    assert_eq!(rig.value("ab", 1, 7, |s| s.start = true).unwrap(), 7);
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 15);
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [1; 3]);
}

#[test]
fn a_sequence_expires_in_all_members_at_once_and_on_the_shortest_time_of_theirs() {
    let mut models = both_ways(4, "max_sequence_idle_microseconds: 5000000");
    models[3].2 = accumulator(4, "max_sequence_idle_microseconds: 2000000");
    let rig = EnsembleRig::with(&models, Clock::manual(), None);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    rig.advance(Duration::from_millis(1999));
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [1; 3]);
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "the clock begins anew");
    rig.advance(Duration::from_millis(2001));
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [0; 3]);
    assert_eq!(ended(&rig, "ab", 1).0, EndReason::Idle);
}

#[test]
fn a_sequence_that_one_member_loses_is_over_in_all() {
    let rig = EnsembleRig::both_ways(4);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    assert!(rig.repository.drop_sequence("b", &Id::Int(1)).unwrap());
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [0; 3]);
    assert_eq!(ended(&rig, "ab", 1).0, EndReason::Admin);
    assert_eq!(ender(&rig, "ab", 1).as_deref(), Some("b"));
    assert_eq!(ender(&rig, "a", 1), None, "only the ensemble's own end names a member");
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    assert!(rig.repository.drop_sequence("ab", &Id::Int(1)).unwrap());
    assert_eq!(ender(&rig, "ab", 1), None, "a later sequence of this id was not ended by a member");
    let members = |model: &str| rig.repository.sequence_members(model).unwrap();
    assert_eq!((members("ab"), members("a")), (vec!["a".to_owned(), "b".to_owned()], Vec::new()));
}

#[test]
fn a_cancelled_start_releases_its_slots_for_a_waiting_start() {
    let rig = EnsembleRig::both_ways(1);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    let waiting = rig.repository.submit(request("ba", 2, 5, |s| s.start = true)).unwrap();
    let next = rig.repository.submit(request("ab", 3, 6, |s| s.start = true)).unwrap();
    drop(waiting);
    assert_eq!(rig.live("ba"), 0);
    assert_eq!(rig.value("ab", 1, 5, |s| s.end = true).unwrap(), 15);
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(next).unwrap();
    assert_eq!(answer.outputs[0].tensor.data[..], 6i32.to_le_bytes());
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [1; 3]);
}

#[test]
fn a_full_member_refuses_the_start_and_no_slot_stays_taken() {
    let rig = EnsembleRig::both_ways(1);
    fs_err::write(rig.folder.path().join("b/sequor.toml"), "[backlog]\nmax = 0\n").unwrap();
    rig.repository.load(&rig.folder.path().join("b"));
    // A client of the member itself has the member's only slot.
    let mut alone = request("b", 9, 5, |s| s.start = true);
    alone.inputs[0].name = "INPUT".to_owned();
    rig.send(alone).unwrap();
    assert_eq!(member(rig.value("ab", 1, 5, |s| s.start = true)), ("b".to_owned(), true, true));
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [0, 0, 1]);
}

#[test]
fn a_member_is_unloaded_only_after_its_ensembles() {
    let models = both_ways(4, LONG);
    let running = Arc::new(AtomicU64::new(0));
    let (release, gate) = std::sync::mpsc::sync_channel::<()>(2);
    let gate = parking_lot::Mutex::new(gate);
    let count = Arc::clone(&running);
    let hook: RunHook = Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        gate.lock().recv().unwrap();
    });
    let rig = EnsembleRig::with(&models, Clock::default(), Some(hook));
    let pending = rig.repository.submit(request("ab", 1, 5, |s| (s.start, s.end) = (true, true))).unwrap();
    while running.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    rig.repository.drain(Duration::from_secs(600));
    (0..2).for_each(|_| release.send(()).unwrap());
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap();
    assert_eq!(answer.outputs[0].tensor.data[..], 5i32.to_le_bytes(), "the second member served the step");
}

#[test]
fn an_ensemble_without_sequences_answers_many_concurrent_requests() {
    let plain = "backend: 'onnxruntime' max_batch_size: 4 input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } \
                 output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 }";
    let rig = EnsembleRig::new(&[
        ("twice", "", ensemble("twice", &["p", "p"], "max_inflight_requests: 1")),
        ("p", "identity INT32", plain.to_owned()),
    ]);
    assert_eq!(rig.faults("twice"), [""; 0]);
    let all: Vec<Pending> =
        (0..100).map(|n| rig.repository.submit(request("twice", 0, n, |s| s.id = Id::None)).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (n, pending) in (0i32..).zip(all) {
        assert_eq!(runtime.block_on(pending).unwrap().outputs[0].tensor.data[..], n.to_le_bytes());
    }
}

#[test]
fn ensemble_faults_are_reported_with_their_step() {
    let mut models = both_ways(4, LONG).to_vec();
    models.push(("absent", "", ensemble("absent", &["a", "missing"], "")));
    models.push(("two", "", ensemble("two", &["a", "a"], "")));
    models.push((
        "nested",
        "",
        ensemble("nested", &["inner"], "").replace("'INPUT'", "'IN'").replace("'OUTPUT'", "'OUT'"),
    ));
    models.push(("inner", "", ensemble("inner", &["a"], "")));
    models.push((
        "port",
        "",
        ensemble("port", &["a"], "").replace("'INPUT'", "'NONE'").replace("'OUTPUT'", "'NOTHING'"),
    ));
    models.push(("misspelt", "", ensemble("misspelt", &["a"], "").replace("'INPUT'", "'INPTU'")));
    models.push(("typed", "", ensemble("typed", &["a"], "").replace("TYPE_INT32", "TYPE_FP32")));
    models.push(("shaped", "", ensemble("shaped", &["a"], "").replace("dims: 1", "dims: 2")));
    models.push(("large", "", ensemble("large", &["a"], "").replace("max_batch_size: 4", "max_batch_size: 8")));
    models.push((
        "round",
        "",
        ensemble("round", &["trip"], "").replace("'INPUT'", "'IN'").replace("'OUTPUT'", "'OUT'"),
    ));
    models.push(("trip", "", ensemble("trip", &["round"], "").replace("'INPUT'", "'IN'").replace("'OUTPUT'", "'OUT'")));
    let rig = EnsembleRig::new(&models);
    let message: Vec<String> = ["absent", "two", "nested", "port", "misspelt", "typed", "shaped", "large"]
        .into_iter()
        .flat_map(|model| rig.faults(model))
        .map(|fault| fault.replace(&rig.folder.path().display().to_string(), ""))
        .collect();
    insta::assert_snapshot!(message.join("\n"));
    let round = [rig.faults("round"), rig.faults("trip")].concat().join("\n");
    assert!(round.contains("circular dependency between ensembles: "), "{round}");
    assert_eq!([rig.faults("ab"), rig.faults("inner")], [vec![""; 0], vec![""; 0]]);
}

#[test]
fn an_ensemble_is_served_once_its_last_member_is() {
    let rig = EnsembleRig::new(&[
        ("ab", "", ensemble("ab", &["a", "b"], "")),
        ("a", "accumulate INT32", accumulator(4, LONG)),
    ]);
    assert!(
        rig.faults("ab")[0].ends_with("ensemble ab contains models that are not available: b"),
        "{:?}",
        rig.faults("ab")
    );
    rig.put("b", "accumulate INT32", &accumulator(4, LONG));
    rig.repository.load(&rig.folder.path().join("b"));
    assert_eq!(rig.faults("ab"), [""; 0]);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    let metadata = rig.repository.find("ab", "").unwrap().metadata();
    assert_eq!((metadata.platform.as_str(), metadata.inputs[0].dims.to_string().as_str()), ("ensemble", "[-1,1]"));
}
