//! Turns packets of PCM of any size into log-mel filter banks: 25 ms frames each 10 ms, as in Kaldi without dither.
//!
//! In front of a model, the frames form its windows, and the model runs once for each window that a packet completes. As a model of its
//! own, it answers each packet with the frames that the packet completes.

pub mod features;

use sequor_plugin::processor::*;

use features::{Fbank, FbankOptions, Sound};

#[derive(Debug, Default)]
pub struct FbankPlugin {
    fbank: Fbank,
    /// The factor of a sample.
    scale: f32,
    /// The names of the audio and of the frames.
    audio: String,
    features: String,
    dtype: Dtype,
    /// Dimensions before the frames, all 1.
    outer: Vec<u64>,
    /// The input with the number of samples.
    audio_lens: Option<String>,
    /// The output with the number of frames, and its number of dimensions.
    features_lens: Option<(String, usize)>,
    windows: Windows,
    /// The answer to a packet that completes no window.
    nothing: Vec<Port>,
}

/// The grouping of frames into windows.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Windows {
    /// All ready frames, in one answer.
    #[default]
    All,
    /// `frames` frames in the answer to each packet. The next answer begins `shift` frames later.
    Answer { frames: usize, shift: usize },
    /// `frames` frames in each run of the model. The next run begins `shift` frames later.
    Runs { frames: usize, shift: usize },
}

impl Processor for FbankPlugin {
    type Scratch = Vec<u8>;

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
        (self.features, self.audio) = (config.get("features")?, config.get("audio")?);
        let port = inner.find_input(&self.features).or_else(|_| inner.find_output(&self.features));
        let port = port.map_err(|_| format!("the model has no input and no output \"{}\"", self.features))?;
        let is_own = inner.find_input(&self.features).is_err();
        let (frames, bins) = self.shape(port)?;
        let outer = if is_own { inner.clone() } else { self.in_front(config, inner)? };
        self.find_lens(config, &outer, is_own)?;
        let shift = match shift(config)? {
            0 => frames.unwrap_or(1),
            shift => shift,
        };
        self.windows = match frames {
            None => Windows::All,
            Some(frames) if shift > frames => return Err(format!("shift is {shift}; a window has {frames} frames")),
            Some(frames) if is_own => Windows::Answer { frames, shift },
            Some(frames) => Windows::Runs { frames, shift },
        };
        self.scale = match (outer.find_input(&self.audio)?.dtype, config.get("normalize")?) {
            (Dtype::INT16, true) => 1.0 / 32768.0,
            (Dtype::INT16 | Dtype::FP32 | Dtype::FP16, _) => 1.0,
            (other, _) => return Err(format!("\"{}\" is {other}; it may be INT16, FP32 or FP16", self.audio)),
        };
        self.fbank = Fbank::new(FbankOptions {
            rate: rate(config)?,
            bins,
            low: config.get("low")?,
            high: config.get("high")?,
            snip_edges: config.get("snip_edges")?,
        })?;
        Ok(outer)
    }

    fn pre(&mut self, call: &Call<'_>, inputs: Tensors, scratch: &mut Vec<u8>) -> Result<Prepared, Refusal> {
        let mut kept = Kept::load(scratch, self.fbank.bins());
        if let Some(audio) = inputs.find(&self.audio) {
            if audio.shape().iter().rev().skip(1).any(|rows| *rows != 1) {
                let text =
                    format!("\"{}\" {:?} has several rows; a request is of one sequence", self.audio, audio.shape());
                return Err(refuse(code::WRONG_REQUEST, text));
            }
            let mut samples = match audio.dtype() {
                Dtype::INT16 => audio.values::<i16>()?.into_iter().map(|s| f32::from(s) * self.scale).collect(),
                _ => audio.floats()?,
            };
            if let Some(lens) = self.audio_lens.as_ref().and_then(|name| inputs.find(name)) {
                samples.truncate(count_of(lens, samples.len())?);
            }
            kept.sound.samples.extend(samples);
        }
        kept.features.extend(self.fbank.advance(&mut kept.sound, call.end));
        let prepared = self.prepared(&mut kept, inputs.is_empty(), call.end)?;
        *scratch = kept.bytes(self.fbank.bins());
        Ok(prepared)
    }
}

impl FbankPlugin {
    /// Frames of a window, if their number is fixed, and the number of values of a frame.
    fn shape(&mut self, port: &Port) -> Result<(Option<usize>, usize), String> {
        let wrong = || {
            format!("\"{}\" is {} {:?}; FP32 or FP16 [.., frames, bins] is wanted", port.name, port.dtype, port.shape)
        };
        if port.dtype != Dtype::FP32 && port.dtype != Dtype::FP16 {
            return Err(wrong());
        }
        let [before @ .., frames, bins] = port.shape.as_slice() else { return Err(wrong()) };
        if before.iter().any(|dim| !matches!(dim, -1 | 1)) {
            return Err(wrong());
        }
        let bins = usize::try_from(*bins).map_err(|_| wrong())?;
        (self.dtype, self.outer) = (port.dtype, vec![1; before.len()]);
        Ok((usize::try_from(*frames).ok(), bins))
    }

