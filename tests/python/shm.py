#!/usr/bin/env python3
"""System shared memory with Triton's own client library: inputs and outputs in regions, registered over gRPC and over HTTP.

Prints one line; exit 1 on any mismatch.
"""

import os
import sys

import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from server import addresses, both

MODEL, STEPS = "accumulator_fp32", 10


def play(api, wrong):
    """A sequence whose numbers never travel in a message."""
    name = f"sequor-{os.getpid()}-{api.name}"
    client, module = api.client, api.module
    number = 8_000_000 + (api.name == "http")
    region = shm.create_shared_memory_region(name, f"/{name}", 64)
    try:
        client.unregister_system_shared_memory()
        client.register_system_shared_memory(name, f"/{name}", 64)
        status = client.get_system_shared_memory_status()
        listed = [r["name"] for r in status] if api.name == "http" else list(status.regions)
        if listed != [name]:
            wrong.append(f"{api.name}: registered {listed}")
        total = 0
        for step in range(STEPS):
            shm.set_shared_memory_region(region, [np.array([[step + 0.5]], np.float32)], offset=8)
            tensor, output = module.InferInput("INPUT", [1, 1], "FP32"), module.InferRequestedOutput("OUTPUT")
            tensor.set_shared_memory(name, 4, offset=8)
            output.set_shared_memory(name, 4, offset=16)
            flags = {"sequence_start": step == 0, "sequence_end": step == STEPS - 1}
            result = client.infer(MODEL, [tensor], outputs=[output], sequence_id=number, **flags)
            total += step + 0.5
            got = shm.get_contents_as_numpy(region, np.float32, [1, 1], offset=16)[0, 0]
            if got != total or result.get_output("OUTPUT") is None:
                wrong.append(f"{api.name}: step {step}: {got}, want {total}")
        for what, call in {
            "registered twice": lambda: client.register_system_shared_memory(name, f"/{name}", 64),
            "beyond its end": lambda: client.register_system_shared_memory("beyond", f"/{name}", 65),
            "without memory": lambda: client.register_system_shared_memory("without", "/no-such-memory", 1),
        }.items():
            try:
                call()
                wrong.append(f"{api.name}: {what} was accepted")
            except InferenceServerException:
                pass
        client.unregister_system_shared_memory(name)
        client.unregister_cuda_shared_memory()
    finally:
        shm.destroy_shared_memory_region(region)
    return STEPS + 4


def main():
    options, wrong = addresses(__doc__).parse_args(), []
    checked = sum(play(api, wrong) for api in both(options))
    for fault in wrong[:20]:
        print(fault, file=sys.stderr)
    print(f"shm: {checked} checks over gRPC and HTTP; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
