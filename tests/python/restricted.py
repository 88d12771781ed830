#!/usr/bin/env python3
"""Triton's own clients at a server with restricted groups: without the header each call is refused, with it each is answered.

The server restricts model-repository and model-config with the key `admin-key`, and inference with the key `infer-key`, over both protocols;
`--admin` and `--infer` are their values. Prints one line; exit 1 on any mismatch.
"""

import queue
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

from server import addresses, both, scalar

M = "accumulator_fp32"
PREFIX = {"grpc": "triton-grpc-protocol-", "http": ""}
SENTENCE = {"grpc": "This protocol is restricted, expecting header", "http": "This API is restricted, expecting header"}
STATUS = {"grpc": "StatusCode.UNAVAILABLE", "http": "403"}


def step(api, headers):
    flags = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
    answer = api.infer(M, {"INPUT": scalar(2, np.float32)}, ["OUTPUT"], headers=headers, **flags)
    assert float(answer.as_numpy("OUTPUT")[0, 0]) == 2.0


def stream(api, headers):
    answers = queue.Queue()
    api.client.start_stream(lambda result, error: answers.put(error or result), headers=headers)
    tensor = api.module.InferInput("INPUT", [1, 1], "FP32")
    tensor.set_data_from_numpy(scalar(3, np.float32))
    try:
        api.client.async_stream_infer(M, [tensor], sequence_id=8, sequence_start=True, sequence_end=True)
    except InferenceServerException:
        pass  # The stream was refused before; its callback gets the reason.
    answer = answers.get(timeout=60)
    api.client.stop_stream()
    if isinstance(answer, Exception):
        raise answer
    assert float(answer.as_numpy("OUTPUT")[0, 0]) == 3.0


CALLS = [
    ("admin-key", "index", lambda api, headers: api.client.get_model_repository_index(headers=headers)),
    ("admin-key", "config", lambda api, headers: api.client.get_model_config(M, headers=headers)),
    ("infer-key", "infer", step),
    ("infer-key", "stream", stream),
]


def main():
    parser = addresses(__doc__.splitlines()[0])
    for name in ("admin", "infer"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    values = {"admin-key": options.admin, "infer-key": options.infer}
    count, wrong = 0, []
    for api in both(options):
        assert api.client.is_server_live() and api.client.is_model_ready(M)
        for key, what, call in CALLS:
            if api.name == "http" and what == "stream":
                continue
            header = PREFIX[api.name] + key
            for value in (None, "wrong", values[key]):
                count += 1
                try:
                    call(api, value and {header: value})
                    refused = None
                except InferenceServerException as refusal:
                    refused = (refusal.status(), refusal.message())
                want = None if value == values[key] else (STATUS[api.name], f"{SENTENCE[api.name]} '{header}'")
                if refused != want:
                    wrong.append(f"{api.name}: {what} with {header}: got {refused!r}, want {want!r}")
    print(f"{count} calls, {len(wrong)} wrong")
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
