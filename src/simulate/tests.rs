//! The simulator in short scenarios: results worked out by hand, repeatability, and the purpose of each policy.

use std::path::Path;
use std::time::Duration;

use sequor_core::policy::columns;
use sequor_core::{Admission, Columns, Decision, Hooks, Picks, Policy, PolicyFault, Time};

use super::decider::SimPolicy;
use super::file::WorkloadFile;
use super::serving::{Expire, Serving};
use super::{Arrival, ComparedPolicy, Costs, Experiment, SimulationReport, Workload};

const MS: u64 = 1_000_000;

fn arrival(at_ms: u64, sequence: u32, start: bool, end: bool) -> Arrival {
    Arrival {
        flow: 0,
        at: Time(at_ms * MS),
        sequence,
        start,
        end,
        tenant: u16::MAX,
        priority: 0,
        within: None,
        bytes: 0,
        shape: 0,
    }
}

fn workload(arrivals: Vec<Arrival>) -> Workload {
    let sequences = arrivals.iter().map(|a| a.sequence + 1).max().unwrap_or(0);
    Workload { arrivals, sequences, span: Duration::from_millis(20), about: "hand".to_owned(), ..Workload::default() }
}

fn costs(text: &str) -> Costs {
    Costs::read(Path::new("c.toml"), text).unwrap()
}

/// A run takes 2 ms for any number of rows.
pub(super) fn flat() -> Costs {
    costs("[[point]]\nbatch = 1\nmicros = 2000\n")
}

pub(super) fn run(
    workload: Workload,
    serving: Serving,
    costs: Costs,
    policies: Vec<ComparedPolicy>,
) -> SimulationReport {
    Experiment { workload, serving, costs, policies, seed: 1 }.run()
}

pub(super) fn made(text: &str, seed: u64) -> Workload {
    WorkloadFile::read(Path::new("x.toml"), text).unwrap().workload(seed).unwrap()
}

pub(super) fn named(names: &[&str]) -> Vec<ComparedPolicy> {
    names.iter().map(|n| ComparedPolicy::named(n).unwrap()).collect()
}

// === by hand ===

#[test]
fn a_tiny_workload_matches_the_results_computed_by_hand() {
    // Two slots, two rows, 2 ms a batch.
    //  0: a and b START            -> batch {a, b} 0..2        waits 0, 0
    //  1: a steps; c STARTs        -> c in the backlog
    //  2: batch {a} 2..4           -> a waited 1
    //  3: b ENDs                   -> batch {b} 4..6, waited 1; c gets b's slot at 6
    //  6: batch {c} 6..8           -> c waited 5
    let mut arrivals = vec![
        arrival(0, 0, true, false),
        arrival(0, 1, true, false),
        arrival(1, 0, false, false),
        arrival(1, 2, true, true),
        arrival(3, 1, false, true),
    ];
    for (a, within) in arrivals.iter_mut().zip([2, 1, 3, 6, 3]) {
        a.within = Some(Duration::from_millis(within));
    }
    let serving = Serving { slots: 2, max_batch: 2, ..Serving::default() };
    let report = run(workload(arrivals), serving, flat(), named(&["oldest"]));
    let out = &report.runs[0];
    assert_eq!((out.requests, out.answered, out.rejected, out.unanswered), (5, 5, 0, 0));
    assert_eq!((out.batches.count, out.batches.mean, out.batches.sizes.clone()), (4, 1.25, [(1, 3), (2, 1)].into()));
    assert_eq!(
        (out.wait.p50_us, out.wait.p90_us, out.wait.mean_us, out.wait.most_us),
        (1000.0, 5000.0, 1400.0, 5000.0)
    );
    assert_eq!((out.answer.p50_us, out.answer.most_us), (3000.0, 7000.0));
    // b's START takes 2 ms with a deadline of 1 ms; c takes 7 ms with a deadline of 6 ms.
    assert_eq!(out.deadlines.map(|d| (d.requests, d.missed, d.share)), Some((5, 2, 0.4)));
    // Both slots for 8 of 20 ms, then a's alone.
    assert_eq!((out.slots.all, (out.slots.mean_used * 1000.0).round()), (2, 1400.0));
    assert_eq!(out.busy, 1.0);
}

#[test]
fn requests_that_never_get_an_answer_are_reported_and_the_run_ends() {
    let serving = Serving { slots: 1, idle: None, ..Serving::default() };
    let report = run(
        workload(vec![arrival(0, 0, true, false), arrival(1, 1, true, false)]),
        serving,
        flat(),
        named(&["oldest"]),
    );
    assert_eq!((report.runs[0].answered, report.runs[0].unanswered), (1, 1));
    assert!(report.table().contains("oldest: 1 request never had an answer"), "{}", report.table());
}

