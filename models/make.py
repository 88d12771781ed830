#!/usr/bin/env python3
"""Makes the small models of this repository and the demo's noise: the same bytes at every run.

Needs the package `onnx` at the version pinned in third_party/tests.txt; numbers come from a generator written out here, so no library's
choice of random numbers matters.

    make.py              write the files in place
    make.py --check      write nothing; exit 1 if a file differs from what would be made
"""

import array
import hashlib
import io
import math
import pathlib
import sys
import wave

from onnx import TensorProto, checker, helper

HERE = pathlib.Path(__file__).resolve().parent
OPSET, IR = 17, 8
node = helper.make_node


def uniform(seed, count):
    """`count` numbers in [-1, 1) with 24 significant bits, exact in FP32 (splitmix64)."""
    mask, numbers = (1 << 64) - 1, []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        numbers.append(((z ^ (z >> 31)) >> 40) / (1 << 23) - 1.0)
    return numbers


def tensor(name, dtype, *dims):
    return helper.make_tensor_value_info(name, dtype, list(dims))


def constant(name, dtype, dims, values):
    return helper.make_tensor(name, dtype, list(dims), values)


def model(name, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="sequor")
    checker.check_model(made, full_check=True)
    return made.SerializeToString(deterministic=True)


def running_sum(dtype, zero):
    """OUTPUT = OUTPUT_STATE = INPUT + (INPUT_STATE where `keep`, else 0)."""
    nodes = [
        node("Where", ["keep", "INPUT_STATE", "zero"], ["kept"]),
        node("Add", ["INPUT", "kept"], ["OUTPUT_STATE"]),
        node("Identity", ["OUTPUT_STATE"], ["OUTPUT"]),
    ]
    rows = [tensor(name, dtype, "batch", 1) for name in ("INPUT", "INPUT_STATE", "OUTPUT", "OUTPUT_STATE")]
    return nodes, rows[:2], rows[2:], [constant("zero", dtype, [1, 1], [zero])]


def accumulator_int32():
    int32, controls = TensorProto.INT32, ("START", "END", "READY")
    nodes, inputs, outputs, constants = running_sum(int32, 0)
    control = [
        node("Cast", ["START"], ["start"], to=TensorProto.BOOL),
        node("Cast", ["READY"], ["ready"], to=TensorProto.BOOL),
        node("Not", ["start"], ["not_start"]),
        node("And", ["ready", "not_start"], ["keep"]),
    ]
    echo = [
        node("Concat", list(controls), ["SEEN"], axis=1),
        node("Identity", ["CORRID"], ["CORRID_OUT"]),
    ]
    inputs += [tensor(name, int32, "batch", 1) for name in controls] + [tensor("CORRID", TensorProto.UINT64, "batch", 1)]
    outputs += [tensor("SEEN", int32, "batch", 3), tensor("CORRID_OUT", TensorProto.UINT64, "batch", 1)]
    return model("accumulator_int32", control + nodes + echo, inputs, outputs, constants)


def accumulator_fp32():
    nodes, inputs, outputs, constants = running_sum(TensorProto.FLOAT, 0.0)
    control = [
        node("Cast", ["START"], ["start"], to=TensorProto.BOOL),
        node("Not", ["start"], ["not_start"]),
        node("And", ["READY", "not_start"], ["keep"]),
    ]
    inputs += [tensor("START", TensorProto.FLOAT, "batch", 1), tensor("READY", TensorProto.BOOL, "batch", 1)]
    return model("accumulator_fp32", control + nodes, inputs, outputs, constants)


def gru(features=8, hidden=16):
    """INPUT [batch, time, features], H [batch, hidden] -> OUTPUT [batch, time, hidden], H_OUT [batch, hidden]."""
    f32 = TensorProto.FLOAT

    def weights(name, seed, *dims):
        scale = 1.0 / math.sqrt(hidden)
        return constant(name, f32, dims, [scale * x for x in uniform(seed, math.prod(dims))])

    nodes = [
        node("Transpose", ["INPUT"], ["x"], perm=[1, 0, 2]),
        node("Unsqueeze", ["H", "axis_0"], ["h"]),
        node("GRU", ["x", "W", "R", "B", "", "h"], ["y", "y_h"], hidden_size=hidden, linear_before_reset=1),
        node("Squeeze", ["y", "axis_1"], ["y_1"]),
        node("Transpose", ["y_1"], ["OUTPUT"], perm=[1, 0, 2]),
        node("Squeeze", ["y_h", "axis_0"], ["H_OUT"]),
    ]
    constants = [
        weights("W", 1, 1, 3 * hidden, features),
        weights("R", 2, 1, 3 * hidden, hidden),
        weights("B", 3, 1, 6 * hidden),
        constant("axis_0", TensorProto.INT64, [1], [0]),
        constant("axis_1", TensorProto.INT64, [1], [1]),
    ]
    inputs = [tensor("INPUT", f32, "batch", "time", features), tensor("H", f32, "batch", hidden)]
    outputs = [tensor("OUTPUT", f32, "batch", "time", hidden), tensor("H_OUT", f32, "batch", hidden)]
    return model("gru", nodes, inputs, outputs, constants)


def noise(seconds=3, rate=16000, level=0.02):
    """Pink noise, 16 bit mono: white noise through three one-pole low-passes of spread corner frequencies, summed."""
    poles = [(0.99765, 0.0990460), (0.96300, 0.2965164), (0.57000, 1.0526913)]
    kept, samples = [0.0] * len(poles), array.array("h")
    for white in uniform(4, seconds * rate):
        kept = [pole * y + gain * white for (pole, gain), y in zip(poles, kept)]
        pink = (sum(kept) + 0.1848 * white) * level
        samples.append(max(-32768, min(32767, round(pink * 32768))))
    if sys.byteorder == "big":
        samples.byteswap()
    held = io.BytesIO()
    with wave.open(held, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return held.getvalue()


FILES = {
    "accumulator_fp32/1/model.onnx": accumulator_fp32,
    "accumulator_int32/1/model.onnx": accumulator_int32,
    "gru/1/model.onnx": gru,
    "vad/samples/noise.wav": noise,
}


def main():
    check, wrong = sys.argv[1:] == ["--check"], 0
    for path, make in FILES.items():
        made, file = make(), HERE / path
        if check:
            same = file.is_file() and file.read_bytes() == made
            wrong += not same
            print(f"{'ok' if same else 'DIFFERS':8}{hashlib.sha256(made).hexdigest()}  models/{path}")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(made)
            print(f"made    {hashlib.sha256(made).hexdigest()}  models/{path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
