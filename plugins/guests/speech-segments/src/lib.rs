//! Converts a model's speech probabilities to lines of text, one for each segment of speech: "0.58 s to 2.31 s".
//!
//! The model behind it, or the next processor, gives one probability a window. The answer in which a segment ends has the segment's line. An END
//! ends a segment that is still open.

use sequor_plugin::processor::*;

/// A pause begins only if the probability falls below the threshold by more than this.
const PAUSE_MARGIN: f32 = 0.15;

#[derive(Debug, Default)]
pub struct SpeechSegments {
    output: String,
    window_ms: f64,
    threshold: f32,
    silence_ms: f64,
}

/// The open segment of a sequence, counted in windows.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct OpenSegment {
    /// Windows of the sequence so far.
    windows: u32,
    /// The number of the window in which the segment began, counted from 1; 0 if no segment is open.
    began: u32,
    /// The number of the window in which the present pause began, counted from 1; 0 if there is none.
    pause: u32,
}

impl Scratch for OpenSegment {
    fn load(bytes: &[u8]) -> Result<OpenSegment, String> {
        match decode::<u32>(bytes).as_slice() {
            [windows, began, pause] => Ok(OpenSegment { windows: *windows, began: *began, pause: *pause }),
            _ => Err(format!("{} bytes are no scratch of this plug-in", bytes.len())),
        }
    }

    fn save(&self) -> Vec<u8> {
        encode(&[self.windows, self.began, self.pause])
    }
}

impl Processor for SpeechSegments {
    type Scratch = OpenSegment;

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
        self.output = config.get("output")?;
        (self.window_ms, self.threshold) = (config.get("window_ms")?, config.get("threshold")?);
        self.silence_ms = config.get("silence_ms")?;
        if inner.find_output(&self.output)?.dtype != Dtype::FP32 {
            return Err(format!("output \"{}\" must be FP32", self.output));
        }
        Ok(inner.clone().hide_output(&self.output).output("SEGMENTS", Dtype::BYTES, &[-1]))
    }

    fn post(&mut self, call: &Call<'_>, runs: Vec<Tensors>, segment: &mut OpenSegment) -> Result<Tensors, Refusal> {
        let mut outputs = join(runs);
        let probabilities = outputs.take(&self.output);
        let mut lines = Vec::new();
        for probability in probabilities.map(|tensor| tensor.values::<f32>()).transpose()?.unwrap_or_default() {
            lines.extend(self.add_window(segment, probability));
        }
        if call.end && segment.began > 0 {
            lines.push(self.line(segment, segment.windows));
        }
        outputs.insert("SEGMENTS", Tensor::texts(&[lines.len() as u64], &lines));
        Ok(outputs)
    }
}

impl SpeechSegments {
    /// Adds one window. Returns the line of the segment that it ends, if it ends one.
    fn add_window(&self, segment: &mut OpenSegment, probability: f32) -> Option<String> {
        let at = segment.windows;
        segment.windows += 1;
        if probability >= self.threshold {
            segment.pause = 0;
            if segment.began == 0 {
                segment.began = at + 1;
            }
        } else if segment.began > 0 && probability < self.threshold - PAUSE_MARGIN {
            if segment.pause == 0 {
                segment.pause = at + 1;
            }
            if f64::from(segment.windows - segment.pause + 1) * self.window_ms >= self.silence_ms {
                let line = self.line(segment, segment.pause - 1);
                (segment.began, segment.pause) = (0, 0);
                return Some(line);
            }
        }
        None
    }

    /// The line of a segment that ends before this window.
    fn line(&self, segment: &OpenSegment, end: u32) -> String {
        let seconds = |windows: u32| f64::from(windows) * self.window_ms / 1e3;
        format!("{:.2} s to {:.2} s", seconds(segment.began - 1), seconds(end))
    }
}

sequor_plugin::export_processor!(SpeechSegments);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    /// A model that answers with its inputs.
    fn bench() -> Bench<SpeechSegments> {
        let model = Signature::new().input("p", Dtype::FP32, &[-1]).output("output", Dtype::FP32, &[-1]);
        let echo = |run: &Tensors| Tensors::from([("output", run.get("p").unwrap().clone())]);
        let config = r#"{"output": "output", "window_ms": 32, "threshold": 0.5, "silence_ms": 100}"#;
        Bench::new(model, echo).config(config).scratch_limit(64)
    }

    #[test]
    fn a_segment_ends_after_a_pause_or_at_the_end() {
        let p = |values: &[f32]| [("p", Tensor::new(&[values.len() as u64], values))];
        let mut bench = bench();
        let lines = |answer: Result<Tensors, Refusal>| {
            let lines = answer.unwrap().get("SEGMENTS").unwrap().elements().unwrap();
            lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect::<Vec<_>>()
        };
        // A short pause, and one that is not deep enough, do not end it.
        assert!(lines(bench.start(1, p(&[0.1, 0.6, 0.9, 0.1, 0.1, 0.9, 0.4, 0.4, 0.4, 0.4]))).is_empty());
        assert_eq!(lines(bench.step(1, p(&[0.9, 0.1, 0.1, 0.1, 0.1, 0.8]))), ["0.03 s to 0.35 s"]);
        assert_eq!(lines(bench.end(1, p(&[0.8]))), ["0.48 s to 0.54 s"]);
    }
}