    /// The signature that clients see, if a model runs behind this plug-in.
    fn in_front(&mut self, config: &Config, inner: &Signature) -> Result<Signature, String> {
        let closed = inner.outputs.iter().find(|port| port.shape.first() != Some(&-1));
        if let Some(port) = closed {
            return Err(format!("output \"{}\" is {:?}; its first dimension must be open", port.name, port.shape));
        }
        self.nothing = inner.outputs.clone();
        let dtype = match config.get::<String>("format")?.as_str() {
            "pcm16" => Dtype::INT16,
            "fp32" => Dtype::FP32,
            other => return Err(format!("format is \"{other}\"; it may be pcm16 or fp32")),
        };
        Ok(inner.clone().hide_input(&self.features).input(&self.audio, dtype, &[-1]))
    }

    /// Finds the tensors that count samples and frames.
    fn find_lens(&mut self, config: &Config, outer: &Signature, is_own: bool) -> Result<(), String> {
        let (audio, features): (String, String) = (config.get("audio_lens")?, config.get("features_lens")?);
        let input = outer.inputs.iter().find(|port| port.name == audio);
        let output = outer.outputs.iter().find(|port| is_own && port.name == features);
        for port in input.iter().chain(&output) {
            if port.dtype != Dtype::INT32 && port.dtype != Dtype::INT64 {
                return Err(format!("\"{}\" is {}; it may be INT32 or INT64", port.name, port.dtype));
            }
        }
        if let Some(port) = output.filter(|port| port.dtype != Dtype::INT64) {
            return Err(format!("output \"{}\" is {}; INT64 is wanted", port.name, port.dtype));
        }
        self.audio_lens = input.map(|port| port.name.clone());
        self.features_lens = output.map(|port| (port.name.clone(), port.shape.len()));
        Ok(())
    }

    fn prepared(&self, kept: &mut Kept, is_empty: bool, is_end: bool) -> Result<Prepared, Refusal> {
        let bins = self.fbank.bins();
        let ready = kept.features.len() / bins;
        match self.windows {
            // An END without audio that leaves nothing to compute.
            Windows::All | Windows::Answer { .. } if is_empty && ready == 0 => Ok(Prepared::reply(Tensors::new())),
            Windows::All => Ok(Prepared::reply(self.answer(&std::mem::take(&mut kept.features), ready))),
            Windows::Answer { frames, shift } => match windows(ready, frames, shift) {
                1 => {
                    let answer = self.answer(&kept.features[..frames * bins], frames);
                    kept.features.drain(..shift * bins);
                    Ok(Prepared::reply(answer))
                }
                // The end of the sound: the remaining frames, padded with zeros.
                0 if is_end && !is_empty && self.features_lens.is_some() => {
                    kept.features.resize(frames * bins, 0.0);
                    Ok(Prepared::reply(self.answer(&std::mem::take(&mut kept.features), ready)))
                }
                _ if is_empty => Ok(Prepared::reply(Tensors::new())),
                n => Err(refuse(
                    code::WRONG_REQUEST,
                    format!("this packet completes {n} windows; each must complete one"),
                )),
            },
            Windows::Runs { frames, shift } => {
                let count = windows(ready, frames, shift);
                let runs = (0..count).map(|n| self.window(&kept.features[n * shift * bins..][..frames * bins]));
                let prepared = Prepared::run_each(runs).or_reply(self.nothing());
                kept.features.drain(..count * shift * bins);
                Ok(prepared)
            }
        }
    }

    /// The answer of a model of its own: these frames, of which `count` belong to the sound.
    fn answer(&self, frames: &[f32], count: usize) -> Tensors {
        let answer = self.window(frames);
        match &self.features_lens {
            None => answer,
            Some((name, rank)) => answer.with(name.clone(), Tensor::new(&vec![1; *rank], &[count as i64])),
        }
    }

    /// These frames as a tensor, by its name.
    fn window(&self, frames: &[f32]) -> Tensors {
        let bins = self.fbank.bins() as u64;
        let shape = [&self.outer[..], &[frames.len() as u64 / bins, bins]].concat();
        [(self.features.clone(), Tensor::of_floats(self.dtype, &shape, frames))].into()
    }

    /// Outputs without rows.
    fn nothing(&self) -> Tensors {
        let empty = |port: &Port| {
            let shape: Vec<u64> = port.shape.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).collect();
            (port.name.clone(), Tensor::empty(port.dtype, &shape))
        };
        self.nothing.iter().map(empty).collect()
    }
}

