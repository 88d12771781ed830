//! Instances on an accelerator: the same answers as on the host, at most one wait a reply, and the behaviour when its memory is full. The
//! accelerators are stand-ins; `cargo xtask gpu-test` tests real GPUs.

use sequor::backend::mock::MockBackend;
use sequor::device::stand_in::StandIns;
use sequor::error::{Failure, Refused};
use sequor::model::Availability;
use sequor_core::{EndReason, Id, Refusal};

use crate::support::server::{Spec, wait};
use crate::support::values::tensor;
use crate::support::{Seq, Server, both, model, sum};

const ROOM: usize = 256 << 20;

fn config(groups: &str, strategy: &str, dims: u32) -> String {
    let text = sum("TYPE_INT32", strategy, "").replace("instance_group { count: 1 }", groups);
    text.replace("dims: [ 1 ]", &format!("dims: [ {dims} ]")).replace("dims: [ -1 ]", &format!("dims: [ {dims} ]"))
}

fn spec(groups: &str, strategy: &str, dims: u32, accelerators: &StandIns) -> Spec {
    let program = format!("accumulate INT32 dims={dims} poison=99");
    let spec = model("sum").config(&config(groups, strategy, dims));
    spec.mock(&program, MockBackend::new().with_stand_ins()).accelerators(accelerators)
}

fn on_gpu(strategy: &str, gpus: &StandIns) -> Server {
    spec("instance_group { kind: KIND_GPU count: 1 }", strategy, 1, gpus).serve()
}

#[test]
fn gpu_sums_equal_the_hosts_with_one_wait_per_run() {
    for strategy in both() {
        let gpus = StandIns::new(1, ROOM);
        let server = on_gpu(strategy, &gpus);
        assert_eq!(server.ready().on.as_deref(), Some("GPU 0"));
        let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
        let before = gpus.waits();
        a.start().input(&[1]).gives(&[1]);
        b.start().input(&[10]).gives(&[10]);
        a.step().input(&[2]).gives(&[3]);
        c.start().input(&[100]).gives(&[100]);
        a.step().input(&[3]).gives(&[6]);
        b.step().input(&[20]).gives(&[30]);
        assert_eq!(gpus.waits() - before, 6, "the reply's own, and no other");
        assert!(matches!(b.step().input(&[99]).fails(), Failure::Run(_)));
        b.end().input(&[1]).gives(&[31]);
        a.end().input(&[4]).gives(&[10]);
        c.start().input(&[7]).gives(&[7]);
    }
}

#[test]
fn batches_are_gathered_and_scattered_in_one_launch_each() {
    let gpus = StandIns::new(1, ROOM);
    let server = on_gpu(
        "oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 100000 preferred_batch_size: 4 }",
        &gpus,
    );
    let all = [1u64, 2, 3, 4].map(|id| server.seq(id));
    for (n, waiting) in all.each_ref().map(|seq| seq.start().input(&[1]).send()).into_iter().enumerate() {
        assert_eq!(waiting.answer().output::<i32>("OUTPUT"), [1], "{n}");
    }
    let before = gpus.launches();
    // An order in which the slots are not neighbours.
    let sent = [3usize, 1, 0, 2].map(|n| (n, all[n].step().input(&[n as i32]).send()));
    for (n, waiting) in sent {
        assert_eq!(waiting.answer().output::<i32>("OUTPUT"), [1 + n as i32]);
    }
    let runs = gpus.launches() - before;
    assert!((1..=8).contains(&runs), "{runs} launches for four rows of one state");
}

