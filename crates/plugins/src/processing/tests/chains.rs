//! What a chain does with a request, and the state after a failure.

use std::time::Duration;

use crate::processing::{OnFailure, Plan, PluginPlace as _, PortTensors, RefusedBy, SequenceScratch};

use crate::processing::wat_fixture::{
    COUNT, OPEN, ProcessorWat, chain, model, step, tensor, try_chain, try_chain_before,
};

fn inputs(bytes: &[u8]) -> PortTensors {
    vec![Some(tensor(bytes))]
}

fn runs(plan: Plan) -> Vec<PortTensors> {
    match plan {
        Plan::Run(runs) => runs,
        Plan::Reply(_) => panic!("it does not run"),
    }
}

fn failure(guests: &[ProcessorWat<'_>]) -> String {
    let refused = chain(guests).pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap_err();
    assert_eq!((refused.plugin.as_str(), refused.ends), ("guest", false));
    match refused.why {
        RefusedBy::Failure { what } => what,
        _ => panic!("{refused:?}"),
    }
}

#[test]
fn a_request_passes_through_two_processors() {
    let chain = chain(&[ProcessorWat::default(), ProcessorWat::default()]);
    assert_eq!((chain.signature(), chain.scratch_bytes(), chain.posts()), (model(), 16, true));
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    assert_eq!(runs(prepared.plan), [inputs(b"abc")]);
    let (answer, scratch) = chain.post(&step(), prepared.pending, vec![inputs(b"de")]).unwrap();
    assert_eq!((answer, scratch), (inputs(b"de"), SequenceScratch::default()));
}

#[test]
fn each_processor_has_its_own_scratch() {
    let count = ProcessorWat { post: COUNT, ..ProcessorWat::default() };
    let chain = chain(&[count, ProcessorWat::default(), count]);
    let mut scratch = SequenceScratch::default();
    for n in 1..4u8 {
        let prepared = chain.pre(&step(), &scratch, inputs(b"abc")).unwrap();
        let before = scratch.clone();
        (_, scratch) = chain.post(&step(), prepared.pending, vec![inputs(b"d")]).unwrap();
        let each: Vec<&[u8]> = scratch.each().iter().map(|bytes| &bytes[..]).collect();
        assert_eq!(each, [&[n][..], &[], &[n]]);
        assert_ne!(scratch, before);
    }
    assert_eq!(scratch.size(), 2);
    // Without a sequence, no scratch is kept.
    let facts = crate::processing::CallFacts { sequence: 0, ..step() };
    let prepared = chain.pre(&facts, &SequenceScratch::default(), inputs(b"abc")).unwrap();
    let (_, kept) = chain.post(&facts, prepared.pending, vec![inputs(b"d")]).unwrap();
    assert_eq!(kept, SequenceScratch::default());
}

#[test]
fn runs_multiply_along_the_chain_and_answers_are_joined() {
    let twice = "(call $run (local.get 11) (local.get 12) (i32.const 2))";
    let join = "wants = [\"pre\"]\n";
    let three = twice.replace("const 2", "const 3");
    let first = ProcessorWat { pre: twice, manifest: join, ..ProcessorWat::default() };
    let second = ProcessorWat { pre: &three, manifest: join, ..ProcessorWat::default() };
    let chain = chain(&[first, second]);
    assert!(!chain.posts());
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    assert_eq!(runs(prepared.plan).len(), 6);
    let outputs = (0..6u8).map(|n| inputs(&[n])).collect();
    let (answer, _) = chain.post(&step(), prepared.pending, outputs).unwrap();
    assert_eq!(answer, inputs(&[0, 1, 2, 3, 4, 5]));
}

#[test]
fn a_reply_needs_no_run_and_passes_the_processors_before() {
    let reply = "(call $reply (local.get 11) (local.get 12))";
    let chain = chain(&[
        ProcessorWat { post: COUNT, ..ProcessorWat::default() },
        ProcessorWat { pre: reply, ..ProcessorWat::default() },
    ]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    let Plan::Reply(answer) = prepared.plan else { panic!("it runs") };
    assert_eq!(answer, inputs(b"abc"));
    assert_eq!(prepared.pending.into_scratch().size(), 1, "the processor before has finished the reply");
}

#[test]
fn a_refusal_is_the_plug_in_s_own() {
    let refuse = "
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 5))
        (i32.store (i32.const 1036) (i32.const 1100))
        (i32.store (i32.const 1040) (i32.const 2))
        (i32.store8 (i32.const 1048) (i32.const 1))
        (i64.store (i32.const 1056) (i64.const 1500))
        (i32.store8 (i32.const 1064) (i32.const 1))
        (i32.store16 (i32.const 1100) (i32.const 0x6f6e))
        (i32.const 1024)";
    let chain = chain(&[ProcessorWat { pre: refuse, ..ProcessorWat::default() }]);
    let refused = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap_err();
    let retry = Some(std::time::Duration::from_micros(1500));
    assert_eq!(refused.why, RefusedBy::Plugin { code: 5, text: "no".to_owned(), retry });
    assert!(refused.ends);
}

