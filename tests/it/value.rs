//! Shows the value of a plug-in in the simulator: the same requests under `oldest` and under a guest. The load is nine tenths of an
//! instance's capacity, and then beyond it. `cargo bench --bench value` does the same live.

use std::path::Path;

use sequor::simulate::file::WorkloadFile;
use sequor::simulate::outcome::{Outcome, Tenant};
use sequor::simulate::{ComparedPolicy, Costs, Experiment, PluginSpec};
use sequor_wasm::limits::Limits;

use crate::operator::guest;

const COST: &str = include_str!("../../benches/value/cost.toml");
const DEADLINES: &str = include_str!("../../benches/value/deadlines.toml");
const QUIET: &str = include_str!("../../benches/value/quiet.toml");
const SLOTS: &str = include_str!("../../plugins/guests/fair-share/cases/slots.toml");
const LOUD: &str = include_str!("../../benches/value/loud.toml");

/// The outcomes of these requests under `oldest` and under a guest.
fn fares(workload: &str, plugin: &str) -> [Outcome; 2] {
    let file = WorkloadFile::read(Path::new("x.toml"), workload).unwrap();
    let plug = PluginSpec::new(&format!("{plugin}.wasm"), &guest(plugin), "{}", Limits::default(), None).unwrap();
    let experiment = Experiment {
        workload: file.workload(1).unwrap(),
        serving: file.serve.resolve().unwrap(),
        costs: Costs::read(Path::new("cost.toml"), COST).unwrap(),
        policies: vec![ComparedPolicy::named("oldest").unwrap(), ComparedPolicy::plugin(plugin, plug)],
        seed: 1,
    };
    experiment.run().runs.try_into().unwrap()
}

fn quiet(outcome: &Outcome) -> &Tenant {
    outcome.tenants.iter().find(|tenant| tenant.name == "quiet").unwrap()
}

#[test]
fn the_edf_scheduler_misses_fewer_deadlines_than_the_oldest_policy() {
    let [oldest, edf] = fares(DEADLINES, "edf");
    assert!((0.85..0.95).contains(&(oldest.batches.mean / 8.0)) || oldest.busy > 0.85, "{}", oldest.busy);
    let missed = |outcome: &Outcome| outcome.deadlines.unwrap().missed;
    println!("value: {} deadlines missed by oldest, {} by edf, of {}", missed(&oldest), missed(&edf), oldest.requests);
    assert!(missed(&oldest) >= 100, "too few to tell: {}", missed(&oldest));
    assert!(missed(&edf) as f64 <= 0.7 * missed(&oldest) as f64, "{} of {}", missed(&edf), missed(&oldest));
    let rounds = edf.rounds.unwrap();
    assert_eq!((rounds.faults, rounds.fallbacks, edf.unanswered), (0, 0, 0));
}

#[test]
fn fair_share_protects_a_quiet_tenants_wait_from_a_loud_tenant() {
    let [alone, _] = fares(QUIET, "fair-share");
    let [oldest, fair] = fares(LOUD, "fair-share");
    let p99 = |outcome: &Outcome| quiet(outcome).wait.p99_us / 1e3;
    println!(
        "value: p99 wait of the quiet tenant: {:.1} ms alone, {:.1} ms beside the loud one with fair-share, {:.1} ms with oldest",
        p99(&alone),
        p99(&fair),
        p99(&oldest)
    );
    assert!(p99(&fair) <= 1.3 * p99(&alone), "{} of {}", p99(&fair), p99(&alone));
    assert!(p99(&oldest) > 10.0 * p99(&alone), "else there is nothing to be had: {}", p99(&oldest));
    let rounds = fair.rounds.unwrap();
    assert_eq!((rounds.faults, rounds.fallbacks, fair.unanswered), (0, 0, 0));
}

#[test]
fn fair_share_shortens_a_quiet_tenants_wait_if_a_loud_one_holds_all_slots() {
    let [oldest, fair] = fares(SLOTS, "fair-share");
    let p99 = |outcome: &Outcome| quiet(outcome).wait.p99_us / 1e3;
    println!(
        "value: slots run out: p99 wait of the quiet tenant {:.0} ms with fair-share, {:.0} ms with oldest",
        p99(&fair),
        p99(&oldest)
    );
    assert!(p99(&oldest) > 1000.0, "else there is nothing to be had: {}", p99(&oldest));
    assert!(p99(&fair) < p99(&oldest) / 5.0, "{} of {}", p99(&fair), p99(&oldest));
    let rounds = fair.rounds.unwrap();
    assert_eq!((rounds.faults, rounds.fallbacks), (0, 0));
}
