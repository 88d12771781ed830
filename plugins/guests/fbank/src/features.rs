//! Log-mel filter banks as in Kaldi, without dither: frames of 25 ms, one each 10 ms, a Povey window, power spectra.
//!
//! A frame depends only on its samples, so the size of packets has no effect.

use std::f64::consts::PI;

/// Kaldi's pre-emphasis: the part of a sample that is subtracted from the next one.
const PREEMPHASIS: f32 = 0.97;
const FRAME_MS: u32 = 25;
const SHIFT_MS: u32 = 10;

/// The options of the filter banks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FbankOptions {
    /// Samples per second.
    pub rate: u32,
    /// Number of filters.
    pub bins: usize,
    /// Lower edge of the lowest filter, Hz.
    pub low: f32,
    /// Upper edge of the highest filter, Hz; 0 or less counts from half the rate down.
    pub high: f32,
    /// Whether the first frame begins with the first sample. Otherwise frames are centred, and the sound is mirrored at its ends.
    pub snip_edges: bool,
}

/// Computes frames.
#[derive(Debug, Default)]
pub struct Fbank {
    /// Samples of a frame, and the distance between two frames.
    length: usize,
    shift: usize,
    snip_edges: bool,
    window: Vec<f32>,
    spectrum: Spectrum,
    filters: Vec<Filter>,
}

/// The samples of a sound that later frames need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sound {
    /// Number of computed frames.
    pub frames: u64,
    /// Samples from the first one that the next frame needs.
    pub samples: Vec<f32>,
}

/// A triangle over some bins of the spectrum.
#[derive(Debug)]
struct Filter {
    first: usize,
    weights: Vec<f32>,
}

impl Fbank {
    pub fn new(options: FbankOptions) -> Result<Fbank, String> {
        let FbankOptions { rate, bins, low, high, snip_edges } = options;
        if !(1000..=384_000).contains(&rate) {
            return Err(format!("rate is {rate}; it may be 1000 to 384000"));
        }
        let half = rate as f32 / 2.0;
        let high = if high <= 0.0 { half + high } else { high };
        if !(0.0 <= low && low < high && high <= half) {
            return Err(format!("filters from {low} to {high} Hz do not fit in 0 to {half} Hz"));
        }
        let [length, shift] = [FRAME_MS, SHIFT_MS].map(|ms| (rate * ms / 1000) as usize);
        let spectrum = Spectrum::new(length.next_power_of_two());
        let filters = filters(spectrum.size, rate, bins, (low, high))?;
        let povey = |n: usize| (0.5 - 0.5 * (2.0 * PI * n as f64 / (length - 1) as f64).cos()).powf(0.85) as f32;
        Ok(Fbank { length, shift, snip_edges, window: (0..length).map(povey).collect(), spectrum, filters })
    }

    /// Number of values of a frame.
    pub fn bins(&self) -> usize {
        self.filters.len()
    }

    /// Computes the frames whose samples are complete, in order, and drops samples that no later frame needs. At the end of the sound it
    /// also computes the frames that reach beyond it.
    pub fn advance(&self, sound: &mut Sound, is_last: bool) -> Vec<f32> {
        let first = self.first_kept(sound.frames);
        let total = first + sound.samples.len();
        let mut features = Vec::new();
        while self.is_ready(sound.frames, total, is_last) {
            let start = self.start(sound.frames);
            let sample = |n: usize| sound.samples.get(mirrored(start + n as i64, total) - first);
            let frame: Vec<f32> = (0..self.length).map(|n| sample(n).copied().unwrap_or_default()).collect();
            self.add_frame(frame, &mut features);
            sound.frames += 1;
        }
        let needed = self.first_kept(sound.frames).min(total);
        sound.samples.drain(..needed - first);
        features
    }

    /// The first sample of a frame; below 0 if the sound is mirrored there.
    fn start(&self, frame: u64) -> i64 {
        let start = frame as i64 * self.shift as i64;
        if self.snip_edges { start } else { start + (self.shift / 2) as i64 - (self.length / 2) as i64 }
    }

