//! Audio for the voice activity model: 16 kHz mono, cut into the model's chunks.

use std::io::Cursor;

use super::Failed;

/// Samples of a chunk: 32 ms.
const CHUNK: usize = 512;
/// Samples at the end of the previous chunk that the model wants in front of each chunk.
const CONTEXT: usize = 64;
pub(super) const RATE: u32 = 16_000;

/// Reads a WAV file of 16 kHz, one channel, 16 bit. Samples are between -1 and 1.
pub(super) fn read(name: &str, wav: &[u8]) -> Result<Vec<f32>, Failed> {
    Ok(samples(name, wav)?.into_iter().map(|s| f32::from(s) / 32768.0).collect())
}

/// The unscaled samples of such a file.
pub(super) fn samples(name: &str, wav: &[u8]) -> Result<Vec<i16>, Failed> {
    let failed = |e: &dyn std::fmt::Display| Failed::Failed(format!("{name}: {e}"));
    let mut reader = hound::WavReader::new(Cursor::new(wav)).map_err(|e| failed(&e))?;
    let spec = reader.spec();
    if (spec.sample_rate, spec.channels, spec.bits_per_sample) != (RATE, 1, 16) {
        let got = format!("{} Hz, {} channels, {} bit", spec.sample_rate, spec.channels, spec.bits_per_sample);
        return Err(failed(&format!("{got}, but 16000 Hz, 1 channel, 16 bit is wanted")));
    }
    reader.samples::<i16>().collect::<Result<_, _>>().map_err(|e| failed(&e))
}

/// The model's inputs: each chunk has the end of the previous one in front, zeros at first. An incomplete last chunk is dropped.
pub(super) fn chunks(samples: &[f32]) -> Vec<Vec<f32>> {
    let mut context = vec![0.0; CONTEXT];
    let mut out = Vec::with_capacity(samples.len() / CHUNK);
    for chunk in samples.chunks_exact(CHUNK) {
        out.push([context.as_slice(), chunk].concat());
        context = chunk.get(CHUNK - CONTEXT..).unwrap_or_default().to_vec();
    }
    out
}

/// Like [`chunks`], but completes the last chunk with silence.
pub(super) fn chunks_with_silence(samples: &[f32]) -> Vec<Vec<f32>> {
    let mut samples = samples.to_vec();
    samples.resize(samples.len().next_multiple_of(CHUNK), 0.0);
    chunks(&samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_begins_with_the_end_of_the_one_before() {
        let samples: Vec<f32> = (0..1100).map(|n| n as f32).collect();
        let chunks = chunks(&samples);
        assert_eq!((chunks.len(), chunks[0].len()), (2, 576));
        assert_eq!((chunks[0][63], chunks[0][64]), (0.0, 0.0));
        assert_eq!((chunks[1][0], chunks[1][64]), (448.0, 512.0));
    }
}
