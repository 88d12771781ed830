#!/usr/bin/env python3
"""What Triton's own clients ask of a server besides answers: health, metadata, configuration, and the sentences it refuses with; over gRPC and HTTP.

A refusal's sentence must stand at the start of the message, byte for byte; the server's own reason may follow in brackets.
Prints one line; exit 1 on any mismatch.
"""

import json
import random
import sys
import urllib.error
import urllib.request

import grpc
import numpy as np
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from server import addresses, both, scalar

MODELS = ("accumulate", "accumulator_fp32", "accumulator_int32", "gru", "vad")
M = "accumulator_fp32"
HTTP_STATUS = {"INVALID_ARGUMENT": "400", "NOT_FOUND": "404", "UNIMPLEMENTED": "501"}
SHAPE_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify "
    "the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info "
    "on max_batch_size."
)
fresh = random.SystemRandom()


class Checks:
    """Counts what was checked and keeps what was wrong."""

    def __init__(self):
        self.count, self.wrong = 0, []

    def equal(self, what, got, want):
        self.count += 1
        if got != want:
            self.wrong.append(f"{what}: got {got!r}, want {want!r}")

    def refused(self, api, what, call, code, sentence):
        self.count += 1
        try:
            call()
        except InferenceServerException as refusal:
            status, message = (refusal.status() or "").removeprefix("StatusCode."), refusal.message()
            want = code if api.name == "grpc" else HTTP_STATUS[code]
            if status != want or not (message == sentence or message.startswith(f"{sentence} (")):
                self.wrong.append(f"{api.name}: {what}:\n  got  {status} {message}\n  want {want} {sentence}")
        else:
            self.wrong.append(f"{api.name}: {what}: was accepted")


def new_id():
    return fresh.randint(1, 2**62)


def one(value=1.0):
    return {"INPUT": scalar(value, np.float32)}


def whole(number=None):
    """The options of a sequence of one request."""
    return {"sequence_id": number or new_id(), "sequence_start": True, "sequence_end": True}


def health(api, checks):
    checks.equal(f"{api.name}: live", api.client.is_server_live(), True)
    checks.equal(f"{api.name}: ready", api.client.is_server_ready(), True)
    for model in MODELS:
        checks.equal(f"{api.name}: {model} ready", api.client.is_model_ready(model), True)
        checks.equal(f"{api.name}: {model} version 1 ready", api.client.is_model_ready(model, "1"), True)
    try:
        ready = api.client.is_model_ready("nope")
    except InferenceServerException:
        ready = False
    checks.equal(f"{api.name}: nope ready", ready, False)


def message(api, answer):
    """gRPC's answers as HTTP's: JSON with the names of the proto file."""
    return answer if api.name == "http" else json_format.MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def metadata(api, checks):
    server = message(api, api.client.get_server_metadata())
    checks.equal(f"{api.name}: server's extensions", {"sequence", "binary_tensor_data"} <= set(server["extensions"]), True)
    checks.equal(f"{api.name}: server's name and version", bool(server["name"] and server["version"]), True)

    def tensor(t):
        return t["name"], t["datatype"], [int(d) for d in t["shape"]]

    model = message(api, api.client.get_model_metadata(M))
    checks.equal(f"{api.name}: name and versions", (model["name"], model["versions"]), (M, ["1"]))
    # Controls and states are the server's business and not listed, but for a state that is declared an output too.
    checks.equal(f"{api.name}: inputs", [tensor(t) for t in model["inputs"]], [("INPUT", "FP32", [-1, 1])])
    outputs = [("OUTPUT", "FP32", [-1, 1]), ("OUTPUT_STATE", "FP32", [-1, 1])]
    checks.equal(f"{api.name}: outputs", [tensor(t) for t in model["outputs"]], outputs)
    vad = message(api, api.client.get_model_metadata("vad", "1"))
    checks.equal(f"{api.name}: vad's inputs", [tensor(t) for t in vad["inputs"]], [("input", "FP32", [-1, 576])])


