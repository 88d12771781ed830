#!/usr/bin/env python3
"""Log-mel filter banks of the guest `fbank`, from packets of any size, beside those of kaldi-native-fbank.

The models pass each window of ten frames on as it is. Prints one line; exit 1 if a number is more than 1e-3 off or packets matter.
"""

import sys

import numpy as np

from pcm import packets, pcm
from server import Api, addresses
from transducer import fbank
from vad import SAMPLES

WINDOW, LIMIT, FIRST_ID = 10, 1e-3, 7_300_000
# Models of the server: whether their frames are centred, and the type of the frames.
MODELS = {"fbank_fp32": (True, np.float32), "fbank_centred": (False, np.float32), "fbank_fp16": (True, np.float16)}
MILLIS = (1, 20, 32, 100, None)


def served(api, model, number, parts):
    heard = []
    for step, part in enumerate(parts):
        answer = api.infer(model, {"AUDIO": part}, sequence_id=number, sequence_start=step == 0).as_numpy("y")
        heard.append(answer)
    rest = api.client.infer(model, [], sequence_id=number, sequence_end=True).as_numpy("y")
    return np.concatenate([*heard, *([] if rest is None else [rest])]).reshape(-1, 80)


def main():
    options = addresses(__doc__).parse_args()
    api, wrong, frames, number, worst = Api("grpc", options.grpc), [], 0, FIRST_ID, {}
    for model, (snip_edges, dtype) in MODELS.items():
        for path in sorted(SAMPLES.glob("*.wav")):
            samples = pcm(path)[:32_000]
            want = fbank(samples.astype(np.float32) / np.float32(32768), snip_edges)
            want = want[:len(want) // WINDOW * WINDOW]
            whole = None
            for millis in reversed(MILLIS if dtype == np.float32 else (20, None)):
                number += 1
                heard = served(api, model, number, packets(samples, millis))
                whole = heard if whole is None else whole
                if heard.dtype != dtype or not np.array_equal(heard, whole):
                    wrong.append(f"{model}, {path.name}: packets of {millis} ms give other frames than the whole")
            if whole.shape != want.shape:
                wrong.append(f"{model}, {path.name}: {len(whole)} frames, not {len(want)}")
                continue
            # FP16 has 11 bits: of numbers up to 16, steps of 2^-7.
            expected = want.astype(dtype)
            off = np.abs(whole.astype(np.float64) - expected.astype(np.float64)).max()
            worst[model] = max(worst.get(model, 0), round(float(off), 6))
            frames += len(want)
            if off > (LIMIT if dtype == np.float32 else 2**-7):
                wrong.append(f"{model}, {path.name}: off by {off}")
    for fault in wrong:
        print(fault, file=sys.stderr)
    print(f"fbank: {frames} frames, packets of {MILLIS} ms, beside kaldi-native-fbank: worst {worst}; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
