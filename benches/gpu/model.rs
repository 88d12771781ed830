//! Loads a model on the real runtime, on the CPU or on GPUs, and sends requests of its sequences.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sequor::error::Failure;
use sequor::model::{
    Availability, InferAnswer, InferRequest, Metadata, NamedTensor, Pending, Repository, RepositoryOptions,
    SequenceStep, Tensor,
};
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dialect, Dim, Id, Shape};
use tempfile::TempDir;

use crate::Terms;

/// The processor of the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Cpu,
    Gpu,
}

pub(crate) struct LoadedModel {
    pub(crate) repository: Repository,
    pub(crate) model: String,
    pub(crate) metadata: Arc<Metadata>,
    _folder: TempDir,
}

impl LoadedModel {
    /// A model of the repository, with its instances on this processor.
    pub(crate) fn of_repository(terms: &Terms, name: &str, on: On) -> LoadedModel {
        let folder = TempDir::new().unwrap();
        let target = folder.path().join(name);
        copy(&terms.root.join("models").join(name), &target);
        let file = target.join("config.pbtxt");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("KIND_CPU"), "{name} does not say where it runs");
        std::fs::write(file, patient(&placed(terms, &text, on))).unwrap();
        LoadedModel::load(terms, folder, name, 2)
    }

    /// A graph with this configuration, and at most `depth` batches in flight.
    pub(crate) fn of_graph(terms: &Terms, graph: &str, config: &str, on: On, depth: u8) -> LoadedModel {
        let folder = TempDir::new().unwrap();
        let version = folder.path().join("m/1");
        std::fs::create_dir_all(&version).unwrap();
        std::fs::copy(terms.root.join(graph), version.join("model.onnx")).unwrap();
        let text = format!("instance_group {{ kind: KIND_CPU count: 1 }}\n{config}");
        std::fs::write(folder.path().join("m/config.pbtxt"), placed(terms, &text, on)).unwrap();
        LoadedModel::load(terms, folder, "m", depth)
    }

    fn load(terms: &Terms, folder: TempDir, name: &str, depth: u8) -> LoadedModel {
        let accelerators = Arc::new(terms.gpus.clone());
        let options = RepositoryOptions { reply_pool: 64 << 20, accelerators, depth, ..RepositoryOptions::default() };
        let repository = Repository::new(Arc::clone(&terms.backend), options, Metrics::new(false)).unwrap();
        repository.load(&folder.path().join(name));
        match repository.statuses().pop().unwrap().availability {
            Availability::Ready(_) => {}
            Availability::Failed(why) => panic!("{name}: {why:?}"),
        }
        let metadata = repository.find(name, "").unwrap().metadata();
        LoadedModel { repository, model: name.to_owned(), metadata, _folder: folder }
    }

    pub(crate) fn send(&self, id: u64, start: bool, end: bool, inputs: Vec<NamedTensor>) -> Result<Pending, Failure> {
        self.repository.submit(InferRequest {
            model: self.model.clone(),
            version: String::new(),
            id: String::new(),
            sequence: SequenceStep { id: Id::Int(id), start, end, ..SequenceStep::default() },
            priority: 0,
            timeout: None,
            inputs,
            outputs: Vec::new(),
            parameters: Vec::new(),
            dialect: Dialect::TRITON,
        })
    }

    /// Random inputs for the model; open dimensions are 3.
    pub(crate) fn inputs(&self, random: &mut Random) -> Vec<NamedTensor> {
        let input = |input: &sequor::model::TensorMetadata| {
            let dims = input.dims.0.iter().enumerate().map(|(n, dim)| match dim {
                Dim::Fixed(size) => *size,
                Dim::Any => {
                    if n == 0 {
                        1
                    } else {
                        3
                    }
                }
            });
            let shape = Shape(dims.collect());
            let count = usize::try_from(shape.elements().unwrap()).unwrap();
            let data: Vec<u8> = (0..count).flat_map(|_| element(input.dtype, random)).collect();
            NamedTensor {
                name: input.name.clone(),
                tensor: Tensor { dtype: input.dtype, shape, data: Bytes::from(data) },
            }
        };
        self.metadata.inputs.iter().map(input).collect()
    }
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

fn placed(terms: &Terms, text: &str, on: On) -> String {
    match on {
        On::Gpu if !terms.rehearse => text.replace("kind: KIND_CPU", "kind: KIND_GPU gpus: 0"),
        _ => text.to_owned(),
    }
}

/// The configuration with an idle time of ten minutes. The first run on a GPU loads libraries and takes seconds, while other sequences
/// wait.
fn patient(text: &str) -> String {
    let line = |line: &str| match line.split_once("max_sequence_idle_microseconds:") {
        Some((before, _)) => format!("{before}max_sequence_idle_microseconds: 600000000\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            std::fs::copy(source, target).unwrap();
        }
    }
}

fn element(dtype: DataType, random: &mut Random) -> Vec<u8> {
    match dtype {
        DataType::Fp32 => ((random.below(2000) as f32 - 1000.0) / 1000.0).to_le_bytes().to_vec(),
        DataType::Int32 => (random.below(10) as i32).to_le_bytes().to_vec(),
        DataType::Int64 => (random.below(10) as i64).to_le_bytes().to_vec(),
        other => panic!("no input of {other} is drawn here"),
    }
}

/// A splitmix64 generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// The largest difference between the numbers of two answers; relative for numbers above 1. `None` if the answers have different tensors,
/// or tensors without numbers.
pub(crate) fn distance(a: &InferAnswer, b: &InferAnswer) -> Option<f64> {
    let mut farthest = 0.0f64;
    if a.outputs.len() != b.outputs.len() {
        return None;
    }
    for (a, b) in a.outputs.iter().zip(&b.outputs) {
        let (a, b) = (&a.tensor, &b.tensor);
        if a == b {
            continue;
        }
        if (a.dtype, &a.shape) != (b.dtype, &b.shape) || a.dtype != DataType::Fp32 {
            return None;
        }
        for (x, y) in a.data.as_chunks::<4>().0.iter().zip(b.data.as_chunks::<4>().0) {
            let (x, y) = (f64::from(f32::from_le_bytes(*x)), f64::from(f32::from_le_bytes(*y)));
            let apart = (x - y).abs() / x.abs().max(1.0);
            farthest = if apart.is_nan() { return None } else { farthest.max(apart) };
        }
    }
    Some(farthest)
}
