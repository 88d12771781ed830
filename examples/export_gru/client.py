"""Sends one sequence of four steps to the model `forecast` and prints a forecast for each. Needs `pip install tritonclient[grpc]`."""

import sys

import numpy as np
import tritonclient.grpc as grpcclient

client = grpcclient.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001")
series = np.arange(32, dtype=np.float32).reshape(4, 8) / 32
for i, row in enumerate(series):
    x = grpcclient.InferInput("x", [1, 1, 8], "FP32")
    x.set_data_from_numpy(row.reshape(1, 1, 8))
    answer = client.infer(
        "forecast", [x], sequence_id=42, sequence_start=i == 0, sequence_end=i == len(series) - 1
    )
    print(f"step {i + 1}: {answer.as_numpy('y')[0, 0, 0]:.4f}")
