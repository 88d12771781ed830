"""A model of Triton's stateful backend over gRPC. Needs `pip install tritonclient[grpc]` and a server of the repository's models."""

import sys

import numpy as np
import tritonclient.grpc as t

client = t.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001")
STEPS = 4

for step in range(STEPS):
    # config.pbtxt says dims [ 4, -1, 5 ]: a 1 stands for -1, and one more in front.
    x = t.InferInput("Input", [1, 4, 1, 5], "FP32")
    x.set_data_from_numpy(np.full((1, 4, 1, 5), 1, np.float32))
    r = client.infer("accumulate", [x], sequence_id=7, sequence_start=step == 0, sequence_end=step == STEPS - 1)
    print(int(r.as_numpy("Output")[0, 0, 0, 0]))
