//! Clients send 16-bit samples in packets of any size, and the model takes windows of numbers between -1 and 1. An END fills the last window up.

use sequor_plugin::processor::*;

#[derive(Default)]
struct Plugin {
    window: usize,
}

impl Processor for Plugin {
    /// Kept for each sequence: the samples of the window that is not full yet.
    type Scratch = Vec<u8>;

    /// The answer is what clients see in place of the model's inputs and outputs.
    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
        self.window = config.get("window")?;
        if self.window == 0 {
            return Err("window must be above 0".into());
        }
        inner.find_input("x")?;
        inner.find_output("y")?;
        let outer = inner.clone().hide_input("x").hide_output("y");
        Ok(outer.input("SAMPLES", Dtype::INT16, &[-1]).output("y", Dtype::FP32, &[-1, 1]))
    }

    fn pre(&mut self, call: &Call<'_>, inputs: Tensors, scratch: &mut Vec<u8>) -> Result<Prepared, Refusal> {
        let mut samples: Vec<i16> = decode(scratch);
        if let Some(tensor) = inputs.find("SAMPLES") {
            samples.extend(tensor.values::<i16>()?);
        }
        if call.end {
            samples.resize(samples.len().next_multiple_of(self.window), 0);
        }
        let windows = samples.chunks_exact(self.window);
        *scratch = encode(windows.remainder());
        let run = |window: &[i16]| {
            let values: Vec<f32> = window.iter().map(|&sample| f32::from(sample) / 32768.0).collect();
            [("x", Tensor::new(&[1, self.window as u64], &values))]
        };
        // The model runs once a window. If no window is full, it does not run, and the answer is empty.
        Ok(Prepared::run_each(windows.map(run)).or_reply([("y", Tensor::empty(Dtype::FP32, &[0, 1]))]))
    }
}

sequor_plugin::export_processor!(Plugin);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    fn bench() -> Bench<Plugin> {
        let model = Signature::new().input("x", Dtype::FP32, &[1, -1]).output("y", Dtype::FP32, &[1, 1]);
        let first = |run: &Tensors| {
            let x = run.get("x").unwrap().values::<f32>().unwrap();
            Tensors::from([("y", Tensor::new(&[1, 1], &x[..1]))])
        };
        Bench::new(model, first).config(r#"{"window": 4}"#).without_post().scratch_limit(16 << 10)
    }

    #[test]
    fn the_packet_size_does_not_change_the_results() {
        let samples: Vec<i16> = (0..10).collect();
        let whole = bench().stream("SAMPLES", &samples, 10).unwrap();
        assert_eq!(whole.get("y").unwrap().values::<f32>().unwrap(), [0.0, 4.0 / 32768.0, 8.0 / 32768.0]);
        for packet in 1..10 {
            assert_eq!(bench().stream("SAMPLES", &samples, packet).unwrap(), whole);
        }
    }
}
