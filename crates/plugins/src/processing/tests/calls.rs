//! Guests that call models: their time, cancelled requests, and the answers that they hold.

use std::future::{Future as _, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{DataType, Shape};
use sequor_wasm::grants::Grants;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::ServiceLog;

use crate::config::model::LoadFacts;
use crate::processing::outgoing::{
    CallOrigin, CallOutcome, CallRights, CallingRequest, InferFailure, InferFuture, ModelCaller, code,
};
use crate::processing::wat_fixture::{
    ALIKE, FIRST_RUN, PASS, SERVING, StillClock, component_with_wasi_nn, model, step, tensor,
};
use crate::processing::wat_guest::WatGuest;
use crate::processing::{
    CallFacts, Chain, OnFailure, PreparedRequest, ProcessorComponent, ProcessorOptions, ProcessorRefusal,
    ProcessorSource, RefusedBy, SequenceScratch,
};
use crate::telemetry::Metrics;
use crate::telemetry::kinds::Gauge;
use crate::tensor::{NamedTensor, Tensor};

/// `$call`: calls the model "echo" without inputs. The answer is at 480: 0 and a list, or 1 and a failure, from 488.
const CALL: &str = r#"
    (import "sequor:plugin/models@0.1.0" "infer" (func $infer (param i32 i32 i32 i32 i32)))
    (import "sequor:plugin/tensors@0.1.0" "[method]tensor.part" (func $part (param i32 i64 i64 i32 i32) (result i32)))
    (import "sequor:plugin/tensors@0.1.0" "[resource-drop]tensor" (func $drop (param i32)))
    (func $call
        (global.set $heap (i32.const 65536))
        (call $infer (i32.const 710) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 480)))
    ;; The tensor of the last answer.
    (func $answer (result i32) (i32.load offset=12 (i32.load (i32.const 488))))
    (data (i32.const 710) "echo")"#;

const WITHOUT_END: &str = "(loop $ever (call $call) (br $ever)) (i32.const 0)";

/// The only model. It answers immediately.
#[derive(Debug)]
struct EchoModel {
    answer: CallOutcome,
    calls: AtomicU32,
}

impl ModelCaller for EchoModel {
    fn call(&self, _: &CallingRequest, _: &str, _: Vec<NamedTensor>) -> InferFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(self.answer.clone()))
    }
}

