//! Runs every policy on every number of instances, with the same requests.

use super::compared_policy::ComparedPolicy;
use super::cost::Costs;
use super::decider::SimPolicy;
use super::driver::{self, Setup};
use super::outcome::Outcome;
use super::report::SimulationReport;
use super::serving::Serving;
use super::workload::Workload;

#[derive(Debug)]
pub struct Experiment {
    pub workload: Workload,
    pub serving: Serving,
    pub costs: Costs,
    pub policies: Vec<ComparedPolicy>,
    pub seed: u64,
}

impl Experiment {
    /// Runs all combinations, one after the other.
    pub fn run(&self) -> SimulationReport {
        let runs = self.serving.instances.iter().flat_map(|n| self.policies.iter().map(|policy| (*n, policy)));
        let outcomes = runs.map(|(instances, policy)| self.one(instances, policy)).collect();
        let Experiment { workload, serving, costs, seed, .. } = self;
        SimulationReport::new(workload, serving, costs, *seed, outcomes)
    }

    fn one(&self, instances: u16, compared: &ComparedPolicy) -> Outcome {
        let setup = Setup {
            workload: &self.workload,
            serving: &self.serving,
            spec: self.serving.spec(instances, compared.built_in()),
            costs: &self.costs,
            seed: self.seed,
        };
        let facts = self.workload.facts(self.serving.facts(instances));
        let mut policy = compared.policy(&facts, self.workload.texts());
        let tally = driver::run(&setup, policy.as_deref_mut().map(|p| p as &mut dyn SimPolicy));
        let lines = policy.as_mut().map(|policy| policy.report_lines());
        Outcome::new(&compared.name, instances, lines, &self.workload, tally)
    }
}
