#!/usr/bin/env python3
"""Raw PCM of other rates and in µ-law through a processor: the probabilities are those of ONNX Runtime on sound that is decoded, resampled and cut into
windows here. The sums of the resampler are written out in its order, so that they are equal to the last bit.

Prints one line; exit 1 on any mismatch.
"""

import math
import sys

import numpy as np
import onnxruntime

from pcm import by_calls, pcm, windows
from server import addresses
from vad import SAMPLES, Vad

REACH = 24
# Models of the server: samples a second, and whether they take µ-law.
MODELS = {"pcm_8": (8_000, False), "pcm_16": (16_000, True), "pcm_48": (48_000, False), "mulaw_8": (8_000, True)}
MILLIS = (7, 20, 100, None)


def to_mulaw(samples):
    """G.711: sign, exponent and mantissa of a biased sample, inverted."""
    sign = np.where(samples < 0, 0x80, 0)
    size = np.minimum(np.abs(samples.astype(np.int32)), 32635) + 0x84
    exponent = np.floor(np.log2(size)).astype(np.int32) - 7
    mantissa = size >> (exponent + 3) & 15
    return (~(sign | exponent << 4 | mantissa) & 255).astype(np.uint8)


def from_mulaw(codes):
    codes = ~codes.astype(np.int32) & 255
    size = (((codes & 15) << 3) + 0x84 << (codes >> 4 & 7)) - 0x84
    return np.where(codes & 0x80, -size, size).astype(np.int16)


def weights(shift, band):
    """A windowed sinc."""
    def weight(n):
        x = n - REACH - shift
        sinc = 1.0 if x == 0 else math.sin(math.pi * band * x) / (math.pi * band * x)
        return band * sinc * (0.5 + 0.5 * math.cos(math.pi * x / (REACH + 1)))
    found = [weight(n) for n in range(2 * REACH + 1)]
    total = 0.0
    for each in found:
        total += each
    return [np.float32(each / total) for each in found]


def resampled(samples, rate):
    """The sound at 16 kHz, between -1 and 1."""
    if rate == 16_000:
        return samples.astype(np.float32) / np.float32(32768)
    phases, stride = ([weights(0, 0.96), weights(0.5, 0.96)], 1) if rate == 8_000 else ([weights(0, 0.96 / 3)], 3)
    quiet = np.zeros(REACH, np.float32)
    raw = np.concatenate([quiet, samples.astype(np.float32), quiet])
    starts = np.arange(0, len(samples), stride)
    out = np.empty((len(starts), len(phases)), np.float32)
    for phase, factors in enumerate(phases):
        total = np.zeros(len(starts), np.float32)
        for tap, factor in enumerate(factors):
            total += raw[starts + tap] * factor
        out[:, phase] = total / np.float32(32768)
    return out.ravel()


def sounds(rate):
    """Sounds at this rate, made of those at 16 kHz."""
    for path in sorted(SAMPLES.glob("*.wav")):
        samples = pcm(path)[:48_000]
        yield path.name, {8_000: lambda: samples[::2], 16_000: lambda: samples, 48_000: lambda: np.repeat(samples, 3)}[rate]()


def main():
    options = addresses(__doc__).parse_args()
    vad, wrong, count, number = Vad(), [], 0, 7_100_000
    for model, (rate, is_mulaw) in MODELS.items():
        options.model = model
        for name, samples in sounds(rate):
            sent = to_mulaw(samples) if is_mulaw else samples
            want = vad.whole(windows(resampled(from_mulaw(sent) if is_mulaw else samples, rate) * np.float32(32768)))
            for millis in MILLIS:
                number += 1
                size = rate * millis // 1000 if millis else len(sent)
                heard = by_calls(options, number, [sent[at:at + size] for at in range(0, len(sent), size)])
                count += len(heard)
                if not np.array_equal(heard, want):
                    off = np.abs(heard - want).max() if len(heard) == len(want) else None
                    wrong.append(f"{model}, {name}, packets of {millis} ms: {len(heard)} answers of {len(want)}, off by {off}")
    for fault in wrong:
        print(fault, file=sys.stderr)
    print(f"pcm formats: {', '.join(MODELS)}: {count} probabilities, equal to ONNX Runtime {onnxruntime.__version__} bit for bit; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