#[test]
fn an_end_without_inputs_runs_nothing() {
    let chain = chain(&[ProcessorWat { manifest: "wants = [\"post\"]\n", ..ProcessorWat::default() }]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), PortTensors::new()).unwrap();
    assert_eq!(runs(prepared.plan), [PortTensors::new()]);
    let (answer, _) = chain.post(&step(), prepared.pending, vec![PortTensors::new()]).unwrap();
    assert_eq!(answer, PortTensors::new());
}

#[test]
fn an_invalid_processor_answer_fails_the_request() {
    let with = |pre: &str| failure(&[ProcessorWat { pre, ..ProcessorWat::default() }]);
    assert_eq!(with("unreachable"), "it gave up (unreachable), in pre");
    let ever = "(loop $ever (br $ever)) (i32.const 0)";
    let loops = failure(&[ProcessorWat { pre: ever, time: Duration::from_millis(20), ..ProcessorWat::default() }]);
    assert!(loops.starts_with("time limit ") && loops.contains(" in pre (1 KiB)"), "{loops}");
    let runs = |k: u32| with(&format!("(call $run (local.get 11) (local.get 12) (i32.const {k}))"));
    assert_eq!(runs(0), "pre answered 0 runs; a request has 1 to 4096");
    assert_eq!(with("(call $run (i32.const 0) (i32.const 0) (i32.const 1))"), "pre answered run 0 without \"x\"");
    let port = "(i32.store (local.get 11) (i32.const 9)) (call $run (local.get 11) (local.get 12) (i32.const 1))";
    assert_eq!(with(port), "pre answered run 0: answered for port 9 of 1");
    let dtype =
        "(i32.store offset=8 (local.get 11) (i32.const 3)) (call $run (local.get 11) (local.get 12) (i32.const 1))";
    assert_eq!(with(dtype), "pre answered run 0: \"x\" has the type UINT16; UINT8 is expected");
    let shape = "(i64.store (i32.load offset=12 (local.get 11)) (i64.const 4)) (call $run (local.get 11) (local.get 12) (i32.const 1))";
    assert_eq!(with(shape), "pre answered run 0: \"x\" [4] must have 4 bytes (3 bytes)");
    let scratch = "
        (drop (call $run (local.get 11) (local.get 12) (i32.const 1)))
        (i32.store (i32.const 1044) (i32.const 1))
        (i32.store (i32.const 1048) (i32.const 0))
        (i32.store (i32.const 1052) (i32.const 9))
        (i32.const 1024)";
    assert_eq!(with(scratch), "pre left 9 bytes of scratch; plugin.toml says 8");
}

/// The sentence of a refusal that calls the request wrong.
fn refused_as_wrong(answer: Result<crate::processing::PreparedRequest, crate::processing::ProcessorRefusal>) -> String {
    match answer.unwrap_err().why {
        RefusedBy::Plugin { code: 1, text, retry: None } => text,
        why => panic!("{why:?}"),
    }
}

