#!/usr/bin/env python3
"""OVMS's own client package, the stubs in it, and `requests`, over a model of this repository: sequences, metadata, status, errors.

The server holds `accumulator_int32`. Prints one line; exit 1 on any mismatch.
"""

import argparse
import sys

import grpc
import numpy as np
import requests
from ovmsclient import make_grpc_client, make_http_client
from ovmsclient.tfs_compat.base.errors import InvalidInputError, ModelNotFoundError
from ovmsclient.tfs_compat.grpc.tensors import make_ndarray, make_tensor_proto
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

MODEL = "accumulator_int32"
START, END = 1, 2


class Checks:
    def __init__(self):
        self.count, self.wrong = 0, []

    def equal(self, what, got, want):
        self.count += 1
        if got != want:
            self.wrong.append(f"{what}: got {got!r}, want {want!r}")

    def refused(self, what, kind, sentence, call):
        self.count += 1
        try:
            call()
            self.wrong.append(f"{what}: was accepted")
        except kind as refusal:
            if sentence not in str(refusal):
                self.wrong.append(f"{what}: got {refusal!s}, want {sentence!r}")


def row(value):
    return np.array([[value]], dtype=np.int32)


def over_grpc(checks, address):
    client = make_grpc_client(address)

    def step(value, control, sequence=None):
        # Special inputs are NumPy scalars: arrays would travel as tensor_content, which OVMS refuses for them.
        inputs = {"INPUT": row(value), "sequence_control_input": np.uint32(control)}
        if sequence is not None:
            inputs["sequence_id"] = np.uint64(sequence)
        outputs = client.predict(inputs=inputs, model_name=MODEL)
        return int(outputs["OUTPUT"][0, 0]), int(outputs["sequence_id"][0])

    checks.equal("grpc START", step(40, START, 7), (40, 7))
    checks.equal("grpc step", step(2, 0, 7), (42, 7))
    checks.equal("grpc END", step(1, END, 7), (43, 7))
    value, made = step(5, START)
    checks.equal("grpc START without an id", (value, 0 < made < 2**53), (5, True))
    checks.equal("grpc step of a made id", step(2, 0, made), (7, made))
    missing = "Sequence with provided ID does not exist"
    checks.refused("grpc unknown", ModelNotFoundError, missing, lambda: step(1, 0, 7))
    no_id = "Sequence ID has not been provided in request inputs"
    checks.refused("grpc no id", InvalidInputError, no_id, lambda: step(1, 0))
    exists = "Sequence with provided ID already exists"
    checks.refused("grpc twice", ConnectionError, exists, lambda: step(1, START, made))
    wrong = {"INPUT": row(1), "sequence_id": np.array([made], dtype=np.uint64)}
    content = "Could not find sequence id in expected tensor proto field uint64_val"
    checks.refused("grpc content", InvalidInputError, content, lambda: client.predict(inputs=wrong, model_name=MODEL))

    metadata = client.get_model_metadata(model_name=MODEL)
    checks.equal("grpc metadata", metadata["inputs"], {"INPUT": {"shape": [-1, 1], "dtype": "DT_INT32"}})
    checks.equal("grpc version", metadata["model_version"], 1)
    status = client.get_model_status(model_name=MODEL)
    checks.equal("grpc status", status, {1: {"state": "AVAILABLE", "error_code": 0, "error_message": ""}})
    unknown = "Model with requested name is not found"
    checks.refused("grpc model", ModelNotFoundError, unknown, lambda: client.get_model_status(model_name="nope"))


def over_the_stubs(checks, address):
    """The messages themselves, as OVMS's example clients send them."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(address))

    def step(value, control, sequence):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = MODEL
        request.inputs["INPUT"].CopyFrom(make_tensor_proto(row(value)))
        request.inputs["sequence_control_input"].CopyFrom(make_tensor_proto([control], dtype=22))
        request.inputs["sequence_id"].CopyFrom(make_tensor_proto([sequence], dtype=23))
        for name in ("sequence_control_input", "sequence_id"):
            tensor = request.inputs[name]
            if tensor.tensor_content:
                values = np.frombuffer(tensor.tensor_content, dtype=np.uint32 if "control" in name else np.uint64)
                (tensor.uint32_val if "control" in name else tensor.uint64_val).extend(values.tolist())
                tensor.tensor_content = b""
        response = stub.Predict(request, 10.0)
        return make_ndarray(response.outputs["OUTPUT"])[0, 0], response.outputs["sequence_id"].uint64_val[0]

    checks.equal("stub START", step(1, START, 70), (1, 70))
    checks.equal("stub step", step(2, 0, 70), (3, 70))
    checks.equal("stub END", step(3, END, 70), (6, 70))


def over_http(checks, address):
    url = f"http://{address}/v1/models/{MODEL}"

    def step(value, **special):
        answer = requests.post(f"{url}:predict", json={"inputs": {"INPUT": [[value]], **special}}, timeout=10)
        return answer.status_code, answer.json()

    started = step(40, sequence_id=[17], sequence_control_input=[START])
    checks.equal("http START", started[0], 200)
    checks.equal("http answer", {k: started[1]["outputs"][k] for k in ("OUTPUT", "sequence_id")},
                 {"OUTPUT": [[40]], "sequence_id": [17]})
    checks.equal("http step", step(2, sequence_id=[17])[1]["outputs"]["OUTPUT"], [[42]])
    checks.equal("http END", step(1, sequence_id=[17], sequence_control_input=[END])[1]["outputs"]["OUTPUT"], [[43]])
    made = step(5, sequence_control_input=[START])[1]["outputs"]["sequence_id"][0]
    checks.equal("http made id", step(2, sequence_id=[made])[1]["outputs"]["OUTPUT"], [[7]])
    checks.equal("http unknown", step(1, sequence_id=[17]),
                 (404, {"error": "Sequence with provided ID does not exist"}))
    checks.equal("http twice", step(1, sequence_id=[made], sequence_control_input=[START]),
                 (409, {"error": "Sequence with provided ID already exists"}))
    rows = {"instances": [{"INPUT": [1], "sequence_id": [made]}]}
    answer = requests.post(f"{url}:predict", json=rows, timeout=10).json()
    checks.equal("http rows", [answer["predictions"][0][k] for k in ("OUTPUT", "sequence_id")], [[8], made])

    client = make_http_client(address)
    metadata = client.get_model_metadata(model_name=MODEL)
    checks.equal("http metadata", metadata["inputs"], {"INPUT": {"shape": [-1, 1], "dtype": "DT_INT32"}})
    status = client.get_model_status(model_name=MODEL)
    checks.equal("http status", status, {1: {"state": "AVAILABLE", "error_code": 0, "error_message": ""}})
    unknown = "Model with requested name is not found"
    checks.refused("http model", ModelNotFoundError, unknown, lambda: client.get_model_metadata(model_name="nope"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--http", required=True)
    given = parser.parse_args()
    checks = Checks()
    over_grpc(checks, given.grpc)
    over_the_stubs(checks, given.grpc)
    over_http(checks, given.http)
    for wrong in checks.wrong:
        print(wrong, file=sys.stderr)
    print(f"tfs: {checks.count} checks, {len(checks.wrong)} wrong")
    sys.exit(bool(checks.wrong))


if __name__ == "__main__":
    main()
