//! Tests one policy in several languages: fair shares in Rust and in another language. In the simulator, both make the same batches for the
//! same requests. Calls take no simulated time, so a slow language has no disadvantage.

use std::path::Path;

use sequor::simulate::file::WorkloadFile;
use sequor::simulate::{ComparedPolicy, Costs, Experiment, PluginSpec};
use sequor_wasm::cache::{COMPILED, Cache};
use sequor_wasm::limits::Limits;
use serde_json::Value;

use crate::operator::guest;
use crate::python::prepared;

/// A load of tenants with different rates and `slots` slots, with at most as many candidates as the slowest language may see.
fn load(slots: u32) -> String {
    format!(
        "
        for = \"3s\"
        [serve]
        slots = {slots}
        max_batch = 4
        idle = \"500ms\"
        max_wait = \"1h\"
        [[poisson]]
        rate = \"1700/s\"
        sequences = 30
        steps = 40
        tenants = {{ count = 6, zipf = 1.2 }}
        "
    )
}
/// A slot for every sequence; and so few that most sequences wait.
const SLOTS: [u32; 2] = [1024, 8];
const COST: &str = "
    [plan]
    micros = 0
    nanos_each = 0
    instructions_a_micro = 1000000000000
    [[point]]
    batch = 1
    micros = 900
    [[point]]
    batch = 4
    micros = 2200
";

/// The results of a run, without the policy's name and cost.
fn outcome(run: &impl serde::Serialize) -> Value {
    let mut outcome = serde_json::to_value(run).unwrap();
    for key in ["policy", "rounds"] {
        outcome.as_object_mut().unwrap().remove(key);
    }
    outcome
}

/// Checks that the guest in Rust and its twin decide alike: which requests run, and which sequence gets a slot.
fn decides_alike(twin: &str, config: &str) {
    let cache = Cache::new(&prepared("SEQUOR_CACHE").join(COMPILED)).unwrap();
    let plug = |name: &str| {
        let plug =
            PluginSpec::new(&format!("{name}.wasm"), &guest(name), config, Limits::default(), Some(&cache)).unwrap();
        ComparedPolicy::plugin(name, plug)
    };
    for slots in SLOTS {
        let file = WorkloadFile::read(Path::new("x.toml"), &load(slots)).unwrap();
        let experiment = Experiment {
            workload: file.workload(7).unwrap(),
            serving: file.serve.resolve().unwrap(),
            costs: Costs::read(Path::new("cost.toml"), COST).unwrap(),
            policies: vec![ComparedPolicy::named("oldest").unwrap(), plug("fair-share"), plug(twin)],
            seed: 7,
        };
        let runs = experiment.run().runs;
        let [oldest, rust, other] = runs.as_slice() else { panic!("{} runs", runs.len()) };
        for run in [rust, other] {
            let rounds = run.rounds.as_ref().unwrap();
            assert_eq!((rounds.faults, rounds.fallbacks, run.unanswered), (0, 0, 0), "{}", run.policy);
            assert!(rounds.questions > 1000, "{} rounds", rounds.questions);
            assert_eq!(run.slots.share > 0.9, slots == 8, "{} of {slots} slots", run.slots.mean_used);
        }
        assert_eq!(outcome(rust), outcome(other), "{twin}, {slots} slots");
        assert_ne!(outcome(rust), outcome(oldest), "else anything would do");
    }
}

const WEIGHTS: &str = "{\"burst\": 2, \"weights\": {\"t1\": 3, \"t4\": 0.5}}";

#[test]
fn fair_shares_are_the_same_in_python() {
    decides_alike("fair-share-python", WEIGHTS);
}

/// Under `cargo xtask test --all-languages`.
#[test]
fn fair_shares_are_the_same_in_javascript() {
    decides_alike("fair-share-js", WEIGHTS);
}

/// Under `cargo xtask test --all-languages`. This guest has no weights.
#[test]
fn fair_shares_are_the_same_in_c() {
    decides_alike("fair-share-c", "{\"burst\": 2}");
}
