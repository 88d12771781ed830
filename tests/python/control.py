#!/usr/bin/env python3
"""Triton's own clients as an operator uses them: index, load, unload, statistics, log and trace settings, over gRPC and HTTP.

The server runs with control mode explicit over the directory that `--repository` names, of which nothing is loaded: it holds
`accumulator_fp32` and may be written to. Prints one line; exit 1 on any mismatch.
"""

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from tritonclient.utils import InferenceServerException

from server import addresses, both, scalar

M = "accumulator_fp32"


class Checks:
    def __init__(self):
        self.count, self.wrong = 0, []

    def equal(self, what, got, want):
        self.count += 1
        if got != want:
            self.wrong.append(f"{what}: got {got!r}, want {want!r}")

    def refused(self, what, call, sentence):
        self.count += 1
        try:
            call()
            self.wrong.append(f"{what}: was accepted")
        except InferenceServerException as refusal:
            if not refusal.message().startswith(sentence):
                self.wrong.append(f"{what}: got {refusal.message()!r}, want {sentence!r}")


def index(api):
    """`version state` of the model, as it stands; without version 3, which came with a request, once that is gone."""
    rows = api.client.get_model_repository_index()
    if api.name == "grpc":
        rows = [f"{r.version} {r.state}".strip() for r in rows.models if r.name == M]
    else:
        rows = [f"{r.get('version', '')} {r.get('state', '')}".strip() for r in rows if r["name"] == M]
    return [row for row in rows if row not in ("3 UNLOADING", "3 UNAVAILABLE")]


def index_until(api, want, seconds=30):
    end = time.monotonic() + seconds
    while index(api) != want and time.monotonic() < end:
        time.sleep(0.01)
    return index(api)


def step(api, number, value, **flags):
    answer = api.infer(M, {"INPUT": scalar(value, np.float32)}, ["OUTPUT"], sequence_id=number, **flags)
    return float(answer.as_numpy("OUTPUT")[0, 0]), answer.get_response()["model_version"] if api.name == "http" else answer.get_response().model_version


def lifecycle(api, checks, repository):
    number, client, model = 9_000_000 + (api.name == "http"), api.client, repository / M
    checks.equal(f"{api.name}: before", client.is_model_ready(M) if api.name == "http" else index(api)[:1] != ["1 READY"], api.name != "http")
    client.load_model(M)
    checks.equal(f"{api.name}: loaded", "1 READY" in index(api), True)
    checks.equal(f"{api.name}: first", step(api, number, 40, sequence_start=True), (40, "1"))
    shutil.copytree(model / "1", model / "2")
    client.load_model(M)
    checks.equal(f"{api.name}: old and new", index(api), ["1 UNLOADING", "2 READY"])
    checks.equal(f"{api.name}: a sequence stays", step(api, number, 1), (41, "1"))
    checks.equal(f"{api.name}: a new one does not", step(api, number + 10, 1, sequence_start=True, sequence_end=True), (1, "2"))
    checks.equal(f"{api.name}: its end", step(api, number, 1, sequence_end=True), (42, "1"))
    checks.equal(f"{api.name}: then", index_until(api, ["1 UNAVAILABLE", "2 READY"]), ["1 UNAVAILABLE", "2 READY"])
    client.unload_model(M)
    gone = f"Request for unknown model: '{M}' has no available versions (it is not loaded)"
    checks.refused(f"{api.name}: unloaded", lambda: step(api, number, 1, sequence_start=True), gone)
    shutil.rmtree(model / "2")
    text = client.load_model(M, config=(repository / "config.json").read_text())
    checks.equal(f"{api.name}: load answers nothing", text, None)
    config = client.get_model_config(M) if api.name == "http" else client.get_model_config(M, as_json=True)["config"]
    checks.equal(f"{api.name}: configuration of the request", int(config["max_batch_size"]), 7)
    checks.refused(f"{api.name}: unknown", lambda: client.load_model("nope"), "failed to load 'nope', failed to poll from model repository")
    files = {"file:3/model.onnx": (model / "1" / "model.onnx").read_bytes()}
    client.load_model(M, config=(repository / "config.json").read_text(), files=files)
    checks.equal(f"{api.name}: files of the request", "3 READY" in index(api), True)
    checks.equal(f"{api.name}: they serve", step(api, number + 20, 5, sequence_start=True, sequence_end=True), (5, "3"))
    checks.refused(f"{api.name}: files without a configuration", lambda: client.load_model(M, files=files), "files of a model need the parameter 'config'")
    client.load_model(M)
    checks.equal(f"{api.name}: the repository's own again", step(api, number + 30, 6, sequence_start=True, sequence_end=True), (6, "1"))
    client.unload_model(M, unload_dependents=True)
    client.unload_model("nope")


def statistics(api, checks):
    api.client.load_model(M)
    number = 9_100_000 + (api.name == "http")

    def counted():
        said = api.client.get_inference_statistics(M, "1", **({"as_json": True} if api.name == "grpc" else {}))
        return said["model_stats"]

    before = int(counted()[0]["inference_stats"]["success"].get("count", 0))
    for n in range(3):
        step(api, number, n, sequence_start=n == 0, sequence_end=n == 2)
    after = counted()
    checks.equal(f"{api.name}: one entry", (len(after), after[0]["name"], after[0]["version"]), (1, M, "1"))
    checks.equal(f"{api.name}: counted", int(after[0]["inference_stats"]["success"]["count"]) - before, 3)
    names = {m["name"] for m in api.client.get_inference_statistics(**({"as_json": True} if api.name == "grpc" else {}))["model_stats"]}
    checks.equal(f"{api.name}: all models", names, {M})
    api.client.unload_model(M)


def settings(api, checks):
    as_json = {"as_json": True} if api.name == "grpc" else {}

    def value(of):
        return next(iter(of.values())) if isinstance(of, dict) else of

    log = api.client.get_log_settings(**as_json)
    log = log.get("settings", log)
    checks.equal(f"{api.name}: log_info", value(log["log_info"]), True)
    changed = api.client.update_log_settings({"log_verbose_level": 1, "log_info": True}, **as_json)
    changed = changed.get("settings", changed)
    checks.equal(f"{api.name}: verbose", int(value(changed["log_verbose_level"])), 1)
    api.client.update_log_settings({"log_verbose_level": 0})
    trace = api.client.update_trace_settings(settings={"trace_rate": "7", "trace_level": ["OFF"]}, **as_json)
    trace = trace.get("settings", trace)
    rate = trace["trace_rate"]["value"][0] if api.name == "grpc" else trace["trace_rate"]
    checks.equal(f"{api.name}: trace_rate", rate, "7")
    checks.refused(f"{api.name}: tracing", lambda: api.client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), "trace_level TIMESTAMPS")
    api.client.update_trace_settings(settings={"trace_rate": None})


def main():
    parser = addresses(__doc__)
    parser.add_argument("--repository", type=Path, required=True, metavar="DIR")
    options, checks = parser.parse_args(), Checks()
    for api in both(options):
        for group in (lambda: lifecycle(api, checks, options.repository), lambda: statistics(api, checks), lambda: settings(api, checks)):
            try:
                group()
            except Exception as e:  # one broken call shall not hide what comes after it
                checks.wrong.append(f"{api.name}: {type(e).__name__}: {e}")
    for fault in checks.wrong:
        print(fault, file=sys.stderr)
    print(f"control: {checks.count} checks over gRPC and HTTP; wrong: {len(checks.wrong)}")
    return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
