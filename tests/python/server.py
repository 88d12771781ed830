"""Where the server under test is, and tritonclient's gRPC and HTTP clients under one roof."""

import argparse
import os
import re
import urllib.request

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype


def addresses(about):
    """`--grpc`, `--http`, `--metrics` as HOST:PORT; else the environment's, else the default ports here."""
    parser = argparse.ArgumentParser(description=about)
    for name, port in (("grpc", 8001), ("http", 8000), ("metrics", 8002)):
        default = os.environ.get(f"SEQUOR_{name.upper()}", f"127.0.0.1:{port}")
        parser.add_argument(f"--{name}", default=default, metavar="HOST:PORT", help="default %(default)s")
    return parser


class Api:
    """One of tritonclient's two clients, with tensors given and taken as NumPy arrays by name."""

    def __init__(self, name, address):
        self.name, self.address, self.module = name, address, {"grpc": tritonclient.grpc, "http": tritonclient.http}[name]
        self.client = self.module.InferenceServerClient(address, **({"network_timeout": 120.0} if name == "http" else {}))

    def infer(self, model, tensors, outputs=None, **options):
        inputs = []
        for name, value in tensors.items():
            tensor = self.module.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
            tensor.set_data_from_numpy(value)
            inputs.append(tensor)
        wanted = outputs and [self.module.InferRequestedOutput(name) for name in outputs]
        if self.name == "grpc":
            options.setdefault("client_timeout", 120.0)
        return self.client.infer(model, inputs, outputs=wanted, **options)


def both(options):
    """The two clients; they are bound to the thread that makes them."""
    return Api("grpc", options.grpc), Api("http", options.http)


def metric(address, name, **labels):
    """The sum of a metric's samples that carry these labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    total = 0.0
    for sample in re.finditer(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)", text, re.MULTILINE):
        has = dict(re.findall(r'(\w+)="([^"]*)"', sample[1] or ""))
        if labels.items() <= has.items():
            total += float(sample[2])
    return total


def scalar(value, dtype):
    """[1, 1]: a batch of one row with one element."""
    return np.array([[value]], dtype)
