//! Plug-ins in the simulator.

use sequor_wasm::limits::Limits;

use super::serving::Serving;
use super::tests::{flat, made, run};
use super::{ComparedPolicy, Costs, PluginSpec};
use crate::scheduling::wat_fixture::SchedulerWat;

fn plug(guest: &SchedulerWat<'_>) -> PluginSpec {
    PluginSpec::new("x.wasm", &guest.component(), "{}", Limits::default(), None).unwrap()
}

const SMALL: &str = "for = \"2s\"\n[[poisson]]\nrate = \"400/s\"\nsequences = 20\nsteps = 10\n";

#[test]
fn a_plug_in_equal_to_the_built_in_policy_differs_only_in_its_call_time() {
    let guest = SchedulerWat { admit: FIRST_COME, ..SchedulerWat::default() };
    let policies = || vec![ComparedPolicy::named("oldest").unwrap(), ComparedPolicy::plugin("x.wasm", plug(&guest))];
    let at = |plan| {
        let costs = flat().with_plan(plan);
        run(made(SMALL, 1), Serving::default(), costs, policies())
    };
    // If instructions take almost no time, the two cannot be distinguished.
    let quick = at(super::cost::PolicyCost { instructions_a_micro: 1e9, ..super::cost::PolicyCost::default() });
    let [oldest, plugin] = &quick.runs[..] else { panic!("two runs") };
    assert_eq!((plugin.answered, plugin.batches.count), (oldest.answered, oldest.batches.count));
    assert_eq!(plugin.rounds.map(|r| (r.fallbacks, r.faults)), Some((0, 0)));
    let slow = at(super::cost::PolicyCost { instructions_a_micro: 1.0, ..super::cost::PolicyCost::default() });
    let [oldest, plugin] = &slow.runs[..] else { panic!("two runs") };
    assert!(plugin.wait.p50_us > oldest.wait.p50_us, "its instructions take time: {}", slow.table());
    let rounds = plugin.rounds.unwrap();
    assert!(rounds.questions > 0 && rounds.mean_us > 10.0 && rounds.most_us >= rounds.mean_us, "{rounds:?}");
    assert!(slow.table().contains("each on the average"), "{}", slow.table());
}

#[test]
fn a_plug_in_sees_tenants_as_keys() {
    // It refuses every tenant except "loud", and traps if the column is missing.
    let key = super::workload::tenants::key("loud").cast_signed();
    let keys = format!(
        "(if (i32.ne (i32.load offset=208 (local.get 0)) (i32.load offset=40 (local.get 0))) (then unreachable))
        (if (i64.ne (i64.load (i32.load offset=204 (local.get 0))) (i64.const {key})) (then unreachable))
        (global.set $heap (i32.const 8192))
        (i32.const 512)"
    );
    let text = "for = \"1s\"\n[[poisson]]\nrate = \"100/s\"\nsequences = 5\ntenant = \"loud\"\n";
    let policies = vec![ComparedPolicy::plugin(
        "x.wasm",
        plug(&SchedulerWat { plan: &keys, admit: FIRST_COME, ..SchedulerWat::default() }),
    )];
    let report = run(made(text, 1), Serving::default(), flat(), policies);
    assert_eq!(report.runs[0].policy_lines, Vec::<String>::new());
    assert_eq!(report.runs[0].answered, report.runs[0].requests);
}

