//! A case of a processor: the inputs of a sequence and their packets, the model's tensors, and the expected results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sequor_core::{DataType, Dims};
use serde::Deserialize;

use super::data::{CaseData, DataSource};
use crate::author::AuthorError;
use crate::config::toml_file;
use crate::processing::{TensorPort, TensorSignature};

/// A file of `cases/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    model: CaseModel,
    /// The table `config` of `[[plugins.processor]]`.
    #[serde(default)]
    config: toml::Table,
    /// Files of `[[plugins.processor]]`, beside the case.
    #[serde(default)]
    files: Vec<String>,
    /// Data of the sequence, by input.
    #[serde(default)]
    send: BTreeMap<String, DataSource>,
    /// Sizes of packets; if empty, one packet with all data.
    #[serde(default)]
    packets: Vec<PacketEntry>,
    #[serde(default)]
    end: CaseEnd,
    #[serde(default)]
    expect: CaseExpect,
}

/// The model behind the processor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseModel {
    inputs: BTreeMap<String, CasePort>,
    outputs: BTreeMap<String, CasePort>,
}

/// A tensor of the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::author) struct CasePort {
    #[serde(rename = "type")]
    dtype: String,
    shape: Vec<i64>,
    #[serde(default)]
    optional: bool,
    /// For an output: one row for each run; zeros if absent.
    values: Option<DataSource>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum PacketEntry {
    Rows(u64),
    Text(String),
}

/// The expected results. Absent keys are not checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseExpect {
    /// Number of runs of the model.
    pub runs: Option<usize>,
    /// All runs joined, by input of the model.
    #[serde(default)]
    pub inputs: BTreeMap<String, DataSource>,
    /// All answers joined, by output.
    #[serde(default)]
    pub outputs: BTreeMap<String, DataSource>,
    /// Maximum difference of floating-point elements; 0 compares bits.
    #[serde(default)]
    pub tolerance: f64,
    /// The code of the expected refusal, which ends the case.
    pub refused: Option<u32>,
}

/// The request that ends the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseEnd {
    /// A separate request without inputs.
    #[default]
    Alone,
    /// The request with the last packet.
    Last,
}

/// The size of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketSize {
    Whole,
    Rows(u64),
    /// Milliseconds of sound.
    Millis(u32),
}

/// A parsed case.
#[derive(Debug)]
pub struct ProcessorCase {
    pub path: PathBuf,
    /// The model's inputs and outputs.
    pub model: TensorSignature,
    /// The model's answers: for each output, one row a run.
    pub answers: Vec<Option<CaseData>>,
    /// The configuration as JSON.
    pub config: String,
    pub files: Vec<String>,
    pub send: BTreeMap<String, DataSource>,
    pub packets: Vec<PacketSize>,
    pub end: CaseEnd,
    pub expect: CaseExpect,
}

impl ProcessorCase {
    /// Reads a case.
    pub fn read(path: &Path) -> Result<ProcessorCase, AuthorError> {
        let text = std::fs::read_to_string(path).map_err(|e| AuthorError::file(path, e))?;
        let file: CaseFile = toml_file::read(path, &text).map_err(|fault| AuthorError::Text(fault.to_string()))?;
        let wrong = |what: String| AuthorError::file(path, what);
        let CaseFile { model, config, files, send, packets, end, expect } = file;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut answers = Vec::with_capacity(model.outputs.len());
        for (name, port) in &model.outputs {
            let dtype = dtype(name, port).map_err(wrong)?;
            let values = port.values.as_ref().map(|values| values.read(folder, dtype)).transpose();
            answers.push(values.map_err(wrong)?);
        }
        let ports = |ports: BTreeMap<String, CasePort>| ports.into_iter().map(port).collect::<Result<Vec<_>, _>>();
        let model = TensorSignature {
            inputs: ports(model.inputs).map_err(wrong)?,
            outputs: ports(model.outputs).map_err(wrong)?,
        };
        let config = serde_json::to_string(&config).map_err(|e| wrong(e.to_string()))?;
        let packets = packets.into_iter().map(packet).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let packets = if packets.is_empty() { vec![PacketSize::Whole] } else { packets };
        Ok(ProcessorCase { path: path.to_owned(), model, answers, config, files, send, packets, end, expect })
    }

    /// The folder of the case's files.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

fn dtype(name: &str, port: &CasePort) -> Result<DataType, String> {
    DataType::from_name(&port.dtype).ok_or_else(|| format!("\"{name}\": {} is no type of tensors", port.dtype))
}

pub(in crate::author) fn port((name, port): (String, CasePort)) -> Result<TensorPort, String> {
    let dtype = dtype(&name, &port)?;
    Ok(TensorPort { name, dtype, dims: Dims::from_wire(&port.shape), optional: port.optional })
}

fn packet(text: PacketEntry) -> Result<PacketSize, String> {
    match text {
        PacketEntry::Rows(0) => Err("a packet has at least one row".to_owned()),
        PacketEntry::Rows(rows) => Ok(PacketSize::Rows(rows)),
        PacketEntry::Text(text) if text == "whole" => Ok(PacketSize::Whole),
        PacketEntry::Text(text) => {
            let millis = text.strip_suffix("ms").and_then(|n| n.trim().parse().ok()).filter(|n| *n > 0);
            millis
                .map(PacketSize::Millis)
                .ok_or_else(|| format!("packets: \"{text}\" is no \"20ms\", no \"whole\" and no number of rows"))
        }
    }
}

impl std::fmt::Display for PacketSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PacketSize::Whole => f.pad("whole"),
            PacketSize::Rows(rows) => f.pad(&rows.to_string()),
            PacketSize::Millis(millis) => f.pad(&format!("{millis} ms")),
        }
    }
}

impl PacketSize {
    /// Rows of a packet, for a tensor with `all` rows.
    pub fn rows(self, all: u64, rate: Option<u32>) -> Result<u64, String> {
        match self {
            PacketSize::Whole => Ok(all.max(1)),
            PacketSize::Rows(rows) => Ok(rows),
            PacketSize::Millis(millis) => {
                let rate = rate.ok_or("packets in milliseconds need a WAV file")?;
                Ok((u64::from(rate) * u64::from(millis) / 1000).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_names_model_packets_and_expectations() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let text = "packets = [\"20ms\", 7, \"whole\"]\nsend = { x = [1, 2] }\n\
                    [model.inputs.x]\ntype = \"INT16\"\nshape = [-1]\n[model.outputs.y]\ntype = \"INT16\"\nshape = [-1]\nvalues = [5]\n";
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            ProcessorCase::read(&path).map_err(|e| e.to_string())
        };
        let case = read(text).unwrap();
        assert_eq!(case.packets, [PacketSize::Millis(20), PacketSize::Rows(7), PacketSize::Whole]);
        assert_eq!((case.packets[0].rows(9, Some(16_000)), case.packets[2].rows(9, None)), (Ok(320), Ok(9)));
        assert_eq!(case.answers[0].as_ref().map(CaseData::rows), Some(1));
        for (from, to, fault) in [
            ("20ms", "20 s", "packets: \"20 s\" is no \"20ms\""),
            ("INT16", "INT17", "INT17 is no type of tensors"),
            ("packets", "packet", "a.toml:1:1: "),
        ] {
            let message = read(&text.replace(from, to)).unwrap_err();
            assert!(message.contains(fault), "{message}");
        }
    }
}
