//! A case of a state initializer: the tensors of its model, the STARTs, and the expected first state of each sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::author::AuthorError;
use crate::author::processor::case::{CasePort, port};
use crate::author::processor::data::DataSource;
use crate::config::toml_file;
use crate::initializing::InitializerPorts;
use crate::processing::{PortTensors, TensorPort};

/// A file of `cases/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartsFile {
    model: StartsModel,
    /// The table `config` of `[plugins.initializer]`.
    #[serde(default)]
    config: toml::Table,
    /// Files of `[plugins.initializer]`, beside the case.
    #[serde(default)]
    files: Vec<String>,
    start: Vec<CaseStart>,
}

/// The tensors of the model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartsModel {
    states: BTreeMap<String, CasePort>,
    /// Inputs of a step; also of requests, unless `request` lists those.
    #[serde(default)]
    inputs: BTreeMap<String, CasePort>,
    request: Option<BTreeMap<String, CasePort>>,
}

/// A START.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseStart {
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    #[serde(default)]
    pub numbers: BTreeMap<String, f64>,
    /// Data by input of a request.
    #[serde(default)]
    send: BTreeMap<String, DataSource>,
    pub expect: Option<StartExpect>,
}

/// The expected first state of a sequence. Absent keys are not checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartExpect {
    /// The state is the default of config.pbtxt.
    #[serde(default)]
    pub default: bool,
    /// Values of states. The answer must have no other states.
    pub states: Option<BTreeMap<String, DataSource>>,
    /// The id of the sequence from which the state is copied.
    pub copy_of: Option<String>,
    /// The name of the kept state.
    pub kept: Option<String>,
    /// The number of steps that lead to the kept state.
    pub steps: Option<usize>,
    /// The inputs of all steps, joined.
    #[serde(default)]
    pub inputs: BTreeMap<String, DataSource>,
    /// The code of an expected refusal.
    pub refused: Option<u32>,
}

/// A parsed case.
#[derive(Debug)]
pub struct InitializerCase {
    pub path: PathBuf,
    pub ports: InitializerPorts,
    /// The configuration as JSON.
    pub config: String,
    pub files: Vec<String>,
    pub starts: Vec<CaseStart>,
    /// Names of the keys and numbers of all STARTs.
    pub keys: Vec<String>,
    pub numbers: Vec<String>,
}

impl InitializerCase {
    /// Reads a case.
    pub fn read(path: &Path) -> Result<InitializerCase, AuthorError> {
        let text = std::fs::read_to_string(path).map_err(|e| AuthorError::file(path, e))?;
        let file: StartsFile = toml_file::read(path, &text).map_err(|fault| AuthorError::Text(fault.to_string()))?;
        let wrong = |what: String| AuthorError::file(path, what);
        let StartsFile { model: StartsModel { states, inputs, request }, config, files, start: starts } = file;
        let request = request.unwrap_or_else(|| inputs.clone());
        let ports = InitializerPorts {
            states: ports(states, true).map_err(wrong)?,
            request: ports(request, false).map_err(wrong)?,
            step: ports(inputs, false).map_err(wrong)?,
        };
        let config = serde_json::to_string(&config).map_err(|e| wrong(e.to_string()))?;
        let names = |of: fn(&CaseStart) -> Vec<String>| -> Vec<String> {
            starts.iter().flat_map(of).collect::<BTreeSet<String>>().into_iter().collect()
        };
        let (keys, numbers) = (
            names(|start| start.keys.keys().cloned().collect()),
            names(|start| start.numbers.keys().cloned().collect()),
        );
        Ok(InitializerCase { path: path.to_owned(), ports, config, files, starts, keys, numbers })
    }

    /// The folder of the case's files.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The input tensors of a START. The error names the input.
    pub fn inputs(&self, start: &CaseStart) -> Result<PortTensors, String> {
        if let Some(name) = start.send.keys().find(|name| self.ports.request.iter().all(|port| port.name != **name)) {
            return Err(format!("send: clients send no \"{name}\""));
        }
        let one = |port: &TensorPort| {
            let Some(source) = start.send.get(&port.name) else { return Ok(None) };
            let data = source.read(self.folder(), port.dtype)?;
            data.part(port, 0, data.rows()).map(Some)
        };
        self.ports.request.iter().map(one).collect()
    }
}

fn ports(of: BTreeMap<String, CasePort>, optional: bool) -> Result<Vec<TensorPort>, String> {
    let of_start = |of| port(of).map(|port| TensorPort { optional: optional || port.optional, ..port });
    of.into_iter().map(of_start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_names_states_starts_and_expectations() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let text = "[model.states.h]\ntype = \"FP32\"\nshape = [2]\n[model.inputs.x]\ntype = \"INT32\"\nshape = [1, -1]\n\
                    [[start]]\nkeys = { tenant = \"a\" }\nsend = { x = [1, 2] }\nexpect = { states = { h = [0.5, 1] } }\n\
                    [[start]]\nnumbers = { size = 2 }\nexpect = { kept = \"p\", steps = 3 }\n";
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            InitializerCase::read(&path).map_err(|e| e.to_string())
        };
        let case = read(text).unwrap();
        assert_eq!((&case.keys[..], &case.numbers[..]), (&["tenant".to_owned()][..], &["size".to_owned()][..]));
        let x = case.inputs(&case.starts[0]).unwrap();
        assert_eq!(x[0].as_ref().unwrap().shape.0, [1, 2]);
        assert_eq!(case.inputs(&case.starts[1]), Ok(vec![None]));
        assert_eq!(case.starts[1].expect.as_ref().and_then(|expect| expect.steps), Some(3));
        for (from, to, fault) in [
            ("FP32", "FP31", "FP31 is no type of tensors"),
            ("steps", "step", "a.toml:13:"),
            ("send = { x", "send = { y", "send: clients send no \"y\""),
        ] {
            let message = read(&text.replace(from, to)).and_then(|case| case.inputs(&case.starts[0]).map(|_| case));
            assert!(message.as_ref().unwrap_err().contains(fault), "{message:?}");
        }
    }
}
