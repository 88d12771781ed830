"""Live sequences behind a proxy go on while one of the servers drains.

    python3 drain_behind_proxy.py GRPC_ADDRESS_OF_THE_PROXY PID_OF_A_SERVER
"""

import os
import signal
import sys

import numpy as np
import tritonclient.grpc as grpcclient

SEQUENCES, STEPS = 24, 6


def step(client, number, step):
    x = grpcclient.InferInput("INPUT", [1, 1], "FP32")
    x.set_data_from_numpy(np.array([[number]], np.float32))
    id = 3000 + number
    answer = client.infer(
        "accumulator_fp32",
        [x],
        sequence_id=id,
        sequence_start=step == 1,
        sequence_end=step == STEPS,
        headers={"x-sequence-id": str(id)},
    )
    return answer.as_numpy("OUTPUT")[0, 0] == number * step


address, pid = sys.argv[1:3]
client = grpcclient.InferenceServerClient(address)
right = 0
for n in range(1, STEPS + 1):
    if n == 3:
        os.kill(int(pid), signal.SIGTERM)
    right += sum(step(client, number, n) for number in range(SEQUENCES))
print(f"{right} of {SEQUENCES * STEPS} sums right, one server drained after step 2")
