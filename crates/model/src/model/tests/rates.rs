//! Models that share a resource: which runs exclude each other, and the order of turns. A hook of the stand-in backend observes the runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::{Condvar, Mutex};
use sequor_core::{DataType, Dialect, Refusal, Shape};
use tempfile::TempDir;

use crate::backend::mock::{MockBackend, RunHook};
use crate::config::model::settings::{InstanceRate, ResourceNeed};
use crate::config::server::rates::ResourceLimit;
use crate::error::Failure;
use crate::model::runtime::RateLimiter;
use crate::model::*;
use crate::telemetry::Metrics;

/// The models `a` and `b`, whose rows have one and two elements. Each needs one unit of R for a run, with its own priority.
struct RatedModels {
    repository: Repository,
    _folder: TempDir,
}

impl RatedModels {
    fn new(rates: Option<&[&str]>, priorities: [u32; 2], hook: RunHook) -> RatedModels {
        RatedModels::batching("max_batch_size: 1", rates, priorities, hook, Clock::default())
    }

    fn batching(
        batching: &str,
        rates: Option<&[&str]>,
        priorities: [u32; 2],
        hook: RunHook,
        clock: Clock,
    ) -> RatedModels {
        let folder = tempfile::tempdir().unwrap();
        let limits = |all: &[&str]| all.iter().map(|text| ResourceLimit::parse(text).unwrap()).collect();
        let options = RepositoryOptions { rates: rates.map(limits), clock, ..RepositoryOptions::default() };
        let backend = Arc::new(MockBackend::with_hook(hook));
        let repository = Repository::new(backend, options, Metrics::new(true)).unwrap();
        for ((name, dims), priority) in [("a", 1), ("b", 2)].into_iter().zip(priorities) {
            let model = folder.path().join(name);
            fs_err::create_dir_all(model.join("1")).unwrap();
            let rate =
                format!("rate_limiter {{ resources {{ name: 'R' global: true count: 1 }} priority: {priority} }}");
            let port = |name: &str| format!("{{ name: '{name}' data_type: TYPE_INT32 dims: {dims} }}");
            let config = format!(
                "backend: 'onnxruntime' {batching} input {} output {} instance_group {{ kind: KIND_CPU count: 1 {rate} }}",
                port("INPUT"),
                port("OUTPUT")
            );
            fs_err::write(model.join("config.pbtxt"), config).unwrap();
            fs_err::write(model.join("1/model.onnx"), format!("identity INT32 dims={dims}")).unwrap();
            repository.load(&model);
        }
        RatedModels { repository, _folder: folder }
    }

    fn send(&self, model: &str, elements: u64) -> Pending {
        let data = Bytes::from(vec![0; 4 * elements as usize]);
        let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, elements]), data };
        let request = InferRequest {
            model: model.to_owned(),
            version: String::new(),
            id: String::new(),
            sequence: SequenceStep::default(),
            priority: 0,
            timeout: None,
            inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
            outputs: Vec::new(),
            parameters: Vec::new(),
            dialect: Dialect::TRITON,
        };
        self.repository.submit(request).unwrap()
    }

    /// Number of instances that wait for R.
    fn waiting(&self) -> usize {
        self.repository.0.resources.rates.as_ref().map_or(0, RateLimiter::waiting)
    }

    /// Sends this many requests to each model and awaits all answers.
    fn run(&self, count: usize) {
        let pending: Vec<Pending> = (0..count).flat_map(|_| [self.send("a", 1), self.send("b", 2)]).collect();
        answered(pending);
    }
}

