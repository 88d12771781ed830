#!/usr/bin/env python3
"""A gRPC client without stubs: everything it knows of the services it asks reflection for, as grpcurl and the like do.

Prints one line; exit 1 on any mismatch.
"""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from server import addresses

SERVICE = "inference.GRPCInferenceService"
SERVICES = {
    SERVICE,
    "grpc.health.v1.Health",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}
RPCS = {
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelStreamInfer", "ModelConfig", "ModelStatistics",
    "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister", "TraceSetting", "LogSettings",
}  # fmt: skip


class Client:
    """Calls by the name of a service and of a method."""

    def __init__(self, channel):
        self.channel, self.database = channel, ProtoReflectionDescriptorDatabase(channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def method(self, service, name):
        method = self.pool.FindServiceByName(service).methods_by_name[name]
        made = [message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type)]
        kinds = {(False, False): "unary_unary", (True, True): "stream_stream"}
        open_call = getattr(self.channel, kinds[method.client_streaming, method.server_streaming])
        call = open_call(f"/{service}/{name}", request_serializer=made[0].SerializeToString, response_deserializer=made[1].FromString)
        return made[0], lambda message: call(message, timeout=60)


def step(kind, value, **flags):
    request = kind(model_name="accumulator_int32", raw_input_contents=[value.to_bytes(4, "little", signed=True)])
    request.inputs.add(name="INPUT", datatype="INT32", shape=[1, 1])
    request.outputs.add(name="OUTPUT")
    request.parameters["sequence_id"].int64_param = 8_600_001
    for flag, is_set in flags.items():
        request.parameters[flag].bool_param = is_set
    return request


def main():
    options, wrong, count = addresses(__doc__).parse_args(), [], 0

    def same(what, got, want):
        nonlocal count
        count += 1
        if got != want:
            wrong.append(f"{what}: got {got!r}, want {want!r}")

    with grpc.insecure_channel(options.grpc) as channel:
        client = Client(channel)
        same("services", SERVICES - set(client.database.get_services()), set())
        same("calls", RPCS ^ {method.name for method in client.pool.FindServiceByName(SERVICE).methods}, set())
        kind, ready = client.method(SERVICE, "ServerReady")
        same("ready", ready(kind()).ready, True)
        kind, check = client.method("grpc.health.v1.Health", "Check")
        same("health", check(kind()).status, 1)
        kind, config = client.method(SERVICE, "ModelConfig")
        same("configuration", config(kind(name="gru")).config.max_batch_size, 16)
        kind, infer = client.method(SERVICE, "ModelInfer")
        answers = [infer(step(kind, 40, sequence_start=True)), infer(step(kind, 2))]
        same("sums", [int.from_bytes(a.raw_output_contents[0], "little") for a in answers], [40, 42])
        kind, stream = client.method(SERVICE, "ModelStreamInfer")
        replies = list(stream(iter([step(kind, 8), step(kind, -50, sequence_end=True)])))
        same("streamed", [int.from_bytes(r.infer_response.raw_output_contents[0], "little") for r in replies], [50, 0])
    for fault in wrong:
        print(fault, file=sys.stderr)
    print(f"reflection: {count} checks; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
