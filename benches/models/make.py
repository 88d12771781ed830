"""Makes the models that only the benchmarks need; the others are of models/.

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


LAYERS, LEFT, FRAMES, DIM, KERNEL = 8, 64, 16, 512, 92


def wide_identity():
    """OUTPUT is INPUT, as many bytes as a step of `cached` takes."""
    inputs, outputs = ([tensor(name, ["batch", FRAMES, 80])] for name in ("INPUT", "OUTPUT"))
    write("wide_identity", [helper.make_node("Identity", ["INPUT"], ["OUTPUT"])], inputs, outputs)


def cached(graph, leading):
    """A step of a streaming encoder as far as its states go: four of two types, 3.5 MiB, the batch on their first axis or on their second.
    Eight layers attend to what they have kept of 64 frames and shift it by 16; what real ones compute besides is left out."""
    batched = ["batch", LAYERS] if leading else [LAYERS, "batch"]
    state = lambda name, dims: helper.make_tensor_value_info(name, T.FLOAT, [*batched, *dims])
    length = lambda name: helper.make_tensor_value_info(name, T.INT64, [*batched, 1])
    number = lambda name, values: helper.make_tensor(name, T.INT64, [len(values)], values)
    weights = [((7 * i) % 23 - 11) / 64 for i in range(80 * DIM)]
    constants = [
        helper.make_tensor("weights", T.FLOAT, [80, DIM], weights),
        helper.make_tensor("scale", T.FLOAT, [1], [1 / 64]),
        number("layer", [1 if leading else 0]),
        number("frames", [FRAMES]),
        number("all", [1 << 31]),
        number("time", [2]),
        number("last", [3]),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["frames_in"]),
        helper.make_node("Unsqueeze", ["frames_in", "layer"], ["one"]),
        helper.make_node("Shape", ["key"], ["shape"], start=0, end=2),
        helper.make_node("Concat", ["shape", "tail"], ["wide"], axis=0),
        helper.make_node("Expand", ["one", "wide"], ["new"]),
    ]
    constants.append(number("tail", [FRAMES, DIM]))
    for name in ("key", "value"):
        nodes += [
            helper.make_node("Concat", [name, "new"], [f"{name}_long"], axis=2),
            helper.make_node("Slice", [f"{name}_long", "frames", "all", "time"], [f"{name}_out"]),
        ]
    nodes += [
        helper.make_node("Transpose", ["key_long"], ["key_across"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["new", "key_across"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "value_long"], ["seen"]),
        helper.make_node("Transpose", ["seen"], ["seen_across"], perm=[0, 1, 3, 2]),
        helper.make_node("Concat", ["conv", "seen_across"], ["conv_long"], axis=3),
        helper.make_node("Slice", ["conv_long", "frames", "all", "last"], ["conv_out"]),
        helper.make_node("ReduceMean", ["seen"], ["y"], axes=[1, 2] if leading else [0, 2], keepdims=0),
        helper.make_node("Add", ["length", "frames"], ["length_out"]),
    ]
    inputs = [tensor("x", ["batch", FRAMES, 80])]
    outputs = [tensor("y", ["batch", DIM])]
    for side, list in (("", inputs), ("_out", outputs)):
        list += [state("key" + side, [LEFT, DIM]), state("value" + side, [LEFT, DIM]), state("conv" + side, [DIM, KERNEL])]
        list.append(length("length" + side))
    write(graph, nodes, inputs, outputs, constants)


if __name__ == "__main__":
    identity()
    wide()
    wide_identity()
    cached("cached", leading=False)
    cached("cached_rows", leading=True)
