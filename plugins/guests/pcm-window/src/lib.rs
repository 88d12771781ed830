//! Converts audio packets of any size to the windows of a voice activity model.
//!
//! A window has samples at 16 kHz between -1 and 1. It begins with the last `context` samples of the previous window. An answer has one row for
//! each window that its packet completed, and no row if it completed none. An END fills the last window with silence.

mod mulaw;
mod resample;

use sequor_plugin::processor::*;

use resample::Resampler;

/// The model's sample rate, in Hz.
const RATE: u32 = 16_000;
/// Maximum number of samples in one request. The windows of a larger request would exceed the default memory limit of an instance.
const SAMPLES: u64 = 512 << 10;

#[derive(Debug, Default)]
pub struct PcmWindow {
    resampler: Resampler,
    is_mulaw: bool,
    input: String,
    output: String,
    /// Samples of a window that repeat the end of the previous window.
    context: usize,
    /// Samples of a window after its context.
    new: usize,
}

impl Processor for PcmWindow {
    type Scratch = Vec<u8>;

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
        let (input, output) = (config.get::<String>("input")?, config.get::<String>("output")?);
        let (to, from) = (inner.find_input(&input)?, inner.find_output(&output)?);
        let whole = match (to.dtype, to.shape.as_slice()) {
            (Dtype::FP32, [-1 | 1, whole]) => {
                usize::try_from(*whole).map_err(|_| "the model's window has no length")?
            }
            _ => return Err(format!("\"{input}\" is {} {:?}; windows are FP32 [-1, samples]", to.dtype, to.shape)),
        };
        self.context = config.get("context")?;
        self.new = whole.checked_sub(self.context).filter(|new| *new > 0).ok_or("context is as long as the window")?;
        if from.dtype != Dtype::FP32 || from.shape.first() != Some(&-1) {
            return Err(format!("\"{output}\" is {} {:?}; FP32 [-1, ...] is wanted", from.dtype, from.shape));
        }
        self.resampler = Resampler::new(config.get("rate")?, RATE)?;
        self.is_mulaw = match config.get::<String>("format")?.as_str() {
            "pcm16" => false,
            "mulaw" => true,
            other => return Err(format!("format is \"{other}\"; it may be pcm16 or mulaw")),
        };
        let dtype = if self.is_mulaw { Dtype::UINT8 } else { Dtype::INT16 };
        let outer = Signature { inputs: Vec::new(), outputs: vec![from.clone()] };
        (self.input, self.output) = (input, output);
        Ok(outer.input("AUDIO", dtype, &[-1]))
    }

    fn pre(&mut self, call: &Call<'_>, inputs: Tensors, scratch: &mut Vec<u8>) -> Result<Prepared, Refusal> {
        let mut kept = self.kept(scratch);
        if let Some(audio) = inputs.find("AUDIO") {
            let samples: u64 = audio.shape().iter().product();
            if samples > SAMPLES {
                let text = format!("{samples} samples in one request; the maximum is {SAMPLES}");
                return Err(refuse(code::WRONG_REQUEST, text));
            }
            kept.raw.extend(if self.is_mulaw { mulaw::decode(&audio.bytes()) } else { audio.values::<i16>()? });
        }
        self.resampler.advance(&mut kept.raw, &mut kept.window, call.end);
        let rest = kept.window.len().saturating_sub(self.context) % self.new;
        if call.end && rest > 0 {
            let whole = kept.window.len() + self.new - rest;
            kept.window.resize(whole, 0.0);
        }
        let windows = kept.window.len().saturating_sub(self.context) / self.new;
        let length = self.context + self.new;
        let window = |n: usize| {
            let samples = &kept.window[n * self.new..][..length];
            [(self.input.clone(), Tensor::new(&[1, length as u64], samples))]
        };
        let prepared = Prepared::run_each((0..windows).map(window));
        kept.window.drain(..windows * self.new);
        *scratch = kept.bytes();
        Ok(prepared.or_reply([(self.output.clone(), Tensor::empty(Dtype::FP32, &[0, 1]))]))
    }
}

/// The samples of a sequence that the plug-in keeps between packets.
struct Kept {
    /// Samples at the client's rate: those that are not resampled yet, after those that the resampler's filter still needs.
    raw: Vec<i16>,
    /// Samples at the model's rate: the context of the next window, then those of its new samples that have arrived.
    window: Vec<f32>,
}

impl PcmWindow {
    fn kept(&self, scratch: &[u8]) -> Kept {
        match scratch.split_first_chunk::<4>() {
            Some((samples, rest)) => {
                let (raw, window) = rest.split_at(2 * u32::from_le_bytes(*samples) as usize);
                Kept { raw: decode(raw), window: decode(window) }
            }
            None => Kept { raw: self.resampler.silence(), window: vec![0.0; self.context] },
        }
    }
}

impl Kept {
    fn bytes(&self) -> Vec<u8> {
        let count = (self.raw.len() as u32).to_le_bytes();
        [&count[..], &encode(&self.raw), &encode(&self.window)].concat()
    }
}

