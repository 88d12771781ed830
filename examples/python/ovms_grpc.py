"""A running sum over TensorFlow Serving's gRPC. Needs `pip install ovmsclient` and a server of the repository's models."""

import sys

import numpy as np
from ovmsclient import make_grpc_client

client = make_grpc_client(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001")
START, STEP, END = np.uint32(1), np.uint32(0), np.uint32(2)  # scalars: an array would not travel in uint32_val

inputs = {"INPUT": np.array([[1]], np.int32), "sequence_control_input": START}
for control in [STEP, STEP, END, None]:
    outputs = client.predict(inputs=inputs, model_name="accumulator_int32")
    print(int(outputs["OUTPUT"][0, 0]))
    # The server has made the id. It is in every answer.
    inputs |= {"sequence_control_input": control, "sequence_id": np.uint64(outputs["sequence_id"][0])}
