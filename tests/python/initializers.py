#!/usr/bin/env python3
"""State initializers in front of the GRU: a table of states by tenant, a prompt that is run once and kept, and a copy of another sequence. What the model
answers then is what ONNX Runtime answers from the same states, bit for bit, over both protocols.

Prints one line; exit 1 on any mismatch.
"""

import sys

import numpy as np
import onnxruntime
from tritonclient.utils import InferenceServerException

from server import addresses, both, metric
from vad import REPOSITORY

ids = iter(range(8_100_000, 9_000_000))
compared = 0


def load():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(REPOSITORY / "gru" / "1" / "model.onnx"), options, providers=["CPUExecutionProvider"])


MODEL = load()
ZERO = np.zeros((1, 16), np.float32)


def step(x, h):
    return MODEL.run(["OUTPUT", "H_OUT"], {"INPUT": x, "H": h})


def inputs(seed, steps):
    return [np.random.default_rng(seed + n).standard_normal((1, 1 + n % 3, 8)).astype(np.float32) for n in range(steps)]


def sixteenths(start):
    return (np.arange(start, start + 16, dtype=np.float32) / np.float32(16))[None]


def follow(api, model, h, seed, number=None, **parameters):
    """A sequence whose first state is `h`: each answer is that of ONNX Runtime. The number of the sequence, and the state that it is in."""
    global compared
    number = number or next(ids)
    for n, x in enumerate(inputs(seed, 5)):
        answer = api.infer(model, {"INPUT": x}, sequence_id=number, sequence_start=n == 0, parameters=parameters if n == 0 else None).as_numpy("OUTPUT")
        want, h = step(x, h)
        assert np.array_equal(answer, want), f"{model} {parameters} over {api.name}: step {n} differs by {np.abs(answer - want).max()}"
        compared += answer.size
    return number, h


def refused(api, model, wanted, **parameters):
    try:
        api.infer(model, {"INPUT": inputs(1, 1)[0]}, sequence_id=next(ids), sequence_start=True, parameters=parameters)
    except InferenceServerException as error:
        assert wanted in str(error), f"{model} {parameters}: {error}"
        return
    raise AssertionError(f"{model} {parameters}: not refused")


def tenants(api):
    follow(api, "plain", ZERO, 10)
    follow(api, "tenants", sixteenths(1), 20, tenant="gold")
    follow(api, "tenants", sixteenths(-7), 30, tenant="free")
    follow(api, "tenants", ZERO, 40, tenant="unknown")
    follow(api, "tenants", ZERO, 50)


def prompts(api, options, runs):
    """The prompt in steps of 16 numbers. Only the first START runs them."""
    h = ZERO
    values = np.array([n % 11 / 8 - 0.5 for n in range(96)], np.float32)
    for at in range(0, 96, 16):
        _, h = step(values[at : at + 16].reshape(1, 2, 8), h)
    for seed in (60, 70):
        before = metric(options.metrics, "nv_inference_exec_count", model="prompts")
        follow(api, "prompts", h, seed, prompt="greeting")
        ran = metric(options.metrics, "nv_inference_exec_count", model="prompts") - before
        assert ran == 5 + runs, f"{ran} runs, not 5 and {runs} of the prompt"
        runs = 0
    follow(api, "prompts", ZERO, 80)
    refused(api, "prompts", 'there is no prompt "none"', prompt="none")


def forks(api):
    """A child goes on from its parent, and both go on by themselves. Another tenant's sequence is not there for it."""
    parent, h = follow(api, "forks", ZERO, 90, tenant="a")
    child, _ = follow(api, "forks", h, 100, parent=str(parent), tenant="a")
    want, _ = step(inputs(7, 1)[0], h)
    answer = api.infer("forks", {"INPUT": inputs(7, 1)[0]}, sequence_id=parent).as_numpy("OUTPUT")
    assert np.array_equal(answer, want), "the child changed its parent"
    refused(api, "forks", "no live sequence that may be copied has this id", parent=str(parent), tenant="b")
    refused(api, "forks", "no live sequence that may be copied has this id", parent="8000000", tenant="a")


def main():
    options = addresses(__doc__).parse_args()
    for api, runs in zip(both(options), (6, 0)):
        tenants(api)
        prompts(api, options, runs)
        forks(api)
    print(f"initializers: {compared} numbers equal ONNX Runtime's")


if __name__ == "__main__":
    sys.exit(main())
