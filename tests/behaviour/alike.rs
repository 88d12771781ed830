//! Real graphs on an accelerator against the same graphs on the host: every answer of every sequence, with steps in batches and alone. The
//! accelerator is a stand-in under ONNX Runtime; `cargo xtask gpu-test` runs the same tests on a GPU.

use std::path::Path;

use bytes::Bytes;
use sequor::device::stand_in::StandIns;
use sequor::model::{Tensor, TensorMetadata};
use sequor_core::{DataType, Dim, Shape};

use crate::support::play::Answer;
use crate::support::server::Spec;
use crate::support::{Server, both, model};

const HOST: &str = "instance_group { kind: KIND_CPU count: 1 }";
const AWAY: &str = "instance_group { kind: KIND_GPU count: 1 }";

/// A graph of tests/models, on the host and on a stand-in.
fn graph(graph: &str, config: &str) -> (Server, Server, StandIns) {
    let of = |group: &str| model("m").config(&format!("{group}\n{config}")).onnx(graph);
    served(of(HOST), of(AWAY))
}

/// A model of the repository, on the host and on a stand-in.
fn repository(name: &str) -> (Server, Server, StandIns) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
    let config = fs_err::read_to_string(folder.join("config.pbtxt")).unwrap();
    assert!(config.contains("kind: KIND_CPU"), "{name} does not say where it runs");
    // A long idle time, because the machine may be slow.
    let idle = config.lines().find(|line| line.contains("max_sequence_idle_microseconds")).unwrap();
    let config = config.replace(idle, "max_sequence_idle_microseconds: 600000000");
    let of = |kind: &str| {
        let spec = model(name).config(&config.replace("kind: KIND_CPU", kind));
        let spec = spec.file("1/model.onnx", &fs_err::read(folder.join("1/model.onnx")).unwrap());
        match fs_err::read(folder.join("sequor.toml")) {
            Ok(toml) => spec.file("sequor.toml", &toml),
            Err(_) => spec,
        }
    };
    served(of("kind: KIND_CPU"), of("kind: KIND_GPU"))
}

fn served(host: Spec, away: Spec) -> (Server, Server, StandIns) {
    let gpus = StandIns::new(1, 1 << 30);
    let away = away.over(&gpus).serve();
    assert_eq!(away.ready().on.as_deref(), Some("GPU 0"));
    (host.serve(), away, gpus)
}

/// A splitmix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    /// A random tensor for this input. Open dimensions are 3, but the batch dimension is 1.
    fn tensor(&mut self, input: &TensorMetadata) -> Tensor {
        let size = |(n, dim): (usize, &Dim)| match dim {
            Dim::Fixed(size) => *size,
            Dim::Any => {
                if n == 0 {
                    1
                } else {
                    3
                }
            }
        };
        let shape = Shape(input.dims.0.iter().enumerate().map(size).collect());
        let element = |random: &mut Random| match input.dtype {
            DataType::Fp32 => ((random.below(2000) as f32 - 1000.0) / 1000.0).to_le_bytes().to_vec(),
            DataType::Int32 => (random.below(10) as i32).to_le_bytes().to_vec(),
            DataType::Bytes => [&1u32.to_le_bytes()[..], &[b'a' + random.below(20) as u8]].concat(),
            other => panic!("nothing of {other} is drawn here"),
        };
        let data: Vec<u8> = (0..shape.elements().unwrap()).flat_map(|_| element(self)).collect();
        Tensor { dtype: input.dtype, shape, data: Bytes::from(data) }
    }
}

/// Plays the same steps on both. The batches differ, so numbers may differ by rounding.
fn play((host, away, _): &(Server, Server, StandIns), sequences: u64, steps: u64) {
    let inputs = host.repository.find(&host.model, "").unwrap().metadata().inputs.clone();
    let mut random = Random(7);
    for step in 0..steps {
        let mut waiting = Vec::new();
        for id in 1..=sequences {
            let (start, end) = (step == 0, step + 1 == steps);
            if !start && !end && random.below(3) == 0 {
                continue;
            }
            let tensors: Vec<Tensor> = inputs.iter().map(|input| random.tensor(input)).collect();
            let send = |server: &Server| {
                let seq = server.seq(id);
                let ask = if start {
                    seq.start()
                } else if end {
                    seq.end()
                } else {
                    seq.step()
                };
                inputs.iter().zip(&tensors).fold(ask, |ask, (input, t)| ask.with(&input.name, t.clone())).send()
            };
            waiting.push((id, send(host), send(away)));
        }
        for (id, on_host, on_gpu) in waiting {
            same(&on_host.answer(), &on_gpu.answer(), &format!("sequence {id}, step {step}"));
        }
    }
    assert_eq!(away.repository.live(), 0);
    away.wait_for_no_state();
}