fn run_each(k: u32) -> String {
    format!("(call $run (local.get 11) (local.get 12) (i32.const {k}))")
}

#[test]
fn a_request_that_needs_too_many_runs_is_refused_without_a_strike() {
    for on_failure in [OnFailure::Fail, OnFailure::Bypass] {
        let pre = run_each(10_000);
        let chain = chain(&[ProcessorWat { pre: &pre, on_failure, strikes: 3, ..ProcessorWat::default() }]);
        for _ in 0..3 {
            let refused = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc"));
            let text = "the request needs 10000 runs; the maximum is 4096. Send less in one request";
            assert_eq!(refused_as_wrong(refused), text);
        }
        let link = &chain.links()[0];
        assert_eq!((link.status().counts.strikes, link.health.parked()), (0, None));
    }
}

#[test]
fn a_request_with_too_many_large_outputs_is_refused_without_a_strike() {
    let mut model = model();
    for n in 1..5 {
        let output = crate::processing::TensorPort { name: format!("y{n}"), ..model.outputs[0].clone() };
        model.outputs.push(output);
    }
    let guest =
        ProcessorWat { pre: &run_each(4000), manifest: "by-value = \"3B\"\n", strikes: 1, ..ProcessorWat::default() };
    let chain = try_chain_before(model, &[guest]).unwrap();
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    let outputs = vec![vec![Some(tensor(b"defg")); 5]; 4000];
    let refused = chain.post(&step(), prepared.pending, outputs).unwrap_err();
    let text =
        "the request needs 20000 large outputs of its runs at once; the maximum is 16384. Send less in one request";
    assert_eq!(refused.0.why, RefusedBy::Plugin { code: 1, text: text.to_owned(), retry: None });
    let link = &chain.links()[0];
    assert_eq!((link.status().counts.strikes, link.health.parked()), (0, None));
}

#[test]
fn all_processors_of_a_chain_share_the_limit_of_runs_per_request() {
    let (outer, inner) = (run_each(100), run_each(50));
    let reply = "(call $reply (local.get 11) (local.get 12))";
    for last in [inner.as_str(), reply] {
        let outer = if last == reply { run_each(4097 / 2) } else { outer.clone() };
        let chain = chain(&[
            ProcessorWat { pre: &run_each(3), ..ProcessorWat::default() },
            ProcessorWat { pre: &outer, ..ProcessorWat::default() },
            ProcessorWat { pre: last, ..ProcessorWat::default() },
        ]);
        let refused = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc"));
        let text = "the request needs more than 4096 runs in all. Send less in one request";
        assert_eq!(refused_as_wrong(refused), text);
        assert!(chain.links().iter().all(|link| link.status().counts.strikes == 0));
    }
}

#[test]
fn an_input_that_no_processor_reads_counts_once_for_all_runs() {
    let mut model = model();
    let passes = crate::processing::TensorPort { name: "z".to_owned(), ..model.inputs[0].clone() };
    model.inputs.push(passes);
    let chain = try_chain_before(
        model,
        &[ProcessorWat { pre: &run_each(4000), manifest: "reads = [\"x\"]\n", ..ProcessorWat::default() }],
    )
    .unwrap();
    // Copied for 4,000 runs it would be 400 MB.
    let shared = tensor(&vec![7; 100_000]);
    let request = vec![Some(tensor(b"abc")), Some(shared)];
    let prepared = chain.pre(&step(), &SequenceScratch::default(), request).unwrap();
    assert!(prepared.bytes < 1 << 20, "{} bytes", prepared.bytes);
    assert_eq!(runs(prepared.plan).len(), 4000);
}