    /// The first sample that this frame and later ones need.
    fn first_kept(&self, frame: u64) -> usize {
        usize::try_from(self.start(frame)).unwrap_or(0)
    }

    fn is_ready(&self, frame: u64, total: usize, is_last: bool) -> bool {
        let is_whole = self.start(frame) + self.length as i64 <= total as i64;
        if self.snip_edges {
            return is_whole;
        }
        let centred = (total + self.shift / 2) / self.shift;
        frame < centred as u64 && (is_last || is_whole)
    }

    fn add_frame(&self, mut frame: Vec<f32>, features: &mut Vec<f32>) {
        let mean = frame.iter().sum::<f32>() / frame.len() as f32;
        let mut before = frame[0] - mean;
        for (sample, weight) in frame.iter_mut().zip(&self.window) {
            let now = *sample - mean;
            *sample = (now - PREEMPHASIS * before) * weight;
            before = now;
        }
        let power = self.spectrum.power(&frame);
        for Filter { first, weights } in &self.filters {
            let energy: f32 = power[*first..].iter().zip(weights).map(|(power, weight)| power * weight).sum();
            features.push(energy.max(f32::EPSILON).ln());
        }
    }
}

/// The index of a sample in a sound that is mirrored at both ends.
fn mirrored(mut at: i64, total: usize) -> usize {
    let total = total as i64;
    while at < 0 || at >= total {
        at = if at < 0 { -at - 1 } else { 2 * total - 1 - at };
    }
    at as usize
}

fn mel(hertz: f32) -> f32 {
    1127.0 * (1.0 + hertz / 700.0).ln()
}

fn filters(size: usize, rate: u32, bins: usize, (low, high): (f32, f32)) -> Result<Vec<Filter>, String> {
    let (low, high) = (mel(low), mel(high));
    let step = (high - low) / (bins + 1) as f32;
    let width = rate as f32 / size as f32;
    let filter = |bin: usize| {
        let left = low + bin as f32 * step;
        let (centre, right) = (left + step, left + 2.0 * step);
        let weight = |n: usize| {
            let at = mel(width * n as f32);
            let weight = if at <= centre { (at - left) / (centre - left) } else { (right - at) / (right - centre) };
            (left < at && at < right).then_some(weight)
        };
        let weights: Vec<(usize, f32)> = (0..size / 2).filter_map(|n| Some((n, weight(n)?))).collect();
        let (first, _) = *weights.first().ok_or(format!("{bins} filters are too many for this rate"))?;
        Ok(Filter { first, weights: weights.into_iter().map(|(_, weight)| weight).collect() })
    };
    (0..bins).map(filter).collect()
}

/// Power spectra of `size` samples, a power of two. Shorter frames are padded with silence.
#[derive(Debug, Default)]
struct Spectrum {
    size: usize,
    /// Cosine and sine of `n / size` of a turn, for half a turn.
    turns: Vec<(f64, f64)>,
}

impl Spectrum {
    fn new(size: usize) -> Spectrum {
        let turn = |n: usize| (2.0 * PI * n as f64 / size as f64).sin_cos();
        let turns = (0..size / 2).map(turn).map(|(sin, cos)| (cos, sin)).collect();
        Spectrum { size, turns }
    }

