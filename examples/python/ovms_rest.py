"""A running sum over TensorFlow Serving's REST. Needs `pip install requests` and a server of the repository's models."""

import sys

import requests

address = sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"
url = f"http://{address}/v1/models/accumulator_int32:predict"
START, STEP, END = 1, 0, 2

inputs = {"INPUT": [[1]], "sequence_control_input": [START]}
for control in [STEP, STEP, END, None]:
    answer = requests.post(url, json={"inputs": inputs}, timeout=10)
    answer.raise_for_status()
    outputs = answer.json()["outputs"]
    print(outputs["OUTPUT"][0][0])
    # The server has made the id. It is in every answer.
    inputs |= {"sequence_control_input": [control], "sequence_id": outputs["sequence_id"]}