impl CallOrigin for EchoModel {
    fn poll_deadline(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// A processor that may call models, and its model.
struct CallingRig {
    chain: Chain,
    echo: Arc<EchoModel>,
}

fn absent() -> CallOutcome {
    Err(InferFailure::new(code::ABSENT, "it is not there"))
}

/// An answer that is passed by handle.
fn large() -> CallOutcome {
    let tensor =
        Tensor { dtype: DataType::Uint8, shape: Shape::new(&[40 << 20]), data: Bytes::from(vec![0; 40 << 20]) };
    Ok(vec![NamedTensor { name: "y".to_owned(), tensor }])
}

fn guest(pre: &str) -> Vec<u8> {
    WatGuest { extra: CALL, configure: ALIKE, pre, post: FIRST_RUN, manifest: "" }.component()
}

impl CallingRig {
    /// `granted` is the model that the processor may call. `None` means that there is no server.
    fn try_new(
        component: &[u8],
        granted: Option<&str>,
        time: Duration,
        answer: CallOutcome,
    ) -> Result<CallingRig, (usize, String)> {
        let grants = Grants { models: true, ..Grants::default() };
        let component = ProcessorComponent::new(&SERVING, "guest.wasm", component, grants, None).unwrap();
        let echo = Arc::new(EchoModel { answer, calls: AtomicU32::new(0) });
        let rights = |model: &str| CallRights {
            models: [model.to_owned()].into(),
            caller: Arc::clone(&echo) as Arc<dyn ModelCaller>,
            waiting: Gauge::default(),
        };
        let source = ProcessorSource {
            name: "guest".to_owned(),
            component: Arc::new(component),
            options: ProcessorOptions {
                config: "{}".to_owned(),
                limits: Limits { time, memory: None },
                on_failure: OnFailure::Fail,
                files: Vec::new(),
                strikes: 1000,
                calls: granted.map(rights),
                is_model: false,
                instances: None,
            },
            services: Arc::new(ServiceLog::default()),
            metrics: Metrics::new(false).processor("guest"),
            journal: Arc::new(Journal::new("guest")),
            clock: Arc::new(StillClock),
            purpose: RoomPurpose::New,
        };
        let chain = Chain::new(vec![source], &LoadFacts::default(), model(), 2);
        let chain = chain.map_err(|(n, misfit)| (n, misfit.into()))?;
        Ok(CallingRig { chain, echo })
    }

    fn new(pre: &str, time: Duration, answer: CallOutcome) -> CallingRig {
        CallingRig::try_new(&guest(pre), Some("echo"), time, answer).unwrap()
    }

    fn facts(&self) -> CallFacts {
        let path = ["caller".to_owned()].into();
        let origin = Arc::clone(&self.echo) as Arc<dyn CallOrigin>;
        CallFacts { calling: Some(CallingRequest { path, origin }), ..step() }
    }

    fn pre(&self) -> Result<PreparedRequest, ProcessorRefusal> {
        let (facts, scratch) = (self.facts(), SequenceScratch::default());
        let pre = self.chain.pre_async(&facts, &scratch, vec![Some(tensor(b"abc"))]);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pre)
    }

    fn failure(&self) -> String {
        match self.pre().unwrap_err().why {
            RefusedBy::Failure { what } => what,
            why => panic!("{why:?}"),
        }
    }

    fn calls(&self) -> u32 {
        self.echo.calls.load(Ordering::Relaxed)
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_request_is_cancelled_while_its_guest_calls_without_end() {
    let caller = CallingRig::new(WITHOUT_END, MINUTE, absent());
    let (facts, scratch) = (caller.facts(), SequenceScratch::default());
    let mut pre = Box::pin(caller.chain.pre_async(&facts, &scratch, vec![Some(tensor(b"abc"))]));
    let polled = pre.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it gives up its thread");
    drop(pre);
    assert_eq!(caller.calls(), 63);
}

#[test]
fn calls_that_fail_give_no_cpu_time() {
    for granted in ["echo", "other"] {
        let caller = CallingRig::try_new(&guest(WITHOUT_END), Some(granted), SHORT, absent()).unwrap();
        let what = caller.failure();
        assert!(what.starts_with("time limit 20") && what.contains(" in pre"), "{what}");
    }
}

#[test]
fn the_calls_to_models_of_one_call_are_bounded() {
    let caller = CallingRig::new(WITHOUT_END, MINUTE, Ok(Vec::new()));
    assert_eq!(caller.failure(), "more than 65536 calls to models in one call (in call), in pre");
    assert_eq!(caller.calls(), 65_536);
}

#[test]
fn the_answers_that_a_guest_holds_are_bounded() {
    let too_much = "it holds more than 256 MiB of outputs in one call";
    let caller = CallingRig::new(WITHOUT_END, MINUTE, large());
    assert!(caller.failure().starts_with(too_much) && caller.calls() == 7);
    // A part of a tensor keeps the whole in memory.
    let parts = "(local $t i32)
        (i64.store (i32.const 560) (i64.const 1))
        (loop $ever
            (call $call)
            (local.set $t (call $answer))
            (drop (call $part (local.get $t) (i64.const 0) (i64.const 1) (i32.const 560) (i32.const 1)))
            (call $drop (local.get $t))
            (br $ever))
        (i32.const 0)";
    let caller = CallingRig::new(parts, MINUTE, large());
    assert!(caller.failure().starts_with(too_much) && caller.calls() == 7);
    // A guest that drops each answer may continue.
    let drops = format!(
        "(local $i i32)
        (loop $more
            (call $call)
            (call $drop (call $answer))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $i) (i32.const 100))))
        {PASS}"
    );
    let caller = CallingRig::new(&drops, MINUTE, large());
    assert!(caller.pre().is_ok());
    assert_eq!(caller.calls(), 100);
}

