//! A workload described in a TOML file (`--load`): its arrivals, its length and its serving.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::expect::Expect;
use super::serving::ServingOptions;
use super::workload::bursts::Bursts;
use super::workload::flow::{self, Flow};
use super::workload::poisson::Poisson;
use super::workload::talkers::Talkers;
use super::{SimulateError, Workload};
use crate::config::units::Span;
use crate::config::{Fault, fault, toml_file};

/// The file of a workload. Its flows arrive together.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadFile {
    pub seed: Option<u64>,
    #[serde(rename = "for")]
    pub span: Option<Span>,
    pub serve: ServingOptions,
    pub poisson: Vec<Poisson>,
    pub bursts: Vec<Bursts>,
    pub talkers: Vec<Talkers>,
    /// The plug-in's configuration, if the file is a test case.
    pub config: toml::Table,
    /// Expectations of the run, if the file is a test case.
    pub expect: Expect,
}

impl WorkloadFile {
    /// Parses the file and checks every flow.
    pub fn read(path: &Path, text: &str) -> Result<WorkloadFile, SimulateError> {
        let file: WorkloadFile = toml_file::read(path, text)?;
        if file.flows().is_empty() {
            return Err(SimulateError::File {
                path: path.to_owned(),
                what: "nothing arrives: name a flow, as [[poisson]]".to_owned(),
            });
        }
        let mut counts = std::collections::BTreeMap::new();
        for (name, flow) in file.flows() {
            let n: &mut usize = counts.entry(name).or_default();
            if let Err((key, what)) = flow.check() {
                let at = toml_file::place(text, &[name, &n.to_string(), key]).at(path);
                return Err(Fault { at, code: fault::code::VALUE, what }.into());
            }
            *n += 1;
        }
        Ok(file)
    }

    /// Checks flows that come from flags instead of a file.
    pub fn check(&self) -> Result<(), SimulateError> {
        let faults = self.flows().into_iter().map(|(_, flow)| flow.check());
        faults.collect::<Result<(), _>>().map_err(|(_, what)| SimulateError::Given(what))
    }

    /// The workload for this seed.
    pub fn workload(&self, seed: u64) -> Result<Workload, SimulateError> {
        flow::make(&self.flows(), self.span.unwrap_or(Span(Duration::from_secs(60))), seed)
    }

    fn flows(&self) -> Vec<(&'static str, &dyn Flow)> {
        let poisson = self.poisson.iter().map(|f| ("poisson", f as &dyn Flow));
        let bursts = self.bursts.iter().map(|f| ("bursts", f as &dyn Flow));
        let talkers = self.talkers.iter().map(|f| ("talkers", f as &dyn Flow));
        poisson.chain(bursts).chain(talkers).collect()
    }
}