#[test]
fn requests_past_their_deadline_are_rejected_if_configured() {
    let mut arrivals: Vec<Arrival> = (0..3).map(|n| arrival(0, n, true, true)).collect();
    arrivals.iter_mut().for_each(|a| a.within = Some(Duration::from_millis(3)));
    let serving = Serving { max_batch: 1, expire: Expire::Reject, ..Serving::default() };
    let report = run(workload(arrivals), serving, flat(), named(&["oldest"]));
    let out = &report.runs[0];
    // 0..2 answered in time; 2..4 too late; the third is refused at 3.
    assert_eq!((out.answered, out.rejected, out.deadlines.map(|d| d.missed)), (2, 1, Some(2)));
    assert_eq!(out.rejected_by_reason, [("queue_expired", 1)].into());
}

#[test]
fn the_backlog_has_levels() {
    // One slot, 2 ms a batch. At 0 sequence 0 runs; 1 (level 2), 2 (no priority, so the last level) and 3 (level 1) wait.
    let waiting = [(0, 0), (1, 2), (2, 0), (3, 1)];
    let arrivals: Vec<Arrival> = waiting
        .into_iter()
        .map(|(sequence, priority)| Arrival { priority, ..arrival(u64::from(sequence > 0), sequence, true, true) })
        .collect();
    let answered = |backlog_levels| {
        let serving = Serving { slots: 1, max_batch: 1, backlog_levels, ..Serving::default() };
        let workload = workload(arrivals.iter().map(|a| Arrival { within: Some(in_time(a.sequence)), ..*a }).collect());
        run(workload, serving, flat(), named(&["oldest"])).runs[0].deadlines.map(|of| of.missed)
    };
    // By levels: 3 at 4 ms, 1 at 6 ms, 2 at 8 ms. In the order of arrival: 1 at 4 ms, 2 at 6 ms, 3 at 8 ms.
    assert_eq!((answered(3), answered(0)), (Some(0), Some(1)));
}

/// The time by which a sequence is answered if the backlog has levels.
fn in_time(sequence: u32) -> Duration {
    Duration::from_millis([2, 5, 7, 3][sequence as usize])
}

#[test]
fn direct_pays_for_the_rows_it_pads() {
    let arrivals = vec![arrival(0, 0, true, false), arrival(0, 1, true, false), arrival(5, 1, false, false)];
    let costs = costs("[[point]]\nbatch = 1\nmicros = 1000\n[[point]]\nbatch = 2\nmicros = 2000\n");
    let serving = Serving { slots: 4, max_batch: 4, ..Serving::default() };
    let report = run(workload(arrivals), serving, costs, named(&["oldest", "direct"]));
    let most: Vec<(f64, f64)> = report.runs.iter().map(|r| (r.batches.rows_per_request, r.answer.p50_us)).collect();
    assert_eq!(most, [(1.0, 2000.0), (4.0 / 3.0, 2000.0)]);
    assert_eq!(report.runs.iter().map(|r| r.answer.mean_us.round()).collect::<Vec<_>>(), [1667.0, 2000.0]);
}

// === policies ===

const MIXED: &str = r#"
for = "20s"
[serve]
slots = 512
max_batch = 8
[[poisson]]
rate = "2600/s"
sequences = 300
steps = 200
deadline = "8ms"
tenant = "live"
[[bursts]]
every = "250ms"
size = 120
sequences = 150
deadline = "150ms"
tenant = "batch"
"#;

#[test]
fn the_earliest_deadline_first_misses_fewer_than_the_oldest_first() {
    let file = WorkloadFile::read(Path::new("mixed.toml"), MIXED).unwrap();
    let serving = file.serve.clone().resolve().unwrap();
    let report = run(file.workload(1).unwrap(), serving, Costs::default(), named(&["oldest", "edf"]));
    let missed: Vec<f64> = report.runs.iter().filter_map(|r| r.deadlines).map(|d| d.share).collect();
    assert!(missed[1] < missed[0] / 2.0 && missed[0] > 0.01, "{missed:?}\n{}", report.table());
}

#[test]
fn every_policy_answers_every_request_once() {
    let text = "for = \"5s\"\n[[talkers]]\nsequences = 12\njitter = \"3ms\"\n[[poisson]]\nrate = \"200/s\"\nsequences = 4\nsteps = 30\n";
    let serving = Serving { slots: 16, max_batch: 16, ..Serving::default() };
    let report = run(made(text, 3), serving, Costs::default(), named(&["oldest", "direct", "deadline"]));
    for run in &report.runs {
        let rows: u64 = run.batches.sizes.iter().map(|(size, n)| u64::from(*size) * n).sum();
        assert_eq!(
            (run.answered, rows, run.rejected, run.unanswered),
            (run.requests, run.requests, 0, 0),
            "{}",
            run.policy
        );
    }
}

