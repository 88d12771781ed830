//! Measures packets of 20 ms of PCM through the guest `pcm-window`, next to native code, and next to the guest in Python if it was built.
//! Calls run in this process, on one thread, in the thread's CPU time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sequor::processing::{CallFacts, Chain, Plan, PortTensors, SequenceScratch, TensorSignature};
use sequor::tensor::Tensor;
use sequor_core::{DataType, Shape};
use sequor_wasm::engine::{Engine, Mode};

use crate::BenchResult;
use crate::calls::{best, chain_of, port};

/// Samples of a packet, of a window, and of the context from the previous window in front of it.
const PACKET: usize = 320;
const NEW: usize = 512;
const CONTEXT: usize = 64;

pub(crate) fn figures() -> BenchResult<()> {
    let engine = Arc::new(Engine::new(Mode::Serving)?);
    let mut cut = Cutter { window: vec![0.0; CONTEXT] };
    let packet = packet();
    let native = best(64, || drop(std::hint::black_box(cut.windows(std::hint::black_box(&packet)))));
    println!("20 ms of PCM into windows of the voice activity model:");
    println!("  native          {native:>9.2} us");
    for (name, config) in [("pcm-window", r#"{"rate": 16000}"#), ("pcm-window-python", "{}")] {
        match std::fs::read(guests().join(format!("{name}.wasm"))) {
            Ok(component) => {
                let took = guest(&engine, &component, config, &packet)?;
                let aim = if name == "pcm-window" { " (aim 5)" } else { "" };
                println!("  {name:<18}{took:>7.2} us, {:.1} x{aim}", took / native);
            }
            Err(_) => println!("  {name:<18}   was not built"),
        }
    }
    Ok(())
}

/// The guests' folder of `cargo xtask prepare`.
pub(crate) fn guests() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join(".sequor/guests");
    std::env::var_os("SEQUOR_GUESTS").map_or_else(default, PathBuf::from)
}

/// A packet that is not silent.
fn packet() -> Bytes {
    let sample = |n: usize| ((n * 2_654_435_761) >> 16) as i16;
    (0..PACKET).flat_map(|n| sample(n).to_le_bytes()).collect::<Vec<u8>>().into()
}

/// Microseconds of `pre` and `post` of a packet, with the scratch carried over.
fn guest(engine: &Arc<Engine>, component: &[u8], config: &str, packet: &Bytes) -> BenchResult<f64> {
    let model = TensorSignature {
        inputs: vec![port("input", DataType::Fp32, &[-1, (CONTEXT + NEW) as i64])],
        outputs: vec![port("output", DataType::Fp32, &[-1, 1])],
    };
    let chain = chain_of(engine, component, config, model)?;
    let audio = tensor(DataType::Int16, &[PACKET as u64], packet.clone());
    let answer = tensor(DataType::Fp32, &[1, 1], Bytes::from(vec![0; 4]));
    let mut scratch = SequenceScratch::default();
    let mut step = 0;
    let mut once = || -> Result<(), String> {
        step += 1;
        let facts = CallFacts { sequence: 7, step, start: step == 1, outputs: vec![0], ..CallFacts::default() };
        scratch = packet_through(&chain, &facts, &scratch, &audio, &answer)?;
        Ok(())
    };
    once()?;
    Ok(best(64, || drop(once())))
}

fn packet_through(
    chain: &Chain,
    facts: &CallFacts,
    scratch: &SequenceScratch,
    audio: &Tensor,
    answer: &Tensor,
) -> Result<SequenceScratch, String> {
    let prepared = chain.pre(facts, scratch, vec![Some(audio.clone())]).map_err(|e| format!("{e:?}"))?;
    let Plan::Run(runs) = prepared.plan else { return Ok(prepared.pending.into_scratch()) };
    let outputs: Vec<PortTensors> = runs.iter().map(|_| vec![Some(answer.clone())]).collect();
    let (_, scratch) = chain.post(facts, prepared.pending, outputs).map_err(|e| format!("{e:?}"))?;
    Ok(scratch)
}

fn tensor(dtype: DataType, shape: &[u64], data: Bytes) -> Tensor {
    Tensor { dtype, shape: Shape::new(shape), data }
}

/// The same in native code: the samples of a sequence that do not fill a window yet.
struct Cutter {
    window: Vec<f32>,
}

impl Cutter {
    /// The windows that a packet completes, as bytes of tensors.
    fn windows(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let samples = packet.as_chunks::<2>().0.iter().map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32768.0);
        self.window.extend(samples);
        let mut windows = Vec::new();
        while self.window.len() >= CONTEXT + NEW {
            windows.push(self.window[..CONTEXT + NEW].iter().flat_map(|sample| sample.to_le_bytes()).collect());
            self.window.drain(..NEW);
        }
        windows
    }
}