def configuration(api, checks):
    def of(model):
        answer = message(api, api.client.get_model_config(model))
        return answer["config"] if api.name == "grpc" else answer

    direct = of(M)
    batching = direct["sequence_batching"]
    checks.equal(f"{api.name}: {M}", (direct["name"], direct["max_batch_size"], "direct" in batching), (M, 32, True))
    state = batching["state"][0]
    checks.equal(f"{api.name}: state", (state["input_name"], state["output_name"], state["data_type"]), ("INPUT_STATE", "OUTPUT_STATE", "TYPE_FP32"))
    checks.equal(f"{api.name}: idle", int(batching["max_sequence_idle_microseconds"]), 5_000_000)

    oldest = of("accumulator_int32")["sequence_batching"]
    kinds = [(c["name"], c["control"][0]["kind"].removeprefix("CONTROL_SEQUENCE_")) for c in oldest["control_input"]]
    checks.equal(f"{api.name}: controls", kinds, [("START", "START"), ("END", "END"), ("READY", "READY"), ("CORRID", "CORRID")])
    # Not in the file: the default is filled in.
    checks.equal(f"{api.name}: candidates", oldest["oldest"]["max_candidate_sequences"], 8)
    checks.equal(f"{api.name}: preferred sizes", oldest["oldest"]["preferred_batch_size"], [8])


def sequences(api, checks):
    """What the flags and ids of a sequence mean."""

    def total(value, number, outputs=("OUTPUT",), **flags):
        return api.infer(M, one(value), outputs, sequence_id=number, **flags).as_numpy(outputs[-1])[0, 0]

    number = new_id()
    got = [total(1, number, sequence_start=True), total(2, number), total(4, number, sequence_start=True), total(8, number, sequence_end=True)]
    checks.equal(f"{api.name}: START on a live id begins anew", got, [1, 3, 4, 12])
    text, other = str(number), number
    got = [total(1, text, sequence_start=True), total(10, other, sequence_start=True), total(1, text, sequence_end=True), total(10, other, sequence_end=True)]
    checks.equal(f"{api.name}: a text id is another sequence than the number it spells", got, [1, 10, 2, 20])
    checks.equal(f"{api.name}: a state listed as output", total(5, new_id(), ("OUTPUT", "OUTPUT_STATE"), sequence_start=True, sequence_end=True), 5)
    checks.equal(f"{api.name}: the state alone", total(6, new_id(), ("OUTPUT_STATE",), sequence_start=True, sequence_end=True), 6)


def no_start(number, model=M):
    return f"inference request for sequence {number} to model '{model}' must specify the START flag on the first request of the sequence"


def id_zero(api):
    """START with the id 0, which tritonclient would leave out."""
    if api.name == "http":
        tensor = {"name": "INPUT", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
        body = {"inputs": [tensor], "parameters": {"sequence_id": 0, "sequence_start": True}}
        post = urllib.request.Request(f"http://{api.address}/v2/models/{M}/infer", json.dumps(body).encode())
        try:
            urllib.request.urlopen(post, timeout=10).close()
        except urllib.error.HTTPError as refusal:
            raise InferenceServerException(json.load(refusal)["error"], str(refusal.code)) from None
        return
    request = service_pb2.ModelInferRequest(model_name=M, raw_input_contents=[np.float32(1).tobytes()])
    request.inputs.add(name="INPUT", datatype="FP32", shape=[1, 1])
    request.parameters["sequence_id"].int64_param = 0
    request.parameters["sequence_start"].bool_param = True
    with grpc.insecure_channel(api.address) as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=10)
        except grpc.RpcError as refusal:
            raise InferenceServerException(refusal.details(), str(refusal.code())) from None


def flags_refused(api, checks):
    unknown, ended = new_id(), new_id()
    checks.refused(api, "no START", lambda: api.infer(M, one(), sequence_id=unknown), "INVALID_ARGUMENT", no_start(unknown))
    checks.refused(api, "END only", lambda: api.infer(M, one(), sequence_id=unknown, sequence_end=True), "INVALID_ARGUMENT", no_start(unknown))
    api.infer(M, one(), **whole(ended))
    checks.refused(api, "after END", lambda: api.infer(M, one(), sequence_id=ended), "INVALID_ARGUMENT", no_start(ended))
    no_id = f"inference request to model '{M}' must specify a non-zero or non-empty correlation ID"
    checks.refused(api, "no id", lambda: api.infer(M, one()), "INVALID_ARGUMENT", no_id)
    checks.refused(api, "id 0", lambda: id_zero(api), "INVALID_ARGUMENT", no_id)
    batch_1 = f"inference request to model '{M}' must specify batch-size 1 due to requirements of sequence batcher"
    checks.refused(api, "batch 2", lambda: api.infer(M, {"INPUT": np.ones((2, 1), np.float32)}, **whole()), "INVALID_ARGUMENT", batch_1)
    long = "string correlation ID cannot be longer than 128 characters"
    checks.refused(api, "long id", lambda: api.infer(M, one(), **whole("x" * 129)), "UNIMPLEMENTED", long)
    number = "sequence batching control 'CORRID' data-type is 'BYTES', but model 'accumulator_int32' expects 'UINT64' (it takes a whole number as sequence_id)"
    tensors = {"INPUT": scalar(1, np.int32)}
    checks.refused(api, "text id for a number", lambda: api.infer("accumulator_int32", tensors, **whole("a")), "INVALID_ARGUMENT", number)


