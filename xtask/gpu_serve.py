"""Starts the server with models on a GPU (or, with the word cpu, on the CPU), steps a few sequences over HTTP and reads its metrics.

Run by run.sh in a folder that `cargo xtask gpu-pack` has made.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PORTS = {"http": 18800, "grpc": 18801, "metrics": 18802, "admin": 18803}
MODELS = ["accumulator_int32", "accumulator_fp32", "gru", "vad"]
INPUTS = {
    "accumulator_int32": ("INPUT", "INT32", [1, 1]),
    "accumulator_fp32": ("INPUT", "FP32", [1, 1]),
    "gru": ("INPUT", "FP32", [1, 3, 8]),
    "vad": ("input", "FP32", [1, 576]),
}


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def step(model, sequence, start, end, value):
    name, datatype, shape = INPUTS[model]
    count = 1
    for dim in shape:
        count *= dim
    body = {
        "parameters": {"sequence_id": sequence, "sequence_start": start, "sequence_end": end},
        "inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": [value] * count}],
    }
    url = f"http://127.0.0.1:{PORTS['http']}/v2/models/{model}/infer"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["outputs"][0]["data"]


def wait_for(server):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            return get(f"http://127.0.0.1:{PORTS['http']}/v2/health/ready")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("the server did not become ready")


def main():
    kind = {"gpu": "KIND_GPU gpus: 0", "cpu": "KIND_CPU"}[sys.argv[1]]
    root = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(tempfile.mkdtemp())
    for model in MODELS:
        shutil.copytree(root / "models" / model, folder / model)
        config = folder / model / "config.pbtxt"
        config.write_text(config.read_text().replace("kind: KIND_CPU", f"kind: {kind}"))
    ports = [f"--{name}-port={port}" for name, port in PORTS.items()]
    server = subprocess.Popen([root / "sequor", "serve", "--model-repository", folder, "--drain-announce", "0s", *ports])
    try:
        wait_for(server)
        for sequence in range(1, 9):
            sums = [step("accumulator_int32", sequence, n == 0, n == 3, n + sequence)[0] for n in range(4)]
            assert sums == [sum(range(sequence, sequence + n + 1)) for n in range(4)], sums
            for model in MODELS[1:]:
                answers = [step(model, sequence, n == 0, n == 3, 0.25) for n in range(4)]
                assert all(abs(value) < 1e6 for answer in answers for value in answer), (model, answers)
        lines = get(f"http://127.0.0.1:{PORTS['metrics']}/metrics").splitlines()
        told = [line for line in lines if line.startswith(("nv_gpu", "nv_energy", "sequor_gpu"))]
        print(*told, sep="\n")
        if sys.argv[1] == "gpu":
            mapped = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
            assert "libonnxruntime_providers_cuda" in mapped, "the provider is not loaded"
            assert any(line.startswith("nv_gpu_memory_used_bytes") for line in told), "no metrics of a GPU"
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
        shutil.rmtree(folder)
    assert code == 0, f"the server ended with {code}"
    print(f"32 steps of each of {', '.join(MODELS)} on {'GPU 0' if sys.argv[1] == 'gpu' else 'the CPU'}; the server ended with 0")


if __name__ == "__main__":
    os.environ.setdefault("NO_PROXY", "*")
    main()
