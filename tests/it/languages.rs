//! One policy in several languages: fair shares in Rust, and the same again. In the simulator the same requests get the same batches, whichever plug-in
//! decides; answers take no time there, so that a slow language is no worse off.

use std::path::Path;

use sequor::simulate::file::WorkloadFile;
use sequor::simulate::{ComparedPolicy, Costs, Experiment, PluginSpec};
use sequor_wasm::cache::{COMPILED, Cache};
use sequor_wasm::limits::Limits;
use serde_json::Value;

use crate::operator::guest;
use crate::python::prepared;

/// Tenants of unlike appetite, so many slots, and no more candidates at a time than the slowest language is shown.
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
/// One for everybody; and few enough that most wait for one.
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

/// What a run comes to, but for who decided and at what price.
fn outcome(run: &impl serde::Serialize) -> Value {
    let mut outcome = serde_json::to_value(run).unwrap();
    for key in ["policy", "rounds"] {
        outcome.as_object_mut().unwrap().remove(key);
    }
    outcome
}

/// The guest in Rust and its twin decide alike: who runs, and who gets a slot.
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
            serving: file.serve.settle().unwrap(),
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

/// Under `cargo xtask test --all-languages`. It knows no weights.
#[test]
fn fair_shares_are_the_same_in_c() {
    decides_alike("fair-share-c", "{\"burst\": 2}");
}
