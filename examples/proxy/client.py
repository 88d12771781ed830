"""Sends sequences through a proxy in front of several servers, and checks every sum.

    python3 client.py GRPC_ADDRESS HTTP_ADDRESS

Every request repeats the sequence id in the header x-sequence-id; the proxy hashes it.
"""

import sys

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http

SEQUENCES, STEPS = 24, 5


def run(api, address, first_id):
    """All sequences side by side, one step after the other. Returns how many steps had the right sum."""
    client = api.InferenceServerClient(address)
    right = 0
    for step in range(1, STEPS + 1):
        for number in range(SEQUENCES):
            x = api.InferInput("INPUT", [1, 1], "FP32")
            x.set_data_from_numpy(np.array([[number]], np.float32))
            answer = client.infer(
                "accumulator_fp32",
                [x],
                sequence_id=first_id + number,
                sequence_start=step == 1,
                sequence_end=step == STEPS,
                headers={"x-sequence-id": str(first_id + number)},
            )
            right += int(answer.as_numpy("OUTPUT")[0, 0]) == number * step
    return right


grpc_address, http_address = sys.argv[1:3]
for name, api, address, first_id in [("grpc", over_grpc, grpc_address, 1000), ("http", over_http, http_address, 2000)]:
    print(f"{name}: {run(api, address, first_id)} of {SEQUENCES * STEPS} sums right, no step refused")
