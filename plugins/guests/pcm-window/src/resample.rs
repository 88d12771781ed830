//! Changes the sample rate with a FIR filter: from 8, 16 or 48 kHz to 16 kHz.
//!
//! The result does not depend on how the input is cut into packets, because the caller keeps the input samples that the filter still needs.

use std::f64::consts::PI;

/// Number of input samples on each side of an output sample that the filter uses.
const REACH: usize = 24;

/// A polyphase filter. Each phase has the weights for output samples at one position between two input samples.
#[derive(Debug, Default)]
pub struct Resampler {
    /// The `2 * reach + 1` weights of each phase.
    phases: Vec<Vec<f32>>,
    /// Number of input samples on each side of an output sample.
    reach: usize,
    /// Number of input samples that `phases.len()` output samples replace.
    stride: usize,
}

impl Resampler {
    pub fn new(from: u32, to: u32) -> Result<Resampler, String> {
        match (from, to) {
            (16_000, 16_000) => Ok(Resampler { phases: vec![vec![1.0]], reach: 0, stride: 1 }),
            (8_000, 16_000) => {
                Ok(Resampler { phases: vec![weights(0.0, 0.96), weights(0.5, 0.96)], reach: REACH, stride: 1 })
            }
            (48_000, 16_000) => Ok(Resampler { phases: vec![weights(0.0, 0.96 / 3.0)], reach: REACH, stride: 3 }),
            _ => Err(format!("rate is {from}; it may be 8000, 16000 or 48000")),
        }
    }

    /// Whether both rates are the same.
    fn is_identity(&self) -> bool {
        self.reach == 0 && self.stride == 1
    }

    /// The samples that the filter assumes before the first one.
    pub fn silence(&self) -> Vec<i16> {
        vec![0; self.reach]
    }

    /// Appends the output samples, between -1 and 1, for the input samples in `raw`. Removes the input samples that the filter no longer needs.
    /// If `is_last`, silence follows the input.
    pub fn advance(&self, raw: &mut Vec<i16>, out: &mut Vec<f32>, is_last: bool) {
        if is_last {
            raw.resize(raw.len() + self.reach, 0);
        }
        if self.is_identity() {
            out.extend(raw.drain(..).map(|sample| f32::from(sample) / 32768.0));
            return;
        }
        let taps = 2 * self.reach + 1;
        let mut at = 0;
        while let Some(seen) = raw.get(at..at + taps) {
            for phase in &self.phases {
                // The additions always have the same order, so the sum is the same to the last bit for any packet size.
                let sum: f32 = seen.iter().zip(phase).map(|(sample, weight)| f32::from(*sample) * weight).sum();
                out.push(sum / 32768.0);
            }
            at += self.stride;
        }
        raw.drain(..at.min(raw.len()));
    }
}

/// The weights of a sinc filter with a Hann window, centered `shift` input samples after the middle. `band` is the cut-off frequency, as a part
/// of the input's Nyquist frequency.
fn weights(shift: f64, band: f64) -> Vec<f32> {
    let reach = REACH as f64;
    let weight = |n: usize| {
        let x = n as f64 - reach - shift;
        let sinc = if x == 0.0 { 1.0 } else { (PI * band * x).sin() / (PI * band * x) };
        let hann = 0.5 + 0.5 * (PI * x / (reach + 1.0)).cos();
        band * sinc * hann
    };
    let all: Vec<f64> = (0..=2 * REACH).map(weight).collect();
    let sum: f64 = all.iter().sum();
    all.into_iter().map(|weight| (weight / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hertz: f64) -> Vec<i16> {
        let at = |n: u32| (PI * 2.0 * hertz * f64::from(n) / f64::from(rate)).sin() * 16_000.0;
        (0..rate / 4).map(|n| at(n) as i16).collect()
    }

    fn resampled(rate: u32, samples: &[i16]) -> Vec<f32> {
        let resampler = Resampler::new(rate, 16_000).unwrap();
        let (mut raw, mut out) = (resampler.silence(), Vec::new());
        raw.extend(samples);
        resampler.advance(&mut raw, &mut out, true);
        out
    }

    #[test]
    fn resampling_preserves_a_tone() {
        for rate in [8_000, 16_000, 48_000] {
            let out = resampled(rate, &tone(rate, 440.0));
            let want = tone(16_000, 440.0);
            assert_eq!(out.len(), want.len(), "{rate}");
            let inside = 200..want.len() - 200;
            let off = inside.map(|n| (out[n] - f32::from(want[n]) / 32768.0).abs()).fold(0.0, f32::max);
            assert!(off < 0.002, "{rate}: {off}");
        }
    }

    #[test]
    fn resampling_removes_a_tone_above_the_nyquist_frequency() {
        let out = resampled(48_000, &tone(48_000, 12_000.0));
        let loudest = out[200..out.len() - 200].iter().fold(0.0f32, |most, s| most.max(s.abs()));
        assert!(loudest < 0.005, "{loudest}");
    }
}