#[test]
fn more_instances_wait_less() {
    let text = "for = \"5s\"\n[[poisson]]\nrate = \"4000/s\"\nsequences = 100\nsteps = 50\n";
    let serving = Serving { instances: vec![1, 2, 4], max_batch: 4, ..Serving::default() };
    let report = run(made(text, 1), serving, Costs::default(), named(&["oldest"]));
    let waits: Vec<f64> = report.runs.iter().map(|r| r.wait.p50_us).collect();
    assert!(waits[0] > waits[1] && waits[1] > waits[2], "{waits:?}");
    assert!(report.table().starts_with("POLICY  INSTANCES  BATCH"), "{}", report.table());
}

/// Runs the newest first, one at a time, and takes backlogged sequences in the order shown.
#[derive(Debug)]
struct Newest;

impl Policy for Newest {
    fn hooks(&self) -> Hooks {
        Hooks { plan: true, admit: true, columns: columns::ARRIVAL, ..Hooks::default() }
    }

    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
        picks.fire.extend((0..see.len).max_by_key(|i| see.arrival[*i as usize]));
        Ok(Decision::Fire)
    }

    fn admit(&mut self, see: &Columns, room: &[u32], _: &Columns) -> Result<Vec<Admission>, PolicyFault> {
        let free = room.iter().sum::<u32>().min(see.len);
        Ok((0..free).map(|_| Admission::Take { instance: 0 }).collect())
    }
}

impl SimPolicy for Newest {}

#[test]
fn an_external_policy_decides_and_its_decision_time_counts() {
    // Admission 1 ms, a plan 1 ms, a run 2 ms: at 2 the newest of the first three (the last in order) is chosen, at 4 they have run.
    let arrivals: Vec<Arrival> =
        [(0, 0), (0, 1), (1, 2)].into_iter().map(|(at, s)| arrival(at, s, true, true)).collect();
    let costs = flat().with_plan(super::cost::PolicyCost { micros: 1000.0, ..super::cost::PolicyCost::default() });
    let policies = vec![ComparedPolicy::external("newest", || Box::new(Newest))];
    let report = run(workload(arrivals), Serving::default(), costs, policies);
    let out = &report.runs[0];
    assert_eq!((out.answered, out.batches.mean, out.rounds.map(|r| (r.fallbacks, r.faults))), (3, 1.0, Some((0, 0))));
    // Seated at 1; asked 1..2; ran 2..4; asked 4..5; ran 5..7; asked 7..8.
    assert_eq!((out.wait.p50_us, out.wait.most_us), (4000.0, 8000.0), "{}", report.table());
}

/// Answers with indices that were not shown.
#[derive(Debug)]
struct Nonsense;

impl Policy for Nonsense {
    fn hooks(&self) -> Hooks {
        Hooks { plan: true, ..Hooks::default() }
    }

    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
        picks.fire.push(see.len);
        Ok(Decision::Fire)
    }
}

impl SimPolicy for Nonsense {}

#[test]
fn the_built_in_policy_replaces_invalid_answers_and_loses_no_request() {
    let text = "for = \"1s\"\n[[poisson]]\nrate = \"500/s\"\nsequences = 10\n";
    let policies =
        || vec![ComparedPolicy::named("oldest").unwrap(), ComparedPolicy::external("nonsense", || Box::new(Nonsense))];
    let report = run(made(text, 1), Serving::default(), Costs::default(), policies());
    let [oldest, nonsense] = &report.runs[..] else { panic!("two runs") };
    assert_eq!((nonsense.answered, nonsense.wait), (oldest.answered, oldest.wait));
    let rounds = nonsense.rounds.unwrap();
    assert_eq!((rounds.fallbacks, rounds.faults), (nonsense.batches.count, nonsense.batches.count));
}

// === the same bytes ===

const CROWD: &str = r#"
for = "10s"
[[talkers]]
sequences = 40
jitter = "4ms"
deadline = "40ms"
tenants = { count = 6, zipf = 1.2 }
[[poisson]]
rate = "300/s"
sequences = 20
steps = 40
tenant = "t1"
"#;

fn crowd(seed: u64) -> SimulationReport {
    let serving = Serving { instances: vec![1, 2], slots: 64, max_batch: 32, ..Serving::default() };
    let experiment = Experiment {
        workload: made(CROWD, seed),
        serving,
        costs: Costs::default().with_jitter(0.2),
        policies: named(&["oldest", "direct", "edf"]),
        seed,
    };
    experiment.run()
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_seed_another_report() {
    let (a, b, other) = (crowd(1), crowd(1), crowd(2));
    assert_eq!((a.head() + &a.table(), a.json(), a.html()), (b.head() + &b.table(), b.json(), b.html()));
    assert_ne!(a.table(), other.table());
    assert_ne!(a.json(), other.json());
}

#[test]
fn the_html_report_has_no_external_references() {
    let page = crowd(1).html();
    assert_eq!(page.matches("<svg").count(), 4);
    for foreign in ["<script", "http:", "https:", "src=", "@import", "url(", "NaN", "inf\""] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn the_text_report_matches_its_snapshot() {
    let report = crowd(1);
    insta::assert_snapshot!(report.head() + "\n" + &report.table());
}
