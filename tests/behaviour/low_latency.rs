//! The low latency transformation: the graph of recurrent nodes keeps its states. A sequence in parts gives the same bits as the whole
//! sequence.

use std::path::{Path, PathBuf};

use sequor::config::ovms::layout::{VersionFiles, write};
use sequor::config::ovms::model::OvmsSequences;
use sequor::config::ovms::{DEFAULT_SCAN_MINUTES, OvmsModel};

use crate::support::play::Answer;
use crate::support::values::tensor;
use crate::support::{Server, model};

const FEATURES: usize = 3;
const STEPS: usize = 12;

fn graph() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/recurrent.onnx")
}

/// Serves the model as OVMS names it, laid out as a directory of a repository.
fn transformed() -> Server {
    let (base, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs_err::create_dir(base.path().join("1")).unwrap();
    fs_err::copy(graph(), base.path().join("1/net.onnx")).unwrap();
    let stateful =
        OvmsSequences { idle_sequence_cleanup: true, max_sequence_number: 500, low_latency_transformation: true };
    let ovms = OvmsModel {
        name: "speech".to_owned(),
        base_path: base.path().to_owned(),
        nireq: None,
        version_policy: None,
        stateful: Some(stateful),
        unsupported: None,
    };
    write(folder.path(), &[ovms], DEFAULT_SCAN_MINUTES, VersionFiles::Copy).unwrap();
    let read = |name: &str| fs_err::read(folder.path().join("speech").join(name)).unwrap();
    let spec = model("speech").config(&String::from_utf8(read("config.pbtxt")).unwrap());
    spec.file("sequor.toml", &read("sequor.toml")).file("1/model.onnx", &read("1/model.onnx")).serve()
}

/// Serves the original graph.
fn plain() -> Server {
    let config = r#"backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: [ -1, 1, 3 ] }
        output [ { name: "g" data_type: TYPE_FP32 dims: [ -1, 1, 5 ] }, { name: "y" data_type: TYPE_FP32 dims: [ -1, 1, 2 ] } ]"#;
    model("plain").config(config).file("1/model.onnx", &fs_err::read(graph()).unwrap()).serve()
}

/// A sequence of multiples of 1/256. The RNN's sums are exact for these; otherwise its kernel rounds one step differently from many.
fn sequence(seed: u32) -> Vec<f32> {
    let mut random = seed;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((random >> 16) % 512) as f32 / 256.0 - 1.0
    };
    (0..STEPS * FEATURES).map(|_| next()).collect()
}

const OUTPUTS: [&str; 2] = ["g", "y"];

fn gather(answer: &Answer, to: &mut [Vec<f32>; 2]) {
    for (output, to) in OUTPUTS.into_iter().zip(to) {
        to.extend(answer.output::<f32>(output));
    }
}

/// Compares both outputs bit by bit.
#[track_caller]
fn same(got: &[Vec<f32>; 2], whole: &Answer, what: &str) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for (output, got) in OUTPUTS.into_iter().zip(got) {
        assert_eq!(bits(got), bits(&whole.output::<f32>(output)), "{what}, {output}");
    }
}

fn part(values: &[f32]) -> sequor::model::Tensor {
    tensor(&[(values.len() / FEATURES) as u64, 1, FEATURES as u64], values)
}

#[test]
fn a_sequence_in_parts_has_the_outputs_of_the_whole_sequence() {
    let (plain, server) = (plain(), transformed());
    for (id, parts) in (1u64..).zip([vec![STEPS], vec![1; STEPS], vec![5, 1, 4, 2], vec![2, 10]]) {
        let values = sequence(id as u32);
        let whole = plain.stateless().with("x", part(&values)).answer();
        let (seq, mut at, mut got) = (server.seq(id), 0, [Vec::new(), Vec::new()]);
        for steps in &parts {
            let ask = if at == 0 { seq.start() } else { seq.step() };
            let answer = ask.with("x", part(&values[at * FEATURES..(at + steps) * FEATURES])).answer();
            gather(&answer, &mut got);
            at += steps;
        }
        same(&got, &whole, &format!("{parts:?}"));
    }
}

#[test]
fn sequences_are_independent_and_a_start_resets_the_state() {
    let (plain, server) = (plain(), transformed());
    let all: Vec<(u64, Vec<f32>)> = (1..=5).map(|id| (id, sequence(id as u32))).collect();
    for round in 0..2 {
        let mut got = vec![[Vec::new(), Vec::new()]; all.len()];
        for step in 0..STEPS {
            for ((id, values), got) in all.iter().zip(&mut got) {
                let seq = server.seq(*id);
                let ask = match step {
                    0 => seq.start(),
                    step if step + 1 == STEPS => seq.end(),
                    _ => seq.step(),
                };
                let answer = ask.with("x", part(&values[step * FEATURES..(step + 1) * FEATURES])).answer();
                gather(&answer, got);
            }
        }
        for ((id, values), got) in all.iter().zip(got) {
            let whole = plain.stateless().with("x", part(values)).answer();
            same(&got, &whole, &format!("round {round}, sequence {id}"));
        }
    }
}

#[test]
fn clients_see_neither_states_nor_controls() {
    let server = transformed();
    let metadata = server.repository.find("speech", "").unwrap().metadata();
    let names =
        |ports: &[sequor::model::TensorMetadata]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&metadata.inputs), names(&metadata.outputs)),
        (vec!["x".to_owned()], vec!["g".to_owned(), "y".to_owned()])
    );
    assert_eq!(server.ready().slots, 500);
}
