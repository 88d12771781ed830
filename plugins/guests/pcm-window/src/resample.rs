//! Changes the rate of samples: twice, a third, or as it is. Packets do not matter, for what the filter still needs is kept between them.

use std::f64::consts::PI;

/// Input samples on either side of an output sample that the filter looks at.
const REACH: usize = 24;

/// A filter with several phases: for each output sample that lies differently between input samples, its weights.
#[derive(Debug, Default)]
pub struct Resampler {
    /// Weights of `2 * reach + 1` input samples.
    phases: Vec<Vec<f32>>,
    /// Input samples on either side.
    reach: usize,
    /// Input samples that `phases.len()` output samples stand for.
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

    /// What lies before the first sample.
    pub fn silence(&self) -> Vec<i16> {
        vec![0; self.reach]
    }

    /// Takes the input samples that are no longer needed out of `raw`, and adds output samples between -1 and 1. After the last input sample there is
    /// silence.
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
                // The order of additions is always the same, so that packets do not matter to the last bit.
                let sum: f32 = seen.iter().zip(phase).map(|(sample, weight)| f32::from(*sample) * weight).sum();
                out.push(sum / 32768.0);
            }
            at += self.stride;
        }
        raw.drain(..at.min(raw.len()));
    }
}

/// A windowed sinc, `shift` input samples off the middle. `band` is the part of the input's band that passes.
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