#[test]
fn a_model_call_without_a_server_returns_an_error_to_the_guest() {
    let reads = format!(
        "(call $call)
        (if (i32.ne (i32.load8_u (i32.const 480)) (i32.const 1)) (then unreachable))
        (if (i32.ne (i32.load (i32.const 488)) (i32.const 4)) (then unreachable))
        {PASS}"
    );
    let caller = CallingRig::try_new(&guest(&reads), None, MINUTE, absent()).unwrap();
    assert!(caller.pre().is_ok());
    let configure = format!("(call $call) {ALIKE}");
    let calls = WatGuest { extra: CALL, configure: &configure, pre: PASS, post: FIRST_RUN, manifest: "" }.component();
    let refused = CallingRig::try_new(&calls, None, MINUTE, absent()).err().unwrap();
    assert_eq!(refused, (0, "configure must not call models (in call), in configure".to_owned()));
}

#[test]
fn a_guest_that_waits_for_a_request_keeps_nothing_of_the_last_one() {
    let caller = CallingRig::new(&format!("(call $call) {PASS}"), MINUTE, absent());
    let before = Arc::strong_count(&caller.echo);
    for _ in 0..2 {
        assert!(caller.pre().is_ok());
        assert_eq!(Arc::strong_count(&caller.echo), before);
    }
}

// === wasi-nn ===

/// `$new(rank, len)`: a tensor with this many dimensions of size 1, and this many bytes. `$text(len)`: the length of the error for a name
/// of this many bytes.
const NN: &str = r#"
    (import "wasi:nn/tensor@0.2.0-rc-2024-10-28" "[constructor]tensor" (func $tensor (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi:nn/graph@0.2.0-rc-2024-10-28" "load-by-name" (func $by_name (param i32 i32 i32)))
    (import "wasi:nn/errors@0.2.0-rc-2024-10-28" "[method]error.data" (func $data (param i32 i32)))
    (func $new (param $rank i32) (param $len i32) (result i32)
        (call $tensor (i32.const 8192) (local.get $rank) (i32.const 4) (i32.const 65536) (local.get $len)))
    (func $text (param $len i32) (result i32)
        (call $by_name (i32.const 65536) (local.get $len) (i32.const 480))
        (global.set $heap (i32.const 262144))
        (call $data (i32.load (i32.const 484)) (i32.const 500))
        (i32.load (i32.const 504)))"#;

fn nn(pre: &str) -> CallingRig {
    let guest = WatGuest { extra: NN, configure: ALIKE, pre, post: FIRST_RUN, manifest: "" };
    CallingRig::try_new(&component_with_wasi_nn(&guest), Some("echo"), MINUTE, absent()).unwrap()
}

#[test]
fn the_tensors_of_wasi_nn_keep_to_the_same_limits() {
    let ranks = |rank: u32| nn(&format!("(drop (call $new (i32.const {rank}) (i32.const 1))) {PASS}"));
    assert!(ranks(64).pre().is_ok());
    assert_eq!(ranks(65).failure(), "a tensor of 65 dimensions; the maximum is 64 (in new), in pre");
    let many = |count: u32| {
        nn(&format!(
            "(local $i i32)
            (loop $more
                (drop (call $new (i32.const 1) (i32.const 1048576)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $i) (i32.const {count}))))
            {PASS}"
        ))
    };
    assert!(many(64).pre().is_ok());
    assert_eq!(many(65).failure(), "more than 64 MiB of buffers in one call (in new), in pre");
}

#[test]
fn the_texts_of_wasi_nn_errors_are_cut() {
    let cut = nn(&format!("(if (i32.ne (call $text (i32.const 1000000)) (i32.const 4096)) (then unreachable)) {PASS}"));
    assert!(cut.pre().is_ok(), "{:?}", cut.pre());
}
