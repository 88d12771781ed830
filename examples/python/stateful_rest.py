"""A model of Triton's stateful backend over HTTP. Needs `pip install requests` and a server of the repository's models."""

import sys

import requests

address = sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"
STEPS = 4

for step in range(STEPS):
    # config.pbtxt says dims [ 4, -1, 5 ]: a 1 stands for -1, and one more in front.
    x = {"name": "Input", "datatype": "FP32", "shape": [1, 4, 1, 5], "data": [1.0] * 20}
    sequence = {"sequence_id": 7, "sequence_start": step == 0, "sequence_end": step == STEPS - 1}
    answer = requests.post(f"http://{address}/v2/models/accumulate/infer", json={"inputs": [x], "parameters": sequence}, timeout=10)
    answer.raise_for_status()
    print(int(answer.json()["outputs"][0]["data"][0]))