    fn power(&self, frame: &[f32]) -> Vec<f32> {
        let bits = self.size.trailing_zeros();
        let mut all = vec![(0.0, 0.0); self.size];
        for (n, sample) in frame.iter().enumerate() {
            all[n.reverse_bits() >> (usize::BITS - bits)] = (f64::from(*sample), 0.0);
        }
        let mut half = 1;
        while half < self.size {
            let stride = self.size / (2 * half);
            for block in all.chunks_exact_mut(2 * half) {
                let (even, odd) = block.split_at_mut(half);
                for ((a, b), (cos, sin)) in even.iter_mut().zip(odd).zip(self.turns.iter().step_by(stride)) {
                    let turned = (b.0 * cos + b.1 * sin, b.1 * cos - b.0 * sin);
                    (*a, *b) = ((a.0 + turned.0, a.1 + turned.1), (a.0 - turned.0, a.1 - turned.1));
                }
            }
            half *= 2;
        }
        all.iter().take(self.size / 2).map(|(re, im)| (re * re + im * im) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: FbankOptions = FbankOptions { rate: 16_000, bins: 80, low: 20.0, high: 0.0, snip_edges: true };

    fn sound(samples: u32) -> Vec<f32> {
        let sample = |n: u32| f32::from((n.wrapping_mul(2_654_435_761) >> 16) as i16) / 32768.0;
        (0..samples).map(sample).collect()
    }

    fn in_packets(fbank: &Fbank, sound: &[f32], packet: usize) -> Vec<f32> {
        let (mut kept, mut features) = (Sound::default(), Vec::new());
        for packet in sound.chunks(packet) {
            kept.samples.extend(packet);
            features.extend(fbank.advance(&mut kept, false));
            assert!(kept.samples.len() < 400 + 160, "{}", kept.samples.len());
        }
        features.extend(fbank.advance(&mut kept, true));
        features
    }

    #[test]
    fn the_packet_size_does_not_change_the_results() {
        for snip_edges in [true, false] {
            let fbank = Fbank::new(FbankOptions { snip_edges, ..OPTIONS }).unwrap();
            for samples in [1, 399, 400, 401, 5000] {
                let sound = sound(samples);
                let whole = in_packets(&fbank, &sound, sound.len());
                let samples = samples as usize;
                let frames = if snip_edges { (samples + 160).saturating_sub(400) / 160 } else { (samples + 80) / 160 };
                assert_eq!(whole.len(), frames * 80, "{samples}, {snip_edges}");
                for packet in [1, 159, 320, 512, 1600] {
                    assert_eq!(in_packets(&fbank, &sound, packet), whole, "{samples}, {snip_edges}, {packet}");
                }
            }
        }
    }

    #[test]
    fn a_tone_is_in_the_filter_of_its_frequency() {
        let fbank = Fbank::new(OPTIONS).unwrap();
        let hertz = 1000.0f32;
        let tone: Vec<f32> = (0..800u32).map(|n| (2.0 * PI as f32 * hertz * n as f32 / 16_000.0).sin()).collect();
        let features = in_packets(&fbank, &tone, 800);
        let frame = &features[..80];
        let loudest = (0..80).max_by(|a, b| frame[*a].total_cmp(&frame[*b])).unwrap();
        let step = (mel(8000.0) - mel(20.0)) / 81.0;
        assert_eq!(loudest, ((mel(hertz) - mel(20.0)) / step).round() as usize - 1);
        assert!(in_packets(&fbank, &[0.0; 400], 400).iter().all(|v| *v == f32::EPSILON.ln()), "silence is the floor");
    }

    #[test]
    fn the_power_spectrum_matches_a_direct_fourier_transform() {
        let (spectrum, frame) = (Spectrum::new(16), sound(13));
        let power = spectrum.power(&frame);
        for (k, power) in power.iter().enumerate() {
            let turn = |n: usize| (2.0 * PI * (n * k) as f64 / 16.0).sin_cos();
            let parts = frame.iter().enumerate().map(|(n, v)| (f64::from(*v) * turn(n).1, f64::from(*v) * turn(n).0));
            let (re, im) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            assert!((re * re + im * im - f64::from(*power)).abs() < 1e-6, "{k}");
        }
    }

    #[test]
    fn impossible_filter_bank_options_are_refused_with_a_reason() {
        let error = |options| Fbank::new(options).unwrap_err();
        assert_eq!(error(FbankOptions { rate: 100, ..OPTIONS }), "rate is 100; it may be 1000 to 384000");
        assert_eq!(
            error(FbankOptions { low: 9e3, ..OPTIONS }),
            "filters from 9000 to 8000 Hz do not fit in 0 to 8000 Hz"
        );
        assert_eq!(error(FbankOptions { bins: 500, ..OPTIONS }), "500 filters are too many for this rate");
    }
}