#[track_caller]
fn same(a: &Answer, b: &Answer, what: &str) {
    assert_eq!(a.0.outputs.len(), b.0.outputs.len(), "{what}");
    for (a, b) in a.0.outputs.iter().zip(&b.0.outputs) {
        assert_eq!((&a.name, &a.tensor.shape, a.tensor.dtype), (&b.name, &b.tensor.shape, b.tensor.dtype), "{what}");
        if a.tensor.dtype != DataType::Fp32 {
            assert_eq!(a.tensor.data, b.tensor.data, "{what}, {}", a.name);
            continue;
        }
        for (x, y) in a.tensor.data.as_chunks::<4>().0.iter().zip(b.tensor.data.as_chunks::<4>().0) {
            let (x, y) = (f32::from_le_bytes(*x), f32::from_le_bytes(*y));
            assert!((x - y).abs() <= 1e-5 * x.abs().max(1.0), "{what}, {}: {x} and {y}", a.name);
        }
    }
}

#[test]
fn repository_models_answer_alike_on_cpu_and_gpu() {
    for name in ["accumulator_int32", "accumulator_fp32", "gru", "vad"] {
        play(&repository(name), 6, 6);
    }
}

#[test]
fn a_transducer_with_four_states_answers_alike_on_cpu_and_gpu() {
    for strategy in both() {
        let config = format!(
            r#"
            max_batch_size: 4
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
            output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 8 ] }}
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              {strategy}
              state {{ input_name: "att_cache" output_name: "new_att_cache" data_type: TYPE_FP32 dims: [ 64, 45, 192 ] }}
              state {{ input_name: "cnn_cache" output_name: "new_cnn_cache" data_type: TYPE_FP32 dims: [ 30, 384, 30 ] }}
              state {{ input_name: "sum_cache" output_name: "new_sum_cache" data_type: TYPE_FP32 dims: [ 15, 384 ] }}
              state {{ input_name: "len_cache" output_name: "new_len_cache" data_type: TYPE_INT64 dims: [ 15 ] }}
            }}
            "#
        );
        play(&graph("transducer", &config), 4, 4);
    }
}

#[test]
fn growing_states_and_their_outputs_are_alike_on_cpu_and_gpu() {
    for strategy in both() {
        let config = format!(
            r#"
            max_batch_size: 4
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }}
            output [ {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] }},
                     {{ name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ -1, 4 ] }} ]
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              {strategy}
              state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ -1, 4 ] }}
            }}
            "#
        );
        play(&graph("grow_fp32", &config), 4, 6);
    }
}

#[test]
fn states_batched_on_axis_1_or_listed_as_outputs_are_alike_on_cpu_and_gpu() {
    for strategy in both() {
        let config = format!(
            r#"
            max_batch_size: 4
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 3 ] }}
            output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2, 3 ] }}
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              {strategy}
              state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ 2, 3 ] }}
            }}
            "#
        );
        let of = |group: &str| {
            let spec = model("m").config(&format!("{group}\n{config}")).onnx("on_axis_1");
            spec.toml("[state.INPUT_STATE]\nbatch_axis = 1\n")
        };
        play(&served(of(HOST), of(AWAY)), 4, 5);
        let config = format!(
            r#"
            max_batch_size: 4
            input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
            output {{ name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ -1 ] }}
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              {strategy}
              state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] }}
            }}
            "#
        );
        play(&graph("sum_int32", &config), 4, 5);
    }
}

#[test]
fn text_states_and_pass_through_states_are_alike_on_cpu_and_gpu() {
    for strategy in both() {
        let texts = format!(
            r#"
            max_batch_size: 4
            input {{ name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] }}
            output {{ name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] }}
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              {strategy}
              state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_STRING dims: [ 1 ] }}
            }}
            "#
        );
        play(&graph("string_state", &texts), 4, 5);
    }
    for (state, listed) in [("-1, 2", r#", { name: "STATE" data_type: TYPE_FP32 dims: [ -1, 2 ] }"#), ("1, 2", "")] {
        let through = format!(
            r#"
            max_batch_size: 0
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 2 ] }}
            output [ {{ name: "BACK" data_type: TYPE_FP32 dims: [ -1 ] }} {listed} ]
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              direct {{ }}
              state {{ input_name: "STATE" output_name: "STATE" data_type: TYPE_FP32 dims: [ {state} ] }}
            }}
            "#
        );
        play(&graph("through", &through), 1, 4);
    }
}