/// Answers one run, or one reply, with a new tensor of 40 MB.
const LARGE: &str = "
    (import \"sequor:plugin/tensors@0.1.0\" \"[constructor]buffer\" (func $buffer (param i32 i32 i32 i64) (result i32)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[static]buffer.finish\" (func $finish (param i32) (result i32)))
    (func $large (param $port i32) (result i32)
        (i64.store (i32.const 512) (i64.const 40000000))
        (i32.store (i32.const 600) (local.get $port))
        (i32.store (i32.const 604) (i32.const 1))
        (i32.store (i32.const 608)
            (call $finish (call $buffer (i32.const 2) (i32.const 512) (i32.const 1) (i64.const 40000000))))
        (i32.const 600))";

#[test]
fn all_processors_of_a_chain_share_the_limit_of_bytes_per_request() {
    let ten = run_each(10);
    let pre = "(call $run (call $large (i32.const 0)) (i32.const 1) (i32.const 1))";
    let large = ProcessorWat { extra: LARGE, pre, ..ProcessorWat::default() };
    for manifest in ["wants = [\"pre\"]\n", "scratch = \"8B\"\n"] {
        let chain = chain(&[ProcessorWat { pre: &ten, ..ProcessorWat::default() }, ProcessorWat { manifest, ..large }]);
        let refused = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc"));
        let text = "the request needs more than 268435456 bytes between its processors. Send less in one request";
        assert_eq!(refused_as_wrong(refused), text);
        let calls: Vec<u64> = chain.links().iter().map(|link| link.status().counts.calls).collect();
        assert_eq!(calls, [1, 7], "it stops where the bytes are too many");
        assert!(chain.links().iter().all(|link| link.status().counts.strikes == 0));
    }
}

#[test]
fn outputs_that_gather_between_processors_are_bounded() {
    let post = "
        (i64.store (i32.const 1024) (i64.const 0))
        (i32.store (i32.const 1032) (call $large (i32.const 0)))
        (i32.store (i32.const 1036) (i32.const 1))
        (i64.store (i32.const 1040) (i64.const 0))
        (global.set $heap (i32.const 8192))
        (i32.const 1024)";
    let ten = run_each(10);
    let chain = chain(&[
        ProcessorWat { pre: &ten, ..ProcessorWat::default() },
        ProcessorWat { extra: LARGE, post, ..ProcessorWat::default() },
    ]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    let outputs = (0..10u8).map(|n| inputs(&[n])).collect();
    let (refused, _) = chain.post(&step(), prepared.pending, outputs).unwrap_err();
    assert!(matches!(refused.why, RefusedBy::Plugin { code: 1, .. }), "{refused:?}");
    assert_eq!(chain.links()[1].status().counts.calls, 10 + 7);
}

#[test]
fn a_failed_call_leaves_the_scratch_and_the_next_is_answered() {
    // It traps if the first byte is 0.
    let pre = "
        (if (i32.eqz (i32.load8_u (i32.load offset=20 (local.get 11)))) (then unreachable))
        (call $run (local.get 11) (local.get 12) (i32.const 1))";
    let chain = chain(&[ProcessorWat { pre, post: COUNT, ..ProcessorWat::default() }]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"a")).unwrap();
    let (_, scratch) = chain.post(&step(), prepared.pending, vec![inputs(b"d")]).unwrap();
    let before = scratch.clone();
    assert!(chain.pre(&step(), &scratch, inputs(&[0])).is_err());
    assert_eq!(scratch, before);
    assert!(chain.pre(&step(), &scratch, inputs(b"a")).is_ok(), "another guest took the place of the one that trapped");
}

#[test]
fn a_failing_processor_can_be_bypassed() {
    let bypass = ProcessorWat {
        pre: "unreachable",
        post: "unreachable",
        on_failure: OnFailure::Bypass,
        ..ProcessorWat::default()
    };
    let chain = chain(&[bypass]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    assert_eq!(runs(prepared.plan), [inputs(b"abc")]);
    let (answer, scratch) = chain.post(&step(), prepared.pending, vec![inputs(b"de")]).unwrap();
    assert_eq!((answer, scratch), (inputs(b"de"), SequenceScratch::default()));
    // Only its `post` fails, so the outputs of the runs bypass it.
    let chain = crate::processing::wat_fixture::chain(&[ProcessorWat {
        post: "unreachable",
        on_failure: OnFailure::Bypass,
        ..ProcessorWat::default()
    }]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    assert_eq!(chain.post(&step(), prepared.pending, vec![inputs(b"de")]).unwrap().0, inputs(b"de"));
}

#[test]
fn a_processor_that_does_not_fit_is_refused_at_load() {
    let refused = |guest: ProcessorWat<'_>| try_chain(&[ProcessorWat::default(), guest]).unwrap_err();
    let manifest = "reads = [\"x\", \"z\"]\n";
    let (at, what) = refused(ProcessorWat { manifest, ..ProcessorWat::default() });
    let message = "reads names \"z\", which is no input of requests and no output of the model";
    assert_eq!((at, what.as_str()), (1, message));
    assert_eq!(
        refused(ProcessorWat { configure: "unreachable", ..ProcessorWat::default() }).1,
        "it gave up (unreachable), in configure"
    );
    // It renames its input, so a bypass passes nothing to that input.
    let renamed = "
        (i32.store8 (i32.const 1024) (i32.const 0))
        (memory.copy (i32.const 1028) (i32.add (local.get 0) (i32.const 64)) (i32.const 16))
        (i32.store8 (i32.load (i32.load (i32.const 1028))) (i32.const 97))
        (i32.const 1024)";
    let guest = ProcessorWat { configure: renamed, ..ProcessorWat::default() };
    assert!(try_chain(&[guest]).is_ok(), "pre gives what the model takes");
    let refused = |guest: ProcessorWat<'_>| try_chain(&[guest]).unwrap_err().1;
    let message = "input \"a\" is not read, and the model has no input of that name and type to pass it to";
    assert_eq!(refused(ProcessorWat { manifest: "wants = [\"post\"]\n", ..guest }), message);
    assert!(
        refused(ProcessorWat { on_failure: OnFailure::Bypass, ..guest }).starts_with("on_failure = \"bypass\" needs")
    );
}

/// A processor in front of a model that takes three bytes. It declares an input of any length.
fn wider(guest: ProcessorWat<'_>) -> crate::processing::Chain {
    let mut model = model();
    model.inputs[0].dims = sequor_core::Dims::from_wire(&[3]);
    try_chain_before(model, &[ProcessorWat { configure: OPEN, ..guest }]).unwrap()
}

#[test]
fn an_input_passed_on_without_a_processor_must_fit_the_model() {
    let guests = [
        ProcessorWat { manifest: "wants = [\"post\"]\n", ..ProcessorWat::default() },
        ProcessorWat {
            manifest: "reads = [\"y\"]\n",
            pre: "(call $run (i32.const 0) (i32.const 0) (i32.const 1))",
            ..ProcessorWat::default()
        },
        ProcessorWat { pre: "unreachable", on_failure: OnFailure::Bypass, ..ProcessorWat::default() },
    ];
    for guest in guests {
        let chain = wider(guest);
        assert!(chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).is_ok());
        let refused = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abcd")).unwrap_err();
        let text = "an input does not fit the model behind: \"x\" has the shape [4]; [3] is expected".to_owned();
        assert_eq!(refused.why, RefusedBy::Plugin { code: 1, text, retry: None }, "{guest:?}");
    }
}

#[test]
fn the_runs_of_a_request_must_have_equal_shapes_across_processors() {
    let twice =
        ProcessorWat { pre: "(call $run (local.get 11) (local.get 12) (i32.const 2))", ..ProcessorWat::default() };
    // Every second call gives two bytes instead of three.
    let extra = "(global $n (mut i32) (i32.const 0))";
    let pre = "
        (global.set $n (i32.xor (global.get $n) (i32.const 1)))
        (if (i32.eqz (global.get $n)) (then
            (i64.store (i32.load offset=12 (local.get 11)) (i64.const 2))
            (i32.store offset=24 (local.get 11) (i32.const 2))))
        (call $run (local.get 11) (local.get 12) (i32.const 1))";
    let unlike = ProcessorWat { extra, pre, ..ProcessorWat::default() };
    assert_eq!(failure(&[twice, unlike]), "the runs of one request have different shapes");
    // The processor in front of the model is bypassed for the entry that it answered with another shape. The bypassed inputs have the first
    // entry's shape.
    let chain = chain(&[twice, ProcessorWat { on_failure: OnFailure::Bypass, ..unlike }]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    assert_eq!(runs(prepared.plan), [inputs(b"abc"), inputs(b"abc")]);
    let counts: Vec<_> = chain.links().iter().map(|link| link.status().counts).collect();
    assert_eq!((counts[0].strikes, counts[1].strikes, counts[1].bypassed), (0, 1, 1));
}

#[test]
fn a_failed_post_whose_runs_cannot_be_joined_is_one_strike() {
    let twice = run_each(2);
    let chain = chain(&[ProcessorWat {
        pre: &twice,
        post: "unreachable",
        on_failure: OnFailure::Bypass,
        ..ProcessorWat::default()
    }]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
    let scalar = crate::tensor::Tensor { shape: sequor_core::Shape::new(&[]), ..tensor(b"d") };
    let outputs = vec![vec![Some(scalar.clone())], vec![Some(scalar)]];
    let (refused, _) = chain.post(&step(), prepared.pending, outputs).unwrap_err();
    assert_eq!(refused.why, RefusedBy::Failure { what: "has no dimension to join the runs on".to_owned() });
    assert_eq!(chain.links()[0].status().counts.strikes, 1);
}

#[test]
fn an_answer_that_breaks_a_rule_is_bypassed_like_a_trap() {
    let wrong_port = "
        (i32.store (i32.load (local.get 11)) (i32.const 9))
        (i64.store (i32.const 1024) (i64.const 0))
        (i64.store (i32.const 1032) (i64.load (local.get 11)))
        (i64.store (i32.const 1040) (i64.const 0))
        (i32.const 1024)";
    for on_failure in [OnFailure::Bypass, OnFailure::Fail] {
        let chain = chain(&[ProcessorWat { post: wrong_port, on_failure, ..ProcessorWat::default() }]);
        let prepared = chain.pre(&step(), &SequenceScratch::default(), inputs(b"abc")).unwrap();
        let answer = chain.post(&step(), prepared.pending, vec![inputs(b"de")]);
        match on_failure {
            OnFailure::Bypass => assert_eq!(answer.unwrap().0, inputs(b"de")),
            OnFailure::Fail => {
                let what = "post answered for port 9 of 1".to_owned();
                assert_eq!(answer.unwrap_err().0.why, RefusedBy::Failure { what });
            }
        }
    }
}

#[test]
fn strikes_park_a_processor_and_then_it_is_not_called() {
    let pre = "
        (if (i32.eqz (i32.load8_u (i32.load offset=20 (local.get 11)))) (then unreachable))
        (call $run (local.get 11) (local.get 12) (i32.const 1))";
    for on_failure in [OnFailure::Fail, OnFailure::Bypass] {
        let chain = chain(&[ProcessorWat { pre, on_failure, strikes: 3, ..ProcessorWat::default() }]);
        let ask = |bytes: &[u8]| chain.pre(&step(), &SequenceScratch::default(), inputs(bytes));
        for n in 1..=3 {
            assert_eq!(chain.parked(), None, "{n}");
            assert_eq!(ask(&[0]).is_ok(), on_failure == OnFailure::Bypass);
        }
        let link = &chain.links()[0];
        let (calls, why) = (link.status().counts.calls, link.health.parked().unwrap());
        assert_eq!(why, "guest is parked on  after 3 strikes in 60 s (trap)");
        let answer = ask(b"a");
        assert_eq!(link.status().counts.calls, calls, "it is not called");
        match on_failure {
            OnFailure::Fail => {
                assert_eq!(chain.parked().as_ref(), Some(&why));
                assert_eq!(answer.unwrap_err().why, RefusedBy::Unavailable { what: why });
            }
            OnFailure::Bypass => {
                assert_eq!((chain.parked(), link.status().counts.bypassed), (None, 4));
                assert_eq!(runs(answer.unwrap().plan), [inputs(b"a")]);
            }
        }
        link.health.unpark(link.health.parkings());
        assert!(chain.parked().is_none() && ask(b"a").is_ok());
    }
}