def tensors_refused(api, checks):
    unnamed = "[request id: <id_unknown>] "

    def refused(what, tensors, sentence, outputs=None, model=M):
        checks.refused(api, what, lambda: api.infer(model, tensors, outputs, **whole()), "INVALID_ARGUMENT", sentence)

    refused("batch 33", {"INPUT": np.ones((33, 1), np.float32)}, f"{unnamed}inference request batch-size must be <= 32 for '{M}'")
    dtype = f"{unnamed}inference input 'INPUT' data-type is 'INT32', but model '{M}' expects 'FP32'"
    refused("wrong type", {"INPUT": scalar(1, np.int32)}, dtype)
    shape = f"{unnamed}unexpected shape for input 'INPUT' for model '{M}'. Expected [-1,1], got [1,2]. {SHAPE_NOTE}"
    refused("wrong shape", {"INPUT": np.ones((1, 2), np.float32)}, shape)
    missing = (
        f"{unnamed}expected 1 inputs but got 0 inputs for model '{M}'. Got input(s) [], but missing required input(s) ['INPUT']. "
        "Please provide all required input(s)."
    )
    refused("missing input", {}, missing)
    refused("unknown input", {"FOO": scalar(1, np.float32)}, f"unexpected inference input 'FOO' for model '{M}'")
    refused("unknown output", one(), f"unexpected inference output 'NOPE' for model '{M}'", ["NOPE"])
    hidden = "unexpected inference output 'OUTPUT_STATE' for model 'accumulator_int32'"
    refused("a state that is no output", {"INPUT": scalar(1, np.int32)}, hidden, ["OUTPUT_STATE"], "accumulator_int32")


def refused_and_unharmed(api, checks):
    """A refused request leaves its sequence as it was."""
    number = new_id()
    api.infer(M, one(3), sequence_id=number, sequence_start=True)
    for tensors in ({"INPUT": scalar(1, np.int32)}, {"INPUT": np.ones((1, 2), np.float32)}, {}):
        try:
            api.infer(M, tensors, sequence_id=number, sequence_end=True)
        except InferenceServerException:
            pass
    got = api.infer(M, one(4), sequence_id=number, sequence_end=True).as_numpy("OUTPUT")[0, 0]
    checks.equal(f"{api.name}: a sequence after refused requests", got, 7)


def models_refused(api, checks):
    unknown = "Request for unknown model: 'nope' is not found"
    checks.refused(api, "unknown model", lambda: api.infer("nope", one(), **whole()), "NOT_FOUND", unknown)
    version = f"Request for unknown model: '{M}' version 7 is not found"
    checks.refused(api, "unknown version", lambda: api.infer(M, one(), model_version="7", **whole()), "NOT_FOUND", version)
    checks.refused(api, "unknown model's metadata", lambda: api.client.get_model_metadata("nope"), "NOT_FOUND", unknown)
    checks.refused(api, "unknown model's configuration", lambda: api.client.get_model_config("nope"), "NOT_FOUND", unknown)
    abc = "failed to get model version from specified version string 'abc' (details: stol), version should be an integral value > 0"
    checks.refused(api, "version abc", lambda: api.infer(M, one(), model_version="abc", **whole()), "INVALID_ARGUMENT", abc)


def main():
    options, checks = addresses(__doc__).parse_args(), Checks()
    groups = (health, metadata, configuration, sequences, flags_refused, tensors_refused, refused_and_unharmed, models_refused)
    for api in both(options):
        for group in groups:
            try:
                group(api, checks)
            except Exception as e:  # one broken call shall not hide what comes after it
                checks.wrong.append(f"{api.name}: {group.__name__}: {type(e).__name__}: {e}")
    for fault in checks.wrong:
        print(fault, file=sys.stderr)
    print(f"surface: {checks.count} checks over gRPC and HTTP; wrong: {len(checks.wrong)}")
    return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
