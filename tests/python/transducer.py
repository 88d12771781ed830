#!/usr/bin/env python3
"""A streaming transducer, served: an encoder with four states, and a processor that calls its decoder and its joiner. Many sequences at once give the tokens
of a loop over ONNX Runtime here.

Prints one line; exit 1 on any mismatch.
"""

import concurrent.futures
import pathlib
import sys
import time
import wave

import kaldi_native_fbank
import numpy as np
import onnxruntime

from server import Api, addresses, metric
from vad import SAMPLES

REPOSITORY = pathlib.Path(__file__).resolve().parents[2] / "examples/transducer/repository"
WINDOW, SHIFT, BINS, CONTEXT, BLANK, UNKNOWN = 45, 32, 80, 2, 0, 49
STATES = {"cached_key": ((1, 8, 32), np.float32), "cached_conv": ((1, 32, 2), np.float32), "cached_avg": ((1, 32), np.float32), "cached_len": ((1, 1), np.int64)}
FIRST_ID = 7_200_000


def fbank(samples, snip_edges=True):
    """Frames of numbers between -1 and 1, as Kaldi computes them without dither."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither, options.frame_opts.snip_edges, options.mel_opts.num_bins = 0, snip_edges, BINS
    computer = kaldi_native_fbank.OnlineFbank(options)
    computer.accept_waveform(16_000, samples.tolist())
    computer.input_finished()
    return np.array([computer.get_frame(n) for n in range(computer.num_frames_ready)], np.float32).reshape(-1, BINS)


def windows(frames):
    """[windows, 1, 45, 80]: each begins 32 frames after the one before. Rounded, so that the encoder's sums are exact."""
    count = (len(frames) - WINDOW) // SHIFT + 1
    return np.stack([np.round(frames[n * SHIFT:n * SHIFT + WINDOW] * 16) / 16 for n in range(count)])[:, None].astype(np.float32)


class Transducer:
    """The three models with one thread each, one sequence at a time."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        load = lambda name: onnxruntime.InferenceSession(str(REPOSITORY / name / "1/model.onnx"), options, providers=["CPUExecutionProvider"])
        self.encoder, self.decoder, self.joiner = load("encoder"), load("decoder"), load("joiner")

    def tokens(self, windows):
        """The tokens of each window of a sequence."""
        states = {name: np.zeros(shape, dtype) for name, (shape, dtype) in STATES.items()}
        context, said = [BLANK] * CONTEXT, []
        decoded = self.decode(context)
        for window in windows:
            frames, *new = self.encoder.run(["encoder_out", *(f"new_{name}" for name in states)], {"x": window, **states})
            states, tokens = dict(zip(states, new)), []
            for frame in frames[0]:
                logits, = self.joiner.run(["logit"], {"encoder_out": frame[None], "decoder_out": decoded})
                token = int(logits[0].argmax())
                if token not in (BLANK, UNKNOWN):
                    tokens.append(token)
                    context = [*context[1:], token]
                    decoded = self.decode(context)
            said.append(tokens)
        return said

    def decode(self, context):
        return self.decoder.run(["decoder_out"], {"y": np.array([context], np.int64)})[0]


def sound(number):
    """A part of a sound, another one for each sequence."""
    files = sorted(SAMPLES.glob("*.wav"))
    with wave.open(str(files[number % len(files)])) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / np.float32(32768)
    return np.roll(samples, 997 * number)[:32_000] * np.float32(1 - number / 100)


def served(options, number, parts):
    """The tokens of each window: of one model, or of the scorer with the frames that the encoder gave."""
    api, said = Api("grpc", options.grpc), []
    for step, part in enumerate(parts):
        flags = {"sequence_id": FIRST_ID + number, "sequence_start": step == 0, "sequence_end": step + 1 == len(parts)}
        if options.members:
            frames = api.infer("encoder", {"x": part}, **flags).as_numpy("encoder_out")
            answer = api.infer("scorer", {"encoder_out": frames}, **flags)
        else:
            answer = api.infer(options.model, {"x": part}, **flags)
        said.append(answer.as_numpy("TOKENS").ravel().tolist())
    return said


def main():
    parser = addresses(__doc__)
    parser.add_argument("--model", default="asr", help="default %(default)s")
    parser.add_argument("--members", action="store_true", help="ask the models encoder and scorer one after the other")
    parser.add_argument("--sequences", type=int, default=64, help="default %(default)s")
    options = parser.parse_args()
    transducer, parts = Transducer(), [windows(fbank(sound(number))) for number in range(options.sequences)]
    began = time.process_time()
    want = [transducer.tokens(part) for part in parts]
    looped = time.process_time() - began
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.sequences) as pool:
        heard = list(pool.map(lambda number: served(options, number, parts[number]), range(options.sequences)))
    took = time.monotonic() - began
    wrong = [number for number in range(options.sequences) if heard[number] != want[number]]
    for number in wrong:
        print(f"sequence {number}: {heard[number]}, not {want[number]}", file=sys.stderr)
    batch = {name: metric(options.metrics, "nv_inference_count", model=name) / max(1, metric(options.metrics, "nv_inference_exec_count", model=name)) for name in ("encoder", "asr", "scorer", "decoder", "joiner")}
    tokens, frames = sum(len(step) for said in want for step in said), sum(len(part) for part in parts) * 8
    print(
        f"transducer: {options.sequences} sequences at once, {frames} frames, {tokens} tokens in {took:.1f} s, equal to a loop over ONNX Runtime "
        f"{onnxruntime.__version__} ({looped:.1f} s of CPU): wrong: {len(wrong)}; mean batch: "
        + ", ".join(f"{name} {size:.1f}" for name, size in batch.items() if size))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