impl Drop for RatedModels {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

fn answered(pending: Vec<Pending>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    pending.into_iter().for_each(|pending| drop(runtime.block_on(pending).unwrap()));
}

#[test]
fn models_that_share_a_resource_never_run_at_once() {
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, highest) = (Arc::clone(&inside), Arc::clone(&most));
    let hook = move |_: &Shape| {
        highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        (0..20).for_each(|_| std::thread::yield_now());
        now.fetch_sub(1, Ordering::SeqCst);
    };
    RatedModels::new(Some(&[]), [1, 1], Arc::new(hook)).run(200);
    assert_eq!((most.load(Ordering::SeqCst), inside.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn without_a_rate_limit_and_with_enough_of_a_resource_models_run_at_once() {
    for rates in [None, Some(&["R:2"][..])] {
        // Each run waits for one of the other model.
        let met = Arc::new(std::sync::Barrier::new(2));
        RatedModels::new(rates, [1, 1], Arc::new(move |_: &Shape| _ = met.wait())).run(20);
    }
}

#[test]
fn a_batch_is_formed_once_its_instance_may_run() {
    let (runs, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new((Mutex::new(false), Condvar::new())));
    let (seen, closed) = (Arc::clone(&runs), Arc::clone(&gate));
    let hook = move |shape: &Shape| {
        seen.lock().push(shape.0.to_vec());
        let mut open = closed.0.lock();
        while !*open {
            closed.1.wait(&mut open);
        }
    };
    let batching = "max_batch_size: 4 dynamic_batching { default_queue_policy { \
        timeout_action: REJECT default_timeout_microseconds: 1000000 } }";
    let clock = Clock::manual();
    let pair = RatedModels::batching(batching, Some(&[]), [1, 1], Arc::new(hook), clock.clone());
    let first = pair.send("b", 2);
    while runs.lock().is_empty() {
        std::thread::yield_now();
    }
    // While `b` runs, `a` waits for the resource, and its request waits in the queue.
    let late = pair.send("a", 1);
    while pair.waiting() < 1 {
        std::thread::yield_now();
    }
    clock.advance(Duration::from_secs(2));
    pair.repository.tick();
    let refused = late.now_or_never().expect("refused while the instance waits").unwrap_err();
    let Failure::Refused(refused) = refused else { panic!("{refused:?}") };
    assert!(matches!(refused.refusal, Refusal::QueueTimeout { .. }), "{refused:?}");
    let together = vec![pair.send("a", 1), pair.send("a", 1)];
    *gate.0.lock() = true;
    gate.1.notify_all();
    answered(vec![first]);
    answered(together);
    assert_eq!(*runs.lock(), [vec![1, 2], vec![2, 1]], "those that came meanwhile are in one batch");
}

#[test]
fn a_model_of_priority_2_gets_half_the_turns() {
    let (order, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new((Mutex::new(false), Condvar::new())));
    let (runs, closed) = (Arc::clone(&order), Arc::clone(&gate));
    let hook = move |shape: &Shape| {
        let mut open = closed.0.lock();
        while !*open {
            closed.1.wait(&mut open);
        }
        runs.lock().push(shape.0[1]);
    };
    let pair = RatedModels::new(Some(&[]), [1, 2], Arc::new(hook));
    let pending: Vec<Pending> = (0..40).flat_map(|_| [pair.send("a", 1), pair.send("b", 2)]).collect();
    // One run waits at the gate, and the other model's instance waits for R. From here on each asks for its next turn when it releases R.
    while pair.waiting() < 1 {
        std::thread::yield_now();
    }
    *gate.0.lock() = true;
    gate.1.notify_all();
    answered(pending);
    let of_a = order.lock().iter().take(45).filter(|elements| **elements == 1).count();
    assert!((28..=32).contains(&of_a), "{of_a} of 45: {:?}", order.lock());
}

#[test]
fn a_model_that_needs_more_than_there_is_does_not_load() {
    let pair = RatedModels::new(Some(&["R:0"]), [1, 1], Arc::new(|_: &Shape| {}));
    let statuses = pair.repository.statuses();
    let why: Vec<String> = statuses
        .iter()
        .filter_map(|status| match &status.availability {
            Availability::Failed(faults) => Some(faults.iter().map(ToString::to_string).collect()),
            Availability::Ready(_) => None,
        })
        .collect();
    let sentence = "Resource count for \"R\" is limited to 0 which will prevent scheduling of one or more model instances, \
                    the minimum required count is 1";
    assert!(why.len() == 2 && why.iter().all(|why| why.contains(sentence)), "{why:?}");
}

/// Without a limit there is as much of R as one instance needs at most, so a new load may increase it.
#[test]
fn a_load_that_adds_to_a_resource_wakes_the_instances_that_wait_for_it() {
    let limiter = RateLimiter::new(Vec::new());
    let load = |count: u32| {
        let need = ResourceNeed { name: "R".to_owned(), device: None, count };
        limiter.add(&[Some(InstanceRate { resources: vec![need], priority: 1 })]).unwrap().unwrap()
    };
    let (one, other) = (load(1), load(1));
    let first = one.acquire(0, None).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| other.acquire(0, None).is_some());
        while limiter.waiting() == 0 {
            std::thread::yield_now();
        }
        let wide = load(2);
        assert!(second.join().unwrap(), "the first run is not over");
        drop(first);
        assert!(wide.acquire(0, None).is_some());
    });
}
