#!/usr/bin/env python3
"""tritonclient over a model of the stateful backend, as that backend's own example client uses it: it learns the tensors from the model's
configuration, sends sequences over unary calls and a stream, and compares every answer with sums of its own.

The server holds `accumulate`. Prints one line; exit 1 on any mismatch.
"""

import queue
import sys

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from server import addresses, both

MODEL = "accumulate"
rng = np.random.default_rng(3)
wrong, count = [], 0


def equal(what, got, want):
    global count
    count += 1
    if got != want:
        wrong.append(f"{what}: got {got!r}, want {want!r}")


def near(what, got, want):
    global count
    count += 1
    if got.shape != want.shape or not np.allclose(got, want, rtol=1e-5, atol=1e-5):
        wrong.append(f"{what}: got {got!r}, want {want!r}")


def segments(shape, sequences, steps):
    return rng.random((sequences, steps, *shape), dtype=np.float32)


def expected(values):
    """What the model gives for the steps of one sequence."""
    kept, outputs = np.zeros(5, np.float32), []
    for value in values:
        kept = kept + value.reshape(4, 5).sum(axis=0)
        outputs.append(value + kept)
    return outputs


def over(api, first):
    values = segments((1, 4, 1, 5), 6, 5)
    for step in range(5):
        for n in range(6):
            options = {"sequence_id": first + n, "sequence_start": step == 0, "sequence_end": step == 4}
            result = api.infer(MODEL, {"Input": values[n][step]}, **options)
            near(f"{api.name}, sequence {n}, step {step}", result.as_numpy("Output"), expected(values[n])[step])
    try:
        api.infer(MODEL, {"Input": values[0][0]}, sequence_id=first)
        wrong.append(f"{api.name}: a sequence that ended was accepted")
    except InferenceServerException as refusal:
        equal(f"{api.name}, ended", "must specify the START flag" in refusal.message(), True)
    try:
        api.infer(MODEL, {"Input": np.zeros((1, 4, 2, 5), np.float32)}, sequence_id=first, sequence_start=True)
        wrong.append(f"{api.name}: two rows were accepted")
    except InferenceServerException as refusal:
        equal(f"{api.name}, rows", "unexpected shape for input 'Input'" in refusal.message(), True)


def streamed(address):
    """All sequences on one stream, as the backend's example does it."""
    values, answers = segments((1, 4, 1, 5), 8, 6), queue.Queue()
    with tritonclient.grpc.InferenceServerClient(address) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for step in range(6):
            for n in range(8):
                tensor = tritonclient.grpc.InferInput("Input", [1, 4, 1, 5], "FP32")
                tensor.set_data_from_numpy(values[n][step])
                client.async_stream_infer(
                    MODEL, [tensor], request_id=f"{n}_{step}", sequence_id=900 + n, sequence_start=step == 0, sequence_end=step == 5
                )
        for _ in range(48):
            result, error = answers.get(timeout=60)
            if error is not None:
                wrong.append(f"stream: {error}")
                continue
            n, step = (int(part) for part in result.get_response().id.split("_"))
            near(f"stream, sequence {n}, step {step}", result.as_numpy("Output"), expected(values[n])[step])
        client.stop_stream()


def main():
    options = addresses(__doc__).parse_args()
    grpc, http = both(options)
    config = grpc.client.get_model_config(MODEL, as_json=True)["config"]
    equal("dims", [int(dim) for dim in config["input"][0]["dims"]], [4, -1, 5])
    equal("backend", config["backend"], "stateful")
    equal("corrid", config["sequence_batching"]["control_input"][2]["name"], "CORRID")
    equal("parameter", config["parameters"]["infer_end_requests"]["string_value"], "1")
    metadata = http.client.get_model_metadata(MODEL)
    equal("inputs", [(i["name"], i["datatype"], i["shape"]) for i in metadata["inputs"]], [("Input", "FP32", [-1, 4, -1, 5])])
    equal("outputs", [o["name"] for o in metadata["outputs"]], ["Output"])
    over(grpc, 100)
    over(http, 200)
    streamed(options.grpc)
    print(f"stateful: {count} checks, {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
