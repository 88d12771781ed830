//! ONNX Runtime alone in a loop: the cost of a step in the model alone. Each loop is a separate process, so that it can have its own core.
//! It prints its figures, one a line.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use sequor::backend::onnx::OnnxBackend;
use sequor::backend::onnx::library::{self, System};
use sequor::backend::{Backend, Context, Feed, Fetch, LoadOptions};
use sequor::device::{MemorySpan, Pool, Pooled};
use sequor_core::{DataType, Shape};

use crate::batching::LSTM;
use crate::models;

/// Batch size and microseconds a row, at each size.
pub(crate) fn vad() {
    let mut context =
        context(&models::root("models/vad/1/model.onnx"), &["input", "state", "sr"], &["output", "stateN"]);
    let rate = memory(&16000i64.to_le_bytes());
    for batch in [1u64, 8, 16, 32, 64] {
        let shapes = [&[batch, 576][..], &[2, batch, 128], &[], &[batch, 1], &[2, batch, 128]].map(Shape::new);
        let [input, mut kept] = [576 * 4 * batch, 2 * 128 * 4 * batch].map(|n| memory(&vec![0; n as usize]));
        let mut output = memory(&vec![0; 4 * batch as usize]);
        let mut next = memory(&vec![0; 2 * 128 * 4 * batch as usize]);
        let micros = best(|| {
            let feeds = [
                Feed { dtype: DataType::Fp32, shape: &shapes[0], data: MemorySpan::host(input.as_ref()) },
                Feed { dtype: DataType::Fp32, shape: &shapes[1], data: MemorySpan::host(kept.as_ref()) },
                Feed { dtype: DataType::Int64, shape: &shapes[2], data: MemorySpan::host(rate.as_ref()) },
            ];
            let mut fetches = [
                Fetch::Into { shape: &shapes[3], data: output.write().expect("memory") },
                Fetch::Into { shape: &shapes[4], data: next.write().expect("memory") },
            ];
            context.run(&feeds, &mut fetches).expect("a run");
            std::mem::swap(&mut kept, &mut next);
        });
        println!("{batch} {}", micros / batch as f64);
    }
}

/// Batch size and microseconds a row, at each size.
pub(crate) fn lstm() {
    let mut context = context(&models::root("benches/models/lstm.onnx"), &["INPUT"], &["OUTPUT"]);
    let [frames, features, hidden] = LSTM;
    for batch in [1u64, 8, 64] {
        let shapes = [&[batch, frames, features][..], &[batch, hidden]].map(Shape::new);
        let input = memory(&vec![0; (4 * batch * frames * features) as usize]);
        let mut output = memory(&vec![0; (4 * batch * hidden) as usize]);
        let micros = best(|| {
            let feeds = [Feed { dtype: DataType::Fp32, shape: &shapes[0], data: MemorySpan::host(input.as_ref()) }];
            let mut fetches = [Fetch::Into { shape: &shapes[1], data: output.write().expect("memory") }];
            context.run(&feeds, &mut fetches).expect("a run");
        });
        println!("{batch} {}", micros / batch as f64);
    }
}

/// Batch size, microseconds a row of the model with 64 KiB of state, and microseconds to copy 64 KiB.
pub(crate) fn wide() {
    let mut context = context(&models::root("benches/models/wide.onnx"), &["INPUT", "STATE"], &["OUTPUT", "STATE_OUT"]);
    const WIDTH: u64 = 16384;
    for batch in [1u64, 4, 8, 16, 32] {
        let shapes = [&[batch, 1][..], &[batch, WIDTH], &[batch, 1], &[batch, WIDTH]].map(Shape::new);
        let input = memory(&vec![0; 4 * batch as usize]);
        let [mut kept, mut next] = [0, 1].map(|_| memory(&vec![0; (4 * WIDTH * batch) as usize]));
        let mut output = memory(&vec![0; 4 * batch as usize]);
        let micros = best(|| {
            let feeds = [
                Feed { dtype: DataType::Fp32, shape: &shapes[0], data: MemorySpan::host(input.as_ref()) },
                Feed { dtype: DataType::Fp32, shape: &shapes[1], data: MemorySpan::host(kept.as_ref()) },
            ];
            let mut fetches = [
                Fetch::Into { shape: &shapes[2], data: output.write().expect("memory") },
                Fetch::Into { shape: &shapes[3], data: next.write().expect("memory") },
            ];
            context.run(&feeds, &mut fetches).expect("a run");
            std::mem::swap(&mut kept, &mut next);
        });
        // Rows that are far apart in memory, like the states of many sequences.
        let rows = vec![1u8; 64 << 16];
        let (mut to, mut at) = (vec![0u8; 64 << 16], 0usize);
        let copy = best(|| {
            at = (at + 37) % 64;
            to[at << 16..(at + 1) << 16].copy_from_slice(&rows[at << 16..(at + 1) << 16]);
            std::hint::black_box(&mut to);
        });
        println!("{batch} {} {copy}", micros / batch as f64);
    }
}