#[test]
fn a_plug_in_sees_the_features_that_a_flow_names() {
    // It traps unless each candidate has one number and two keys, and the first candidate's are the flow's.
    let zone = super::workload::tenants::key("eu").cast_signed();
    let looks = format!(
        "(if (i32.ne (i32.load offset=196 (local.get 0)) (i32.load offset=40 (local.get 0))) (then unreachable))
        (if (i32.ne (i32.load offset=208 (local.get 0)) (i32.mul (i32.const 2) (i32.load offset=40 (local.get 0)))) (then unreachable))
        (if (f64.ne (f64.load (i32.load offset=192 (local.get 0))) (f64.const 320)) (then unreachable))
        (if (i64.ne (i64.load offset=8 (i32.load offset=204 (local.get 0))) (i64.const {zone})) (then unreachable))
        (global.set $heap (i32.const 8192))
        (i32.const 512)"
    );
    let manifest = "name = \"x\"\nversion = \"1\"\nworld = \"scheduler\"\ncontract = \"0.1.0\"\nfeatures = [\"length\", \"zone\"]\n";
    let plug =
        plug(&SchedulerWat { plan: &looks, admit: FIRST_COME, manifest: Some(manifest), ..SchedulerWat::default() });
    let flow = "for = \"1s\"\n[[poisson]]\nrate = \"100/s\"\nsequences = 5\n";
    let workload = made(&format!("{flow}features = {{ length = 320, zone = \"eu\" }}\n"), 1);
    plug.try_out(&workload.facts(Serving::default().facts(1))).unwrap();
    let bare = made(flow, 1);
    assert_eq!(
        plug.try_out(&bare.facts(Serving::default().facts(1))).unwrap_err(),
        "it needs the feature \"length\"; name it in `features` of what arrives"
    );
    assert_eq!(workload.arrivals, bare.arrivals, "the same requests");
    let report = run(workload, Serving::default(), flat(), vec![ComparedPolicy::plugin("x.wasm", plug)]);
    assert_eq!(report.runs[0].policy_lines, Vec::<String>::new());
    assert_eq!(report.runs[0].answered, report.runs[0].requests);
}

/// Each waiting sequence gets a slot of instance 0: as many tags and numbers as there are sequences, all zero. `len` stands at 32.
const FIRST_COME: &str = "
    (memory.fill (i32.const 2048) (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 1024) (i32.const 2048))
    (i32.store (i32.const 1028) (i32.load offset=40 (local.get 0)))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

#[test]
fn a_plug_in_that_traps_repeatedly_is_parked_without_a_lost_request() {
    let falls = SchedulerWat { plan: "unreachable", admit: FIRST_COME, ..SchedulerWat::default() };
    let policies = || vec![ComparedPolicy::named("oldest").unwrap(), ComparedPolicy::plugin("x.wasm", plug(&falls))];
    let costs =
        flat().with_plan(super::cost::PolicyCost { instructions_a_micro: 1e12, ..super::cost::PolicyCost::default() });
    let report = run(made(SMALL, 1), Serving::default(), costs, policies());
    let [oldest, plugin] = &report.runs[..] else { panic!("two runs") };
    assert_eq!((plugin.answered, plugin.wait), (oldest.answered, oldest.wait));
    assert_eq!((plugin.policy_lines.len(), plugin.rounds.map(|r| r.faults)), (3, Some(3)));
    assert!(
        plugin.policy_lines[2].ends_with("it gave up (unreachable) (in plan), in plan; it is parked, oldest goes on"),
        "{:?}",
        plugin.policy_lines
    );
}

#[test]
fn a_plug_in_gives_the_same_bytes_for_the_same_seed() {
    let report = || {
        let policies = vec![ComparedPolicy::plugin(
            "x.wasm",
            plug(&SchedulerWat { admit: FIRST_COME, ..SchedulerWat::default() }),
        )];
        run(made(SMALL, 3), Serving { slots: 4, ..Serving::default() }, Costs::default(), policies)
    };
    let (a, b) = (report(), report());
    assert_eq!((a.table(), a.json(), a.html()), (b.table(), b.json(), b.html()));
    assert_eq!(a.runs[0].answered, a.runs[0].requests);
}

#[test]
fn a_plug_in_is_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = sequor_wasm::cache::Cache::new(folder.path()).unwrap();
    let kept = || std::fs::read_dir(folder.path()).unwrap().count();
    for _ in 0..2 {
        PluginSpec::new("x.wasm", &SchedulerWat::default().component(), "{}", Limits::default(), Some(&cache)).unwrap();
        assert_eq!(kept(), 1);
    }
}