/// Samples per second.
fn rate(config: &Config) -> Result<u32, String> {
    for (name, only) in [("frame_length_ms", 25), ("frame_shift_ms", 10)] {
        let given: u32 = config.get(name)?;
        if given != only {
            return Err(format!("{name} is {given}; it must be {only}"));
        }
    }
    match config.get("sample_rate")? {
        0 => config.get("rate"),
        rate => Ok(rate),
    }
}

/// Frames between the beginnings of two windows; 0 means the length of a window.
fn shift(config: &Config) -> Result<usize, String> {
    let (chunk, seconds): (usize, f64) = (config.get("decode_chunk_size")?, config.get("chunk_size_s")?);
    match (chunk, seconds) {
        (0, seconds) if seconds > 0.0 => Ok((seconds * 100.0).round() as usize),
        (0, _) => config.get("shift"),
        (chunk, _) => Ok(chunk * 4),
    }
}

/// The single number in a tensor, which is the count of valid samples.
fn count_of(tensor: &Tensor, samples: usize) -> Result<usize, Refusal> {
    let numbers = match tensor.dtype() {
        Dtype::INT32 => tensor.values::<i32>()?.into_iter().map(i64::from).collect(),
        _ => tensor.values::<i64>()?,
    };
    let count = numbers.first().filter(|_| numbers.len() == 1).and_then(|number| usize::try_from(*number).ok());
    count.filter(|count| *count <= samples).ok_or_else(|| {
        refuse(code::WRONG_REQUEST, format!("{numbers:?} is no number of samples; the audio has {samples}"))
    })
}

/// Number of windows in this many frames.
fn windows(ready: usize, frames: usize, shift: usize) -> usize {
    ready.checked_sub(frames).map_or(0, |more| more / shift + 1)
}

/// The state of a sequence between packets.
struct Kept {
    sound: Sound,
    /// Frames of the next window, and those that it shares with the window before.
    features: Vec<f32>,
}

impl Kept {
    fn load(scratch: &[u8], bins: usize) -> Kept {
        let Some((head, rest)) = scratch.split_first_chunk::<16>() else {
            return Kept { sound: Sound::default(), features: Vec::new() };
        };
        let counts = decode::<u64>(head);
        let (features, samples) = rest.split_at(counts[1] as usize * bins * 4);
        Kept { sound: Sound { frames: counts[0], samples: decode(samples) }, features: decode(features) }
    }

    fn bytes(&self, bins: usize) -> Vec<u8> {
        let counts = encode(&[self.sound.frames, (self.features.len() / bins) as u64]);
        [counts, encode(&self.features), encode(&self.sound.samples)].concat()
    }
}

