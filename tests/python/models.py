#!/usr/bin/env python3
"""What the models of the repository promise, checked with ONNX Runtime alone: no server takes part.

Prints one line; exit 1 on any mismatch.
"""

import sys

import numpy as np
import onnxruntime

from vad import REPOSITORY, SAMPLES, Vad, chunks, read_wav


def load(name):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(REPOSITORY / name / "1" / "model.onnx"), options, providers=["CPUExecutionProvider"])


def vad_sounds(vad):
    speech, noise = (vad.whole(chunks(read_wav(SAMPLES / f"{name}.wav"))) for name in ("speech", "noise"))
    assert speech.max() >= 0.99 and (speech > 0.5).mean() > 0.5, f"speech: {speech.max()}, {(speech > 0.5).mean()}"
    assert noise.max() <= 0.10, f"noise: {noise.max()}"
    return f"speech {speech.max():.3f}, noise {noise.max():.3f}"


def vad_rows(vad):
    """Rows of a batch that differ, each at another place of the sound, give what each gives alone, bit for bit."""
    sound, compared = chunks(read_wav(SAMPLES / "speech.wav")), 0
    for batch in (2, 3, 8, 17, 64):
        steps, starts = 24, [(7 * row) % (len(sound) - 24) for row in range(batch)]
        state, together = np.zeros((2, batch, 128), np.float32), []
        for step in range(steps):
            answer, state = vad.step(np.stack([sound[start + step] for start in starts]), state)
            together.append(answer)
        alone = np.stack([vad.whole(sound[start : start + steps]) for start in starts], axis=1)
        assert np.array_equal(np.stack(together), alone), f"batch {batch}: rows depend on their mates"
        compared += alone.size
    return f"{compared} rows batched = alone"


def gru():
    """Chunked equals whole, batched equals alone, bit for bit."""
    model, rng = load("gru"), np.random.default_rng(5)
    x = rng.standard_normal((6, 20, 8)).astype(np.float32)

    def run(x, h):
        return model.run(["OUTPUT", "H_OUT"], {"INPUT": x, "H": h})

    whole, end = run(x, np.zeros((6, 16), np.float32))
    h, parts = np.zeros((6, 16), np.float32), []
    for a, b in ((0, 1), (1, 4), (4, 11), (11, 20)):
        part, h = run(x[:, a:b], h)
        parts.append(part)
    assert np.array_equal(np.concatenate(parts, axis=1), whole) and np.array_equal(h, end), "gru: chunked differs from whole"
    for row in range(6):
        alone, _ = run(x[row : row + 1], np.zeros((1, 16), np.float32))
        assert np.array_equal(alone[0], whole[row]), f"gru: row {row} depends on its mates"
    assert 0.05 < np.abs(whole).mean() < 0.95, "gru: answers look degenerate"
    return "gru chunked = whole"


def accumulators():
    """INPUT + INPUT_STATE where READY and not START; no other value of INPUT_STATE, even NaN, gets through."""
    flags = [(start, ready) for start in (0, 1) for ready in (0, 1)]

    def column(values, dtype):
        return np.array(values, dtype).reshape(-1, 1)

    start, ready = column([s for s, _ in flags], np.int32), column([r for _, r in flags], np.int32)
    want = column([7 + (100 if r and not s else 0) for s, r in flags], np.int32)
    rows = {"INPUT": np.full((4, 1), 7, np.int32), "INPUT_STATE": np.full((4, 1), 100, np.int32)}
    controls = {"START": start, "READY": ready, "END": 1 - ready, "CORRID": column([1, 2**63, 2**64 - 1, 0], np.uint64)}
    output, state, seen, corrid = load("accumulator_int32").run(["OUTPUT", "OUTPUT_STATE", "SEEN", "CORRID_OUT"], rows | controls)
    assert np.array_equal(output, want) and np.array_equal(state, want), f"accumulator_int32: {output.T}"
    assert np.array_equal(seen, np.hstack([start, 1 - ready, ready])) and np.array_equal(corrid, controls["CORRID"]), "accumulator_int32: echo"
    dirty = column([100 if r and not s else np.nan for s, r in flags], np.float32)
    feeds = {"INPUT": np.full((4, 1), 7, np.float32), "INPUT_STATE": dirty}
    feeds |= {"START": start.astype(np.float32), "READY": ready.astype(bool)}
    output, state = load("accumulator_fp32").run(["OUTPUT", "OUTPUT_STATE"], feeds)
    assert np.array_equal(output, want.astype(np.float32)) and np.array_equal(state, output), f"accumulator_fp32: {output.T}"
    return "accumulators"


def main():
    vad = Vad()
    done = [vad_sounds(vad), vad_rows(vad), gru(), accumulators()]
    print(f"models ok (ONNX Runtime {onnxruntime.__version__}): {'; '.join(done)}")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as wrong:
        sys.exit(f"models: {wrong}")
