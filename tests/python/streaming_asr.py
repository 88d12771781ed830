#!/usr/bin/env python3
"""Sound to text through an ensemble in the layout of the public streaming repositories: every transcript of many sequences at once is that of a loop over
ONNX Runtime here. The features of both are those of the member feature_extractor, which are held against kaldi-native-fbank.

Prints one line; exit 1 on any mismatch.
"""

import concurrent.futures
import pathlib
import sys
import threading
import time

import numpy as np
import onnxruntime

from server import Api, addresses, metric
from transducer import BINS, BLANK, CONTEXT, SHIFT, UNKNOWN, WINDOW, fbank, sound

REPOSITORY = pathlib.Path(__file__).resolve().parents[2] / "examples/streaming_asr/repository"
STATES = {
    "cached_key": ("new_cached_key", (1, 8, 32), np.float16), "cached_conv": ("new_cached_conv", (1, 32, 2), np.float16),
    "cached_avg": ("new_cached_avg", (1, 32), np.float16), "processed_lens": ("next_processed_lens", (1, 1), np.int64),
}
FIRST_ID, FEATURES_ID = 7_500_000, 7_600_000
# Samples of a frame, from one frame to the next, of the first packet, and of each later one.
LENGTH, STEP = 400, 160
FIRST, LATER = (WINDOW - 1) * STEP + LENGTH, SHIFT * STEP
# FP16 has 11 bits: of numbers up to 16, steps of 2^-7.
TOLERANCE = 2**-6


def packets(number):
    """The parts of a sound, FP16: the first completes a window, each later one the next, and the last what is left."""
    samples = sound(number).astype(np.float16)
    ends = [FIRST, *range(FIRST + LATER, len(samples), LATER), len(samples)]
    return [part for part in np.split(samples, ends) if len(part) >= LENGTH]


def request(part):
    """Packets are filled up: what comes after wav_lens does not count."""
    filled = np.concatenate([part, np.full(100, 7, np.float16)])
    return {"WAV": filled[None], "WAV_LENS": np.array([[len(part)]], np.int32)}


def flags(number, step, parts):
    return {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step + 1 == len(parts)}


def features(api, number, parts):
    """x and x_lens of each packet, of the member alone; and how far they are from Kaldi's."""
    given, off, frames = [], 0.0, []
    for step, part in enumerate(parts):
        inputs = {"wav": part[None], "wav_lens": np.array([[len(part)]], np.int32)}
        answer = api.infer("feature_extractor", inputs, **flags(FEATURES_ID + number, step, parts))
        given.append((answer.as_numpy("x"), answer.as_numpy("x_lens")))
    want = fbank(np.concatenate(parts).astype(np.float32))
    for step, (x, lens) in enumerate(given):
        count = int(lens[0, 0])
        frames.append(count)
        off = max(off, float(np.abs(x[0, :count].astype(np.float32) - want[step * SHIFT:step * SHIFT + count]).max()))
        assert not x[0, count:].any(), "what is filled up is 0"
    assert frames[:-1] == [WINDOW] * (len(parts) - 1), frames
    return given, off


class Transducer:
    """The three graphs with one thread each, one sequence at a time."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        load = lambda name: onnxruntime.InferenceSession(str(REPOSITORY / name / f"1/{name}.onnx"), options, providers=["CPUExecutionProvider"])
        self.encoder, self.decoder, self.joiner = load("encoder"), load("decoder"), load("joiner")
        lines = (REPOSITORY / "scorer/tokens.txt").read_text(encoding="utf-8").splitlines()
        self.words = {int(number): word for word, number in (line.rsplit(" ", 1) for line in lines)}

    def transcripts(self, given):
        """The text after each packet of a sequence."""
        states = {name: np.zeros(shape, dtype) for name, (_, shape, dtype) in STATES.items()}
        context, said, texts = [BLANK] * CONTEXT, [], []
        decoded = self.decode(context)
        for x, x_lens in given:
            outputs = ["encoder_out", "encoder_out_lens", *(new for new, _, _ in STATES.values())]
            frames, lens, *new = self.encoder.run(outputs, {"x": x, "x_lens": x_lens[0], **states})
            states = dict(zip(states, new))
            for frame in frames[0][:lens[0]]:
                logits, = self.joiner.run(["logit"], {"encoder_out": frame[None], "decoder_out": decoded})
                token = int(logits[0].argmax())
                if token not in (BLANK, UNKNOWN):
                    said.append(token)
                    context = [*context[1:], token]
                    decoded = self.decode(context)
            texts.append("".join(self.words[token] for token in said).replace("\u2581", " "))
        return texts

    def decode(self, context):
        return self.decoder.run(["decoder_out"], {"y": np.array([context], np.int64)})[0][:, 0]


def served(options, number, parts, together):
    """The transcript after each packet."""
    api, texts = Api(("grpc", "http")[number % 2], getattr(options, ("grpc", "http")[number % 2])), []
    together.wait()
    for step, part in enumerate(parts):
        answer = api.infer("transducer", request(part), **flags(FIRST_ID + number, step, parts)).as_numpy("TRANSCRIPTS")
        assert answer.shape == (1, 1), answer.shape
        texts.append(answer[0, 0].decode())
    api.client.close()
    return texts


def main():
    parser = addresses(__doc__)
    parser.add_argument("--sequences", type=int, default=64, help="default %(default)s")
    options = parser.parse_args()
    transducer, parts = Transducer(), [packets(number) for number in range(options.sequences)]
    api, want, worst = Api("grpc", options.grpc), [], 0.0
    for number, part in enumerate(parts):
        given, off = features(api, number, part)
        want.append(transducer.transcripts(given))
        worst = max(worst, off)
    began, together = time.monotonic(), threading.Barrier(options.sequences)
    with concurrent.futures.ThreadPoolExecutor(options.sequences) as pool:
        heard = list(pool.map(lambda number: served(options, number, parts[number], together), range(options.sequences)))
    took = time.monotonic() - began
    wrong = [number for number in range(options.sequences) if heard[number] != want[number]]
    for number in wrong:
        print(f"sequence {number}: {heard[number]}, not {want[number]}", file=sys.stderr)
    if worst > TOLERANCE:
        print(f"features are {worst} off kaldi-native-fbank", file=sys.stderr)
    count = lambda name: metric(options.metrics, "nv_inference_count", model=name)
    batch = {name: count(name) / max(1, metric(options.metrics, "nv_inference_exec_count", model=name)) for name in ("encoder", "decoder", "joiner")}
    words = sum(len(texts[-1].split()) for texts in want)
    print(
        f"streaming_asr: {options.sequences} sequences at once, {sum(map(len, parts))} packets of {BINS} bins, {words} words in {took:.1f} s, equal to a loop "
        f"over ONNX Runtime {onnxruntime.__version__}: wrong: {len(wrong)}; features {worst:.4f} off; mean batch: "
        + ", ".join(f"{name} {size:.1f}" for name, size in batch.items()))
    return 1 if wrong or worst > TOLERANCE or words == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
