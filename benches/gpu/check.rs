//! Checks models on a GPU against the same models on the CPU: sums exactly, everything else within 1e-4. Also checks that many sequences
//! and disconnected clients leave nothing behind.

use std::process::ExitCode;
use std::time::Instant;

use sequor::model::InferAnswer;

use crate::Terms;
use crate::model::{LoadedModel, On, Random, distance};

/// Maximum difference of answers; TF32 is off.
const NEAR: f64 = 1e-4;

pub(crate) const TRANSDUCER: &str = r#"
    max_batch_size: BATCH
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 8 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state { input_name: "att_cache" output_name: "new_att_cache" data_type: TYPE_FP32 dims: [ 64, 45, 192 ] }
      state { input_name: "cnn_cache" output_name: "new_cnn_cache" data_type: TYPE_FP32 dims: [ 30, 384, 30 ] }
      state { input_name: "sum_cache" output_name: "new_sum_cache" data_type: TYPE_FP32 dims: [ 15, 384 ] }
      state { input_name: "len_cache" output_name: "new_len_cache" data_type: TYPE_INT64 dims: [ 15 ] }
    }
"#;

const SUM: &str = r#"
    max_batch_size: 256
    input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
    output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      oldest { max_candidate_sequences: 10000 }
      state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] }
    }
"#;

const GROWING: &str = r#"
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      oldest { max_candidate_sequences: 8 }
      state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    }
"#;