#[test]
fn a_wrong_answer_is_reported_in_the_words_of_the_server() {
    // A list of one candidate: number 999.
    let beyond = "
        (i32.store (i32.const 2048) (i32.const 999))
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 2048))
        (i32.store (i32.const 1036) (i32.const 1))
        (global.set $heap (i32.const 8192))
        (i32.const 1024)";
    let guest = SchedulerWat { plan: beyond, admit: FIRST_COME, ..SchedulerWat::default() };
    let costs =
        flat().with_plan(super::cost::PolicyCost { instructions_a_micro: 1e4, ..super::cost::PolicyCost::default() });
    let report = run(made(SMALL, 1), Serving::default(), costs, vec![ComparedPolicy::plugin("x.wasm", plug(&guest))]);
    let lines = &report.runs[0].policy_lines;
    assert!(lines[0].ends_with(": plan answered index 999 of 1 candidates"), "{lines:?}");
    let rounds = report.runs[0].rounds.unwrap();
    // Its admissions are right, until it is parked.
    assert!(rounds.fallbacks > 100 && rounds.questions < rounds.fallbacks + 100, "{rounds:?}");
    let (table, answered) = (report.table(), rounds.questions - rounds.fallbacks);
    let line = format!(" {answered} answered, under 0.1 us each on the average");
    assert!(rounds.mean_us < 0.05 && table.contains(&line), "{table}");
}

/// Saves four bytes.
const SAVE: &str = "
    (i32.store (i32.const 1024) (i32.const 16))
    (i32.store (i32.const 1028) (i32.const 4))
    (i32.const 1024)";

/// The plan of first come, first served, after this code.
fn plan_after(code: &str) -> String {
    let plan = SchedulerWat::default().plan;
    let (locals, body) = plan.split_at(plan.find("(local.set").unwrap());
    format!("{locals}{code}{body}")
}

/// The lines about a plug-in that is asked some 40 times a second, for 40 seconds. Few sequences, so that none expires between two steps.
fn long_run(guest: &SchedulerWat<'_>) -> Vec<String> {
    let text = SMALL.replace("2s", "40s").replace("400/s", "40/s").replace("sequences = 20", "sequences = 2");
    let policies = vec![ComparedPolicy::plugin("x.wasm", plug(guest))];
    let report = run(made(&text, 1), Serving::default(), flat(), policies);
    assert_eq!(report.runs[0].answered, report.runs[0].requests);
    report.runs[0].policy_lines.clone()
}

#[test]
fn a_state_that_cannot_be_restored_costs_no_strike() {
    // It traps when it is asked for the 800th time, after the first save.
    let late = plan_after(
        "(global.set $n (i32.add (global.get $n) (i32.const 1)))
        (if (i32.eq (global.get $n) (i32.const 800)) (then unreachable))",
    );
    let (count, admit) = ("(global $n (mut i32) (i32.const 0))", FIRST_COME);
    let guest = SchedulerWat { extra: count, plan: &late, admit, save: SAVE, ..SchedulerWat::default() };
    let restores = long_run(&guest);
    let falls = long_run(&SchedulerWat { restore: "unreachable", ..guest });
    assert_eq!(falls, restores);
    assert!(!falls.is_empty() && falls.iter().all(|line| line.contains("in plan")), "{falls:?}");
}

#[test]
fn a_save_that_traps_is_a_strike() {
    let lines = long_run(&SchedulerWat { save: "unreachable", admit: FIRST_COME, ..SchedulerWat::default() });
    assert!(lines.len() == 3 && lines.iter().all(|line| line.contains("in save")), "{lines:?}");
    assert!(lines[0].starts_with("strike 1 after 10."), "{lines:?}");
}

#[test]
fn a_guest_that_grows_is_replaced_three_times_a_minute() {
    // 4 MiB for each question.
    let grows = plan_after("(if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then unreachable))");
    let lines = long_run(&SchedulerWat { plan: &grows, admit: FIRST_COME, ..SchedulerWat::default() });
    let (replaced, strikes) = lines.split_at(3);
    let is_replaced = |line: &String| line.starts_with("instance replaced after ") && line.ends_with(" in use");
    assert!(replaced.iter().all(is_replaced), "{lines:?}");
    assert!(strikes.len() == 3 && strikes[2].ends_with("it is parked, oldest goes on"), "{lines:?}");
    assert!(strikes[0].ends_with("; another instance takes its place"), "{lines:?}");
}
