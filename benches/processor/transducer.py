#!/usr/bin/env python3
"""A streaming transducer in a loop over ONNX Runtime, one sequence after the other on one thread. `cargo bench --bench processor -- --only transducer` prints it
beside the same repository served. Windows are random numbers between -1 and 1, as those of the bench.

Prints JSON: microseconds of CPU and calls of the decoder for each window, and the version of ONNX Runtime.
"""

import json
import pathlib
import sys
import time

import numpy as np
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))
from transducer import BINS, WINDOW, Transducer  # noqa: E402

SEQUENCES, WINDOWS = int(sys.argv[1]), int(sys.argv[2])


def main():
    transducer, random = Transducer(), np.random.default_rng(1)
    parts = random.uniform(-1, 1, (SEQUENCES, WINDOWS, 1, WINDOW, BINS)).astype(np.float32)
    transducer.tokens(parts[0])
    began = time.process_time()
    tokens = sum(len(step) for part in parts for step in transducer.tokens(part))
    took = time.process_time() - began
    windows = SEQUENCES * WINDOWS
    # The decoder is called once for each token, and once for the beginning of a sequence.
    print(json.dumps({"cpu_us": took * 1e6 / windows, "decoder_calls": (tokens + SEQUENCES) / windows, "version": onnxruntime.__version__}))


if __name__ == "__main__":
    main()