#[test]
fn a_gpu_that_is_full_refuses_the_new_and_serves_the_old() {
    // Rows of 4 MiB. A chunk has four; there is memory for one chunk and for the runs.
    let gpus = StandIns::new(1, 40 << 20);
    let groups = "instance_group { kind: KIND_GPU count: 1 }";
    let server = spec(groups, "oldest { max_candidate_sequences: 8 }", 1 << 20, &gpus).serve();
    let ones = vec![1i32; 1 << 20];
    let last = |answer: Vec<i32>| answer.last().copied();
    let sequences: Vec<_> = (1u64..=5).map(|id| server.seq(id)).collect();
    for seq in &sequences[..4] {
        assert_eq!(last(seq.start().input(&ones).answer().output("OUTPUT")), Some(1));
    }
    match sequences[4].start().input(&ones).fails() {
        Failure::DeviceMemory { model, place, wanted, id } => {
            assert_eq!((model.as_str(), place.as_str(), wanted, id), ("sum", "GPU 0", 16 << 20, Id::Int(5)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.repository.live(), 4);
    assert_eq!(last(sequences[0].step().input(&ones).answer().output("OUTPUT")), Some(2));
    assert_eq!(last(sequences[3].end().input(&ones).answer().output("OUTPUT")), Some(2));
    assert_eq!(last(sequences[4].start().input(&ones).answer().output("OUTPUT")), Some(1));
    assert_eq!(last(sequences[4].step().input(&ones).answer().output("OUTPUT")), Some(2));
}

#[test]
fn states_go_from_a_gpu_to_the_host_and_back() {
    for strategy in both() {
        let gpus = StandIns::new(1, ROOM);
        let there = on_gpu(strategy, &gpus);
        let here = model("sum").config(&config("instance_group { kind: KIND_CPU count: 1 }", strategy, 1));
        let here = here.mock("accumulate INT32", MockBackend::new()).serve();
        there.seq(1).start().input(&[40]).gives(&[40]);
        let file = there.repository.find("sum", "").unwrap().export(&Id::Int(1)).unwrap();
        there.seq(1).step().input(&[1]).gives(&[41]);
        here.repository.find("sum", "").unwrap().import(Id::Int(1), &file).unwrap();
        here.seq(1).step().input(&[2]).gives(&[42]);
        let file = here.repository.find("sum", "").unwrap().export(&Id::Int(1)).unwrap();
        there.repository.find("sum", "").unwrap().import(Id::Int(7), &file).unwrap();
        there.seq(7).step().input(&[3]).gives(&[45]);
    }
}

#[test]
fn outputs_that_a_gpu_may_still_write_are_kept_when_a_wait_fails() {
    const DIMS: u32 = 1 << 16;
    for strategy in both() {
        let gpus = StandIns::new(1, ROOM);
        let server = spec("instance_group { kind: KIND_GPU count: 1 }", strategy, DIMS, &gpus).serve();
        let ones = vec![1i32; DIMS as usize];
        server.seq(1).start().input(&ones).answer();
        gpus.hold();
        let before = gpus.waits();
        let waiting = server.seq(1).step().input(&ones).send();
        wait(|| gpus.waits() > before, || "no wait for the run".to_owned());
        gpus.break_down();
        waiting.fails();
        drop(server);
        // The device never finished, so the host memory for its output is still kept.
        let staged = gpus.staged();
        assert!(staged >= 4 * DIMS as usize, "{strategy}: {staged} bytes");
    }
}

#[test]
fn a_broken_gpu_fails_its_requests_with_an_error_that_names_the_gpu() {
    let gpus = StandIns::new(1, ROOM);
    let server = on_gpu("direct { }", &gpus);
    server.seq(1).start().input(&[1]).gives(&[1]);
    gpus.break_down();
    match server.seq(1).step().input(&[1]).fails() {
        Failure::Run(text) => assert_eq!(text, "GPU 0 failed to finish its work: it was broken on purpose"),
        other => panic!("{other:?}"),
    }
}

/// A model without sequences, with an instance on each of two GPUs.
fn stateless(gpus: &StandIns) -> Server {
    let config = r#"
        max_batch_size: 4
        instance_group { kind: KIND_GPU count: 1 gpus: [ 0, 1 ] }
        input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
        output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
    "#;
    let spec = model("same").config(config);
    spec.mock("identity INT32", MockBackend::new().with_stand_ins()).accelerators(gpus).serve()
}

fn lost(server: &Server) -> String {
    let text = server.metrics.encode();
    let line = text.lines().find(|line| line.starts_with("sequor_instances_lost_total{")).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

/// An instance that fails at once is ready for the next batch before any other.
#[test]
fn a_broken_gpu_takes_no_requests_from_one_that_works() {
    let gpus = StandIns::new(2, ROOM);
    let server = stateless(&gpus);
    let ask = |n: i32| server.stateless().with("INPUT", tensor(&[1, 1], &[n])).send().result();
    assert_eq!((ask(5).unwrap().output::<i32>("OUTPUT"), lost(&server).as_str()), (vec![5], "0"));
    gpus.break_one(0);
    // Which of two instances at rest takes a request is not said.
    match (0..10_000).find_map(|n| ask(n).err()) {
        Some(Failure::Run(text)) => assert_eq!(text, "GPU 0 failed to finish its work: it was broken on purpose"),
        other => panic!("{other:?}"),
    }
    for n in 0..200 {
        assert_eq!(ask(n).unwrap().output::<i32>("OUTPUT"), [n]);
    }
    assert_eq!(lost(&server), "1");
    let found = server.repository.find("same", "").unwrap();
    assert_eq!((server.repository.ready(), found.unready()), (true, None), "the other GPU serves the model");
    gpus.break_one(1);
    assert!(matches!(ask(1), Err(Failure::Run(_))));
    let why = found.unready().unwrap();
    assert!(why.contains("GPU 0 failed to finish its work") && why.contains("restart the server"), "{why}");
    assert!(!server.repository.ready());
    let row = &server.repository.index()[0];
    assert_eq!((row.state, row.reason.as_str()), ("UNAVAILABLE", why.as_str()));
    assert!(matches!(ask(1), Err(Failure::Run(_))), "requests are answered with the failure");
    assert_eq!(lost(&server), "2");
}

#[test]
fn a_model_whose_only_gpu_is_broken_is_not_ready() {
    for strategy in both() {
        let gpus = StandIns::new(1, ROOM);
        let server = on_gpu(strategy, &gpus);
        server.seq(1).start().input(&[1]).gives(&[1]);
        assert!(server.repository.ready());
        gpus.break_down();
        server.seq(1).step().input(&[1]).fails();
        assert!(!server.repository.ready(), "{strategy}");
        assert_eq!(ended(&server.seq(1)), EndReason::DeviceLost, "{strategy}");
        assert!(matches!(server.seq(2).start().input(&[1]).fails(), Failure::Run(_)), "{strategy}");
    }
}

/// The reason why the sequence of this id ended, from the refusal of its next step.
#[track_caller]
fn ended(seq: &Seq<'_>) -> EndReason {
    let Failure::Refused(refused) = seq.step().input(&[1]).fails() else { panic!("no refusal") };
    let Refused { refusal: Refusal::Unknown(Some(stone)), .. } = *refused else { panic!("{refused:?}") };
    stone.why
}

#[test]
fn sequences_of_a_broken_gpu_end_and_those_of_the_other_go_on() {
    for strategy in both() {
        let gpus = StandIns::new(2, ROOM);
        let server = spec("instance_group { kind: KIND_GPU count: 1 gpus: [ 0, 1 ] }", strategy, 1, &gpus).serve();
        // Slots are given in turns, beginning with the first instance.
        let all: Vec<_> = (1..=6).map(|id| server.seq(id)).collect();
        all.iter().for_each(|seq| seq.start().input(&[1]).gives(&[1]));
        gpus.break_one(0);
        assert!(matches!(all[0].step().input(&[1]).fails(), Failure::Run(_)), "{strategy}");
        for n in [0, 2, 4] {
            assert_eq!(ended(&all[n]), EndReason::DeviceLost, "{strategy}");
        }
        for n in [1, 3, 5] {
            all[n].step().input(&[1]).gives(&[2]);
        }
        // Five sequences do not fit into the four slots that are left: two wait for a slot, and run once there is one.
        assert_eq!(server.repository.live(), 3, "{strategy}");
        all[0].start().input(&[7]).gives(&[7]);
        let waiting = [2, 4].map(|n| all[n].start().input(&[8]).send());
        for n in [1, 3] {
            all[n].end().input(&[1]).gives(&[3]);
        }
        waiting.into_iter().for_each(|waiting| waiting.gives(&[8]));
        all[5].step().input(&[1]).gives(&[3]);
        assert!(server.repository.ready(), "{strategy}");
    }
}

#[test]
fn a_warm_up_is_over_before_its_model_is_ready() {
    let sample = "model_warmup { name: \"zeros\" batch_size: 2 count: 3 inputs { key: \"INPUT\" value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }";
    let gpus = StandIns::new(1, ROOM);
    let of = |sample: &str| {
        let text = config("instance_group { kind: KIND_GPU count: 1 }", "direct { }", 1) + sample;
        let spec = model("sum").config(&text).mock("accumulate INT32 poison=99", MockBackend::new().with_stand_ins());
        spec.accelerators(&gpus)
    };
    let plain = of("").serve();
    let before = gpus.waits();
    let warm = of(sample).serve();
    assert_eq!(gpus.waits() - before, 1, "one wait for all three runs of the sample");
    drop((plain, warm));
    gpus.break_down();
    let message = of(sample).refused();
    let why = "failed to run warmup sample 'zeros': GPU 0 failed to finish its work: it was broken on purpose";
    assert!(message.contains(why), "{message}");
}

#[test]
fn instance_groups_decide_where_instances_are_placed() {
    let gpus = StandIns::new(2, ROOM);
    let on = |groups: &str| spec(groups, "direct { }", 1, &gpus).serve().ready();
    assert_eq!(on("").on.as_deref(), Some("GPU 0 1"));
    let both = on("instance_group [ { kind: KIND_GPU gpus: 1 count: 2 }, { kind: KIND_CPU count: 1 } ]");
    assert_eq!((both.on.as_deref(), both.instances), (Some("GPU 1 and CPU"), 3));
    let missing = on("instance_group { kind: KIND_AUTO gpus: 5 count: 1 }");
    assert_eq!(missing.on.as_deref(), Some("CPU: of the GPUs that it names, 0 1 can be used"));
    assert_eq!(on("instance_group { kind: KIND_CPU }").on, None);
}

#[test]
fn a_model_that_asks_for_an_unavailable_gpu_is_refused() {
    let gpus = StandIns::new(1, ROOM);
    let refused = spec("instance_group { kind: KIND_GPU gpus: 3 }", "direct { }", 1, &gpus).refused();
    assert!(refused.contains("specifies invalid or unsupported gpu id 3; GPUs that can be used are: 0"), "{refused}");
    let tiny = StandIns::new(1, 1 << 20);
    let refused = spec("instance_group { kind: KIND_GPU }", "direct { }", 1 << 18, &tiny).refused();
    assert!(refused.contains("GPU 0 has no room for"), "{refused}");
    let mock = MockBackend::new();
    let spec = model("sum").config(&config("instance_group { kind: KIND_GPU }", "direct { }", 1));
    let refused = spec.mock("accumulate INT32", mock).accelerators(&gpus).refused();
    assert!(refused.contains("KIND_GPU cannot be served: the mock backend runs on stand-ins alone"), "{refused}");
}

#[test]
fn the_gauges_of_a_gpu_in_use_are_shown() {
    let gpus = StandIns::new(1, ROOM);
    let server = on_gpu("oldest { max_candidate_sequences: 4 }", &gpus);
    let value = |name: &str| {
        server.repository.observe();
        let (text, series) = (server.metrics.encode(), format!("{name}{{gpu_uuid=\"GPU-stand-in-0\"}} "));
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok())
    };
    assert_eq!((value("nv_gpu_memory_total_bytes"), value("nv_gpu_utilization")), (Some(ROOM as f64), Some(0.5)));
    assert_eq!((value("nv_gpu_memory_used_bytes"), value("nv_gpu_power_usage")), (Some(gpus.used() as f64), None));
    assert_eq!(value("sequor_gpu_state_bytes"), Some(0.0));
    server.seq(1).start().input(&[1]).gives(&[1]);
    assert_eq!(value("sequor_gpu_state_bytes"), Some(16.0), "four slots of four bytes");
}

#[test]
fn a_model_that_asks_for_no_gpu_runs_on_the_cpu() {
    let gpus = StandIns::new(1, ROOM);
    let spec = model("sum").config(&config("instance_group { count: 1 }", "direct { }", 1));
    let server = spec.mock("accumulate INT32", MockBackend::new()).accelerators(&gpus).serve();
    server.seq(1).only().input(&[5]).gives(&[5]);
    assert!(matches!(server.repository.statuses().pop().unwrap().availability, Availability::Ready(_)));
    assert_eq!((gpus.used(), gpus.launches(), gpus.waits()), (0, 0, 0));
}