/// Batch size, microseconds a row of the model with four states, and microseconds to copy a row's states to and from distant memory.
pub(crate) fn cached() {
    let inputs = ["x", "key", "value", "conv", "length"];
    let outputs = ["y", "key_out", "value_out", "conv_out", "length_out"];
    let mut context = context(&models::root("benches/models/cached_rows.onnx"), &inputs, &outputs);
    for batch in [1u64, 2, 4, 8, 16, 32] {
        let dims: [&[u64]; 4] = [&[8, 64, 512], &[8, 64, 512], &[8, 512, 92], &[8, 1]];
        let shapes = dims.map(|dims| Shape::new(&[&[batch], dims].concat()));
        let sizes = [4u64, 4, 4, 8].iter().zip(dims).map(|(size, dims)| size * dims.iter().product::<u64>());
        let sizes: Vec<usize> = sizes.map(|row| (row * batch) as usize).collect();
        let [mut kept, mut next] = [0, 1].map(|_| sizes.iter().map(|n| memory(&vec![0; *n])).collect::<Vec<_>>());
        let (x, y) = (Shape::new(&[batch, 16, 80]), Shape::new(&[batch, 512]));
        let (frames, mut answer) = (memory(&vec![0; 5120 * batch as usize]), memory(&vec![0; 2048 * batch as usize]));
        let micros = best(|| {
            let mut feeds = vec![Feed { dtype: DataType::Fp32, shape: &x, data: MemorySpan::host(frames.as_ref()) }];
            for (n, (shape, state)) in shapes.iter().zip(&kept).enumerate() {
                let dtype = if n == 3 { DataType::Int64 } else { DataType::Fp32 };
                feeds.push(Feed { dtype, shape, data: MemorySpan::host(state.as_ref()) });
            }
            let mut fetches = vec![Fetch::Into { shape: &y, data: answer.write().expect("memory") }];
            for (shape, state) in shapes.iter().zip(&mut next) {
                fetches.push(Fetch::Into { shape, data: state.write().expect("memory") });
            }
            context.run(&feeds, &mut fetches).expect("a run");
            std::mem::swap(&mut kept, &mut next);
        });
        let rows: Vec<Vec<u8>> =
            (0..batch).map(|n| vec![n as u8; sizes.iter().sum::<usize>() / batch as usize]).collect();
        let mut to = vec![1u8; sizes.iter().sum()];
        let copy = best(|| {
            for (from, to) in rows.iter().zip(to.chunks_exact_mut(rows[0].len())) {
                to.copy_from_slice(from);
            }
            std::hint::black_box(&mut to);
        });
        println!("{batch} {} {}", micros / batch as f64, copy / batch as f64);
    }
}

fn context(file: &Path, inputs: &[&str], outputs: &[&str]) -> Box<dyn Context> {
    let library = library::find(None, &System).expect("ONNX Runtime");
    let backend = OnnxBackend::new(&library.path).expect("ONNX Runtime");
    let graph = backend.load(file, &LoadOptions::default()).expect("a graph");
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    graph.context(&names(inputs), &names(outputs)).expect("a context")
}

/// Memory with the alignment that a backend needs.
fn memory(bytes: &[u8]) -> Pooled {
    let mut memory = Pool::new(0).take(bytes.len()).expect("memory");
    memory.write().expect("memory").as_host_mut().expect("host memory").copy_from_slice(bytes);
    memory
}

/// Microseconds of this thread's CPU time a turn, in the best of five tries of 0.2 s. The runtime uses no other threads here.
fn best(mut turn: impl FnMut()) -> f64 {
    let mut try_once = || {
        let (began, own, mut turns) = (Instant::now(), own_time(), 0u32);
        while began.elapsed() < Duration::from_millis(200) {
            turn();
            turns += 1;
        }
        (own_time() - own).as_secs_f64() * 1e6 / f64::from(turns)
    };
    (0..5).map(|_| try_once()).fold(f64::INFINITY, f64::min)
}

fn own_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("a clock").into()
}