sequor_plugin::export_processor!(PcmWindow);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    fn model() -> Signature {
        Signature::new().input("input", Dtype::FP32, &[-1, 576]).output("output", Dtype::FP32, &[-1, 1])
    }

    /// A model whose answer depends on every sample and its place.
    fn weighted(run: &Tensors) -> Tensors {
        let samples = run.get("input").unwrap().values::<f32>().unwrap();
        let sum = samples.iter().zip(1u16..).map(|(sample, place)| sample * f32::from(place)).sum::<f32>();
        Tensors::from([("output", Tensor::new(&[1, 1], &[sum]))])
    }

    fn bench(rate: u32, format: &str) -> Bench<PcmWindow> {
        let config =
            format!(r#"{{"rate": {rate}, "format": "{format}", "input": "input", "output": "output", "context": 64}}"#);
        Bench::<PcmWindow>::new(model(), weighted).config(&config).without_post().scratch_limit(4096)
    }

    /// A signal without a period, with loud and quiet parts.
    fn sound(samples: u32) -> Vec<i16> {
        let sample = |n: u32| (n.wrapping_mul(2_654_435_761) >> 16) as i16 / (1 + (n / 999 % 7) as i16);
        (0..samples).map(sample).collect()
    }

    #[test]
    fn the_packet_size_does_not_change_the_results() {
        for (rate, samples) in [(8_000u32, 9_001u32), (16_000, 9_001), (48_000, 30_001)] {
            let sound = sound(samples);
            let whole = bench(rate, "pcm16").stream("AUDIO", &sound, sound.len()).unwrap();
            let windows = (samples * 16 / (rate / 1000)).div_ceil(512);
            assert_eq!(whole.get("output").unwrap().shape(), [u64::from(windows), 1], "{rate}");
            for ms in [1, 20, 32, 100] {
                let packet = rate as usize / 1000 * ms;
                assert_eq!(bench(rate, "pcm16").stream("AUDIO", &sound, packet).unwrap(), whole, "{rate} Hz, {ms} ms");
            }
        }
    }

    #[test]
    fn each_window_starts_with_the_end_of_the_previous_window() {
        let mut bench = bench(16_000, "pcm16");
        let audio = |values: &[i16]| [("AUDIO", Tensor::new(&[values.len() as u64], values))];
        let sound = sound(1000);
        let first = bench.start(1, audio(&sound[..511])).unwrap();
        assert_eq!(first.get("output").unwrap().shape(), [0, 1]);
        assert_eq!(bench.step(1, audio(&sound[511..1000])).unwrap().get("output").unwrap().shape(), [1, 1]);
        let input = |bench: &Bench<PcmWindow>| bench.runs[0].get("input").unwrap().values::<f32>().unwrap();
        let normal = |values: &[i16]| values.iter().map(|s| f32::from(*s) / 32768.0).collect::<Vec<f32>>();
        assert_eq!(input(&bench), [vec![0.0; 64], normal(&sound[..512])].concat());
        bench.end(1, Tensors::new()).unwrap();
        assert_eq!(input(&bench), [normal(&sound[448..1000]), vec![0.0; 24]].concat());
    }

    #[test]
    fn more_samples_than_an_instance_has_memory_for_are_refused() {
        let mut bench = bench(16_000, "pcm16");
        let audio = |samples: u64| [("AUDIO", Tensor::new(&[samples], &vec![0i16; samples as usize]))];
        assert_eq!(bench.start(1, audio(SAMPLES)).unwrap().get("output").unwrap().shape(), [1024, 1]);
        let refused = bench.step(1, audio(SAMPLES + 1)).unwrap_err();
        assert_eq!((refused.code, refused.text.as_str()), (1, "524289 samples in one request; the maximum is 524288"));
        assert!(bench.step(1, audio(10)).is_ok());
    }

    #[test]
    fn mu_law_audio_gives_the_same_windows_as_its_decoded_pcm() {
        let codes: Vec<u8> = (0..4096u32).map(|n| (n * 37 % 256) as u8).collect();
        let coded = bench(8_000, "mulaw").stream("AUDIO", &codes, 77).unwrap();
        let plain = bench(8_000, "pcm16").stream("AUDIO", &mulaw::decode(&codes), 80).unwrap();
        assert_eq!(coded, plain);
    }

    #[test]
    fn settings_that_do_not_fit_are_refused_with_a_reason() {
        let wrong = |rate, format, model| {
            let config = format!(
                r#"{{"rate": {rate}, "format": "{format}", "input": "input", "output": "output", "context": 64}}"#
            );
            Bench::<PcmWindow>::new(model, weighted).config(&config).configure().unwrap_err()
        };
        assert_eq!(wrong(44_100, "pcm16", model()), "rate is 44100; it may be 8000, 16000 or 48000");
        assert_eq!(wrong(8_000, "opus", model()), "format is \"opus\"; it may be pcm16 or mulaw");
        let other = Signature::new().input("x", Dtype::FP32, &[-1, 576]);
        assert_eq!(wrong(8_000, "mulaw", other), "the model has no input \"input\"; it has x");
    }
}