sequor_plugin::export_processor!(FbankPlugin);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    const CONFIG: &str = r#""features": "x", "audio": "AUDIO", "format": "pcm16", "rate": 16000, "low": 20, "high": 0, "snip_edges": true, "normalize": true,
        "audio_lens": "wav_lens", "features_lens": "x_lens", "sample_rate": 0, "frame_length_ms": 25, "frame_shift_ms": 10, "decode_chunk_size": 0,
        "chunk_size_s": 0"#;

    fn config(shift: usize) -> String {
        format!("{{{CONFIG}, \"shift\": {shift}}}")
    }

    /// A model that answers with the mean of each window.
    fn model(dtype: Dtype) -> Signature {
        Signature::new().input("x", dtype, &[-1, 45, 80]).output("y", Dtype::FP32, &[-1, 1])
    }

    fn mean(run: &Tensors) -> Tensors {
        let x = run.get("x").unwrap();
        assert_eq!(x.shape(), [1, 45, 80]);
        let values = x.floats().unwrap();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        Tensors::from([("y", Tensor::new(&[1, 1], &[mean]))])
    }

    fn sound(samples: u32) -> Vec<i16> {
        (0..samples).map(|n| (n.wrapping_mul(2_654_435_761) >> 16) as i16 / (1 + (n / 999 % 7) as i16)).collect()
    }

    #[test]
    fn overlapping_windows_are_the_same_for_every_packet_size() {
        for dtype in [Dtype::FP32, Dtype::FP16] {
            let bench = || {
                Bench::<FbankPlugin>::new(model(dtype), mean)
                    .config(&config(32))
                    .without_post()
                    .scratch_limit(256 << 10)
            };
            let sound = sound(40_000);
            let whole = bench().stream("AUDIO", &sound, sound.len()).unwrap();
            let frames = (40_000 - 400) / 160 + 1;
            assert_eq!(whole.get("y").unwrap().shape(), [(frames - 45) / 32 + 1, 1]);
            for packet in [16, 320, 512, 1600] {
                assert_eq!(bench().stream("AUDIO", &sound, packet).unwrap(), whole, "{packet}");
            }
        }
    }

    #[test]
    fn a_standalone_model_answers_with_the_frames_that_are_ready() {
        let own = Signature::new().input("AUDIO", Dtype::FP32, &[-1]).output("x", Dtype::FP32, &[-1, 80]);
        let mut bench = Bench::<FbankPlugin>::new(own, |_| unreachable!()).config(&config(0)).scratch_limit(8 << 10);
        let audio = |samples: usize| [("AUDIO", Tensor::new(&[samples as u64], &vec![0.5f32; samples]))];
        let frames = |answer: &Tensors| answer.get("x").unwrap().shape();
        assert_eq!(frames(&bench.start(1, audio(399)).unwrap()), [0, 80]);
        assert_eq!(frames(&bench.step(1, audio(1)).unwrap()), [1, 80]);
        assert_eq!(frames(&bench.step(1, audio(480)).unwrap()), [3, 80]);
        assert!(bench.end(1, Tensors::new()).unwrap().is_empty());
        // A fixed number of frames: each packet completes one window.
        let own = Signature::new().input("AUDIO", Dtype::FP32, &[-1]).output("x", Dtype::FP16, &[1, 4, 80]);
        let mut bench = Bench::<FbankPlugin>::new(own, |_| unreachable!()).config(&config(2)).scratch_limit(8 << 10);
        assert_eq!(frames(&bench.start(1, audio(880)).unwrap()), [1, 4, 80]);
        assert_eq!(frames(&bench.step(1, audio(320)).unwrap()), [1, 4, 80]);
        let refused = bench.step(1, audio(100)).unwrap_err();
        assert_eq!(refused.text, "this packet completes 0 windows; each must complete one");
    }

    /// Like the feature extractor of a public repository: FP16 audio with its length, windows of a fixed size with theirs.
    #[test]
    fn a_feature_extractor_takes_and_gives_lengths() {
        let own = Signature::new().input("wav", Dtype::FP16, &[-1, -1]).input("wav_lens", Dtype::INT32, &[-1, 1]);
        let own = own.output("x", Dtype::FP16, &[-1, 45, 80]).output("x_lens", Dtype::INT64, &[-1, 1]);
        let settings =
            config(0).replace("\"AUDIO\"", "\"wav\"").replace("\"decode_chunk_size\": 0", "\"decode_chunk_size\": 8");
        let mut bench = Bench::<FbankPlugin>::new(own, |_| unreachable!()).config(&settings).scratch_limit(64 << 10);
        let audio = |samples: usize, lens: i32| {
            let wav = Tensor::of_floats(Dtype::FP16, &[1, samples as u64], &vec![0.25; samples]);
            [("wav", wav), ("wav_lens", Tensor::new(&[1, 1], &[lens]))]
        };
        let told = |answer: &Tensors| {
            (answer.get("x").unwrap().shape(), answer.get("x_lens").unwrap().values::<i64>().unwrap())
        };
        assert_eq!(told(&bench.start(1, audio(8000, 7440)).unwrap()), (vec![1, 45, 80], vec![45]));
        assert_eq!(told(&bench.step(1, audio(5120, 5120)).unwrap()), (vec![1, 45, 80], vec![45]));
        let refused = bench.step(1, audio(10, 11)).unwrap_err();
        assert_eq!(refused.text, "[11] is no number of samples; the audio has 10");
        let last = bench.end(1, audio(1600, 1600)).unwrap();
        assert_eq!(told(&last), (vec![1, 45, 80], vec![13 + 10]), "thirteen of the window before, and ten");
        let x = last.get("x").unwrap().floats().unwrap();
        assert!(x[..23 * 80].iter().all(|x| *x != 0.0) && x[23 * 80..].iter().all(|x| *x == 0.0));
    }

    #[test]
    fn settings_that_do_not_fit_are_refused_with_a_reason() {
        let error = |inner: Signature, shift| {
            Bench::<FbankPlugin>::new(inner, mean).config(&config(shift)).configure().unwrap_err()
        };
        assert_eq!(error(Signature::new(), 0), "the model has no input and no output \"x\"");
        assert_eq!(error(model(Dtype::FP32), 46), "shift is 46; a window has 45 frames");
        let narrow = Signature::new().input("x", Dtype::INT32, &[80]);
        assert_eq!(error(narrow, 0), "\"x\" is INT32 [80]; FP32 or FP16 [.., frames, bins] is wanted");
        let closed = Signature::new().input("x", Dtype::FP32, &[1, 45, 80]).output("y", Dtype::FP32, &[1, 7]);
        assert_eq!(error(closed, 0), "output \"y\" is [1, 7]; its first dimension must be open");
    }
}
