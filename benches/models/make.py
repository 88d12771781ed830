"""Makes the two models that only the benchmarks need; the others are of models/.

    python3 -m venv .venv && .venv/bin/pip install onnx==1.23.2 && .venv/bin/python benches/models/make.py

The files are committed, so nothing here runs when the benchmarks do.
"""

from pathlib import Path

from onnx import TensorProto as T
from onnx import checker, helper

HERE = Path(__file__).parent
WIDTH = 16384  # FP32 elements: 64 KiB


def tensor(name, dims):
    return helper.make_tensor_value_info(name, T.FLOAT, dims)


def write(name, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="sequor")
    checker.check_model(model, full_check=True)
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def identity():
    """OUTPUT is INPUT, 64 bytes of it."""
    write("identity", [helper.make_node("Identity", ["INPUT"], ["OUTPUT"])], [tensor("INPUT", ["batch", 16])], [tensor("OUTPUT", ["batch", 16])])


def wide():
    """A running sum over 64 KiB of state, of which a request brings and gets one element."""
    nodes = [
        helper.make_node("Add", ["STATE", "INPUT"], ["STATE_OUT"]),
        helper.make_node("Slice", ["STATE_OUT", "zero", "one", "one"], ["OUTPUT"]),
    ]
    constants = [helper.make_tensor(name, T.INT64, [1], [value]) for name, value in (("zero", 0), ("one", 1))]
    inputs = [tensor("INPUT", ["batch", 1]), tensor("STATE", ["batch", WIDTH])]
    write("wide", nodes, inputs, [tensor("OUTPUT", ["batch", 1]), tensor("STATE_OUT", ["batch", WIDTH])], constants)


if __name__ == "__main__":
    identity()
    wide()