/// A model whose state passes through unchanged, with an output of variable length.
const THROUGH: &str = r#"
    max_batch_size: 0
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    output { name: "BACK" data_type: TYPE_FP32 dims: [ -1 ] }
    output { name: "STATE" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      direct { }
      state { input_name: "STATE" output_name: "STATE" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    }
"#;

pub(crate) fn all(terms: &Terms) -> ExitCode {
    let mut failed = 0u32;
    let mut tell = |name: &str, result: Result<String, String>, began: Instant| {
        let (verdict, what) = match result {
            Ok(what) => ("ok", what),
            Err(what) => {
                failed += 1;
                ("FAILED", what)
            }
        };
        println!("{verdict:<7}{name:<44}{what}   {:.1} s", began.elapsed().as_secs_f64());
    };
    // At most as many sequences as candidates: every step waits for the answers of all.
    for (name, near) in [("accumulator_int32", 0.0), ("accumulator_fp32", 0.0), ("gru", NEAR), ("vad", NEAR)] {
        let began = Instant::now();
        let of = |on| LoadedModel::of_repository(terms, name, on);
        tell(name, alike(&of(On::Cpu), &of(On::Gpu), 8, 8, near), began);
    }
    for strategy in ["direct { }", "oldest { max_candidate_sequences: 16 }"] {
        let began = Instant::now();
        let config = TRANSDUCER.replace("STRATEGY", strategy).replace("BATCH", "8");
        let of = |on| LoadedModel::of_graph(terms, "tests/models/transducer.onnx", &config, on, 2);
        tell(&format!("four states, {strategy}"), alike(&of(On::Cpu), &of(On::Gpu), 8, 6, 0.0), began);
    }
    for (name, graph, config, near) in [
        ("a growing state", "tests/models/grow_fp32.onnx", GROWING, (NEAR, 8)),
        // One slot, so no batches.
        ("an output that is an input", "tests/models/through.onnx", THROUGH, (0.0, 1)),
    ] {
        let (near, sequences) = near;
        let began = Instant::now();
        let of = |on| LoadedModel::of_graph(terms, graph, config, on, 2);
        tell(name, alike(&of(On::Cpu), &of(On::Gpu), sequences, 12, near), began);
    }
    let sums = || LoadedModel::of_graph(terms, "tests/models/sum_int32.onnx", SUM, On::Gpu, 2);
    let began = Instant::now();
    tell("10,000 live sequences", many(&sums()), began);
    let began = Instant::now();
    tell("clients that go away", leave(&sums()), began);
    match failed {
        0 => ExitCode::SUCCESS,
        n => {
            eprintln!("gpu: {n} failed");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Plays the same sequences on both, with steps in batches and alone, and compares all answers.
fn alike(cpu: &LoadedModel, gpu: &LoadedModel, sequences: u64, steps: u64, near: f64) -> Result<String, String> {
    let mut random = Random(7);
    let mut farthest = 0.0f64;
    for step in 0..steps {
        let mut waiting = Vec::new();
        for id in 1..=sequences {
            // All sequences start and end, but each skips some steps in between.
            let (start, end) = (step == 0, step + 1 == steps);
            if !start && !end && random.below(3) == 0 {
                continue;
            }
            let inputs = cpu.inputs(&mut random);
            let sent = [cpu, gpu].map(|model| model.send(id, start, end, inputs.clone()));
            waiting.push((id, sent));
        }
        for (id, [on_cpu, on_gpu]) in waiting {
            let answer = |sent: Result<sequor::model::Pending, _>| -> Result<InferAnswer, String> {
                block_on(sent.map_err(|e: sequor::error::Failure| e.to_string())?).map_err(|e| e.to_string())
            };
            let (a, b) = (answer(on_cpu)?, answer(on_gpu)?);
            match distance(&a, &b) {
                Some(by) if by <= near => farthest = farthest.max(by),
                by => return Err(format!("step {step} of sequence {id}: apart by {by:?}, {near} is allowed")),
            }
        }
    }
    Ok(format!("{sequences} sequences of {steps} steps, at most {farthest:.1e} apart"))
}

fn int(model: &LoadedModel, value: i32) -> Vec<sequor::model::NamedTensor> {
    let mut inputs = model.inputs(&mut Random(0));
    inputs[0].tensor.data = bytes::Bytes::copy_from_slice(&value.to_le_bytes());
    inputs
}

fn sum(answer: &InferAnswer) -> i32 {
    i32::from_le_bytes(answer.outputs[0].tensor.data[..4].try_into().unwrap())
}

fn many(model: &LoadedModel) -> Result<String, String> {
    const LIVE: u64 = 10_000;
    let mut runs = 0u64;
    for step in 0..5i32 {
        let sent: Vec<_> =
            (1..=LIVE).map(|id| (id, model.send(id, step == 0, step == 4, int(model, id as i32 % 97)))).collect();
        if step == 0 {
            runs = sent.len() as u64;
        }
        for (id, sent) in sent {
            let answer = block_on(sent.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
            let want = (id as i32 % 97) * (step + 1);
            if sum(&answer) != want {
                return Err(format!("step {step} of sequence {id}: {} and not {want}", sum(&answer)));
            }
        }
        if step == 2 && model.repository.live() != LIVE {
            return Err(format!("{} live", model.repository.live()));
        }
    }
    Ok(format!("{runs} sequences of 5 steps, every sum right"))
}

/// Drops requests before they are answered, and reuses their ids at once.
fn leave(model: &LoadedModel) -> Result<String, String> {
    let mut random = Random(3);
    let (mut dropped, mut right) = (0u64, 0u64);
    for _ in 0..300 {
        let ids: Vec<u64> = (0..64).map(|_| 1 + random.below(512)).collect();
        let mut held = std::collections::BTreeMap::new();
        for id in ids {
            let value = random.below(50) as i32;
            match model.send(id, true, false, int(model, value)) {
                Ok(pending) if random.below(2) == 0 => {
                    drop(pending);
                    held.remove(&id);
                    dropped += 1;
                }
                Ok(pending) => drop(held.insert(id, (value, pending))),
                Err(error) => return Err(error.to_string()),
            }
        }
        for (id, (value, pending)) in held {
            // A later request of the same id may have ended this one's sequence, but never changed its sum.
            if let Ok(answer) = block_on(pending) {
                if sum(&answer) != value {
                    return Err(format!("sequence {id}: {} and not {value}", sum(&answer)));
                }
                right += 1;
            }
        }
    }
    for id in 1..=512 {
        if let Ok(pending) = model.send(id, true, true, int(model, 1)) {
            let _ = block_on(pending);
        }
    }
    match (model.repository.live(), model.repository.state_bytes().0) {
        (0, 0) => Ok(format!("{dropped} requests dropped, {right} sums right, nothing left behind")),
        (live, bytes) => Err(format!("{live} sequences and {bytes} bytes of state left behind")),
    }
}
