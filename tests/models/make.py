"""Makes the tiny ONNX models of this directory. Each is one idea that a test of the ONNX backend needs.

    python3 -m venv .venv && .venv/bin/pip install onnx==1.23.2 numpy && .venv/bin/python tests/models/make.py

The files are committed, so nothing here runs when the tests do.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto as T
from onnx import checker, helper, numpy_helper, save

HERE = Path(__file__).parent


def tensor(name, dtype, dims):
    return helper.make_tensor_value_info(name, dtype, dims)


def write(name, nodes, inputs, outputs, constants=(), opset=17, ir=8):
    graph = helper.make_graph(nodes, name, inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, producer_name="sequor")
    checker.check_model(model)
    save(model, HERE / f"{name}.onnx")


def accumulate(name, dtype, zero):
    """OUTPUT = OUTPUT_STATE = INPUT + INPUT_STATE where READY and not START."""
    nodes = [
        helper.make_node("Equal", ["START", "zero"], ["not_started"]),
        helper.make_node("Equal", ["READY", "zero"], ["not_ready"]),
        helper.make_node("Not", ["not_ready"], ["ready"]),
        helper.make_node("And", ["not_started", "ready"], ["keep"]),
        helper.make_node("Where", ["keep", "INPUT_STATE", "zero"], ["kept"]),
        helper.make_node("Add", ["INPUT", "kept"], ["OUTPUT"]),
        helper.make_node("Identity", ["OUTPUT"], ["OUTPUT_STATE"]),
    ]
    rows, control = ["batch", "width"], ["batch", 1]
    inputs = [
        tensor("INPUT", dtype, rows),
        tensor("START", dtype, control),
        tensor("READY", dtype, control),
        tensor("INPUT_STATE", dtype, rows),
    ]
    write(name, nodes, inputs, [tensor("OUTPUT", dtype, rows), tensor("OUTPUT_STATE", dtype, rows)], [("zero", zero)])


def string_state():
    """OUTPUT is the string before, OUTPUT_STATE the string now."""
    nodes = [
        helper.make_node("Identity", ["INPUT_STATE"], ["OUTPUT"]),
        helper.make_node("Identity", ["INPUT"], ["OUTPUT_STATE"]),
    ]
    ports = [tensor(n, T.STRING, ["batch", "width"]) for n in ("INPUT", "INPUT_STATE", "OUTPUT", "OUTPUT_STATE")]
    write("string_state", nodes, ports[:2], ports[2:])


def bool_int8():
    """Counts the true inputs in an int8 state; OUTPUT says whether the count is odd."""
    nodes = [
        helper.make_node("Cast", ["INPUT"], ["one"], to=T.INT32),
        helper.make_node("Cast", ["INPUT_STATE"], ["before"], to=T.INT32),
        helper.make_node("Add", ["before", "one"], ["count"]),
        helper.make_node("Cast", ["count"], ["OUTPUT_STATE"], to=T.INT8),
        helper.make_node("Mod", ["count", "two"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["OUTPUT"], to=T.BOOL),
    ]
    write(
        "bool_int8",
        nodes,
        [tensor("INPUT", T.BOOL, ["batch", 1]), tensor("INPUT_STATE", T.INT8, ["batch", 1])],
        [tensor("OUTPUT", T.BOOL, ["batch", 1]), tensor("OUTPUT_STATE", T.INT8, ["batch", 1])],
        [("two", np.int32(2))],
    )


def grow():
    """The state is every input so far, along axis 1; OUTPUT is their sum."""
    nodes = [
        helper.make_node("Concat", ["INPUT_STATE", "INPUT"], ["OUTPUT_STATE"], axis=1),
        helper.make_node("ReduceSum", ["OUTPUT_STATE", "axis"], ["OUTPUT"], keepdims=0),
    ]
    write(
        "grow_fp32",
        nodes,
        [tensor("INPUT", T.FLOAT, ["batch", "new", 4]), tensor("INPUT_STATE", T.FLOAT, ["batch", "len", 4])],
        [tensor("OUTPUT", T.FLOAT, ["batch", 4]), tensor("OUTPUT_STATE", T.FLOAT, ["batch", "longer", 4])],
        [("axis", np.array([1], np.int64))],
    )


def mean():
    """The mean of every input so far, from two states of two types: their sum and their count."""
    nodes = [
        helper.make_node("Add", ["SUM", "INPUT"], ["SUM_OUT"]),
        helper.make_node("Add", ["COUNT", "one"], ["COUNT_OUT"]),
        helper.make_node("Cast", ["COUNT_OUT"], ["count"], to=T.FLOAT),
        helper.make_node("Div", ["SUM_OUT", "count"], ["OUTPUT"]),
    ]
    rows = ["batch", 1]
    write(
        "mean",
        nodes,
        [tensor("INPUT", T.FLOAT, rows), tensor("SUM", T.FLOAT, rows), tensor("COUNT", T.INT64, rows)],
        [tensor("OUTPUT", T.FLOAT, rows), tensor("SUM_OUT", T.FLOAT, rows), tensor("COUNT_OUT", T.INT64, rows)],
        [("one", np.int64(1))],
    )


def wrong_in_batches():
    """Sums whose rows mix (`mixed_rows`), and one that is fixed to a batch of 1 (`one_row`)."""
    ports = [tensor(n, T.FLOAT, ["batch", 4]) for n in ("INPUT", "STATE", "OUTPUT", "STATE_OUT")]
    mixed = [
        helper.make_node("Add", ["INPUT", "STATE"], ["STATE_OUT"]),
        helper.make_node("ReduceMean", ["INPUT"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Add", ["STATE_OUT", "mean"], ["OUTPUT"]),
    ]
    write("mixed_rows", mixed, ports[:2], ports[2:])
    fixed = [
        helper.make_node("Reshape", ["STATE", "one_row"], ["row"]),
        helper.make_node("Add", ["INPUT", "row"], ["OUTPUT"]),
        helper.make_node("Identity", ["OUTPUT"], ["STATE_OUT"]),
    ]
    write("one_row", fixed, ports[:2], ports[2:], [("one_row", np.array([1, 4], np.int64))])


def scalar():
    """An input and an output of rank 0."""
    nodes = [
        helper.make_node("Cast", ["RATE"], ["rate"], to=T.FLOAT),
        helper.make_node("Mul", ["INPUT", "rate"], ["OUTPUT"]),
        helper.make_node("ReduceSum", ["OUTPUT"], ["TOTAL"], keepdims=0),
    ]
    write(
        "scalar",
        nodes,
        [tensor("INPUT", T.FLOAT, ["batch"]), tensor("RATE", T.INT64, [])],
        [tensor("OUTPUT", T.FLOAT, ["batch"]), tensor("TOTAL", T.FLOAT, [])],
    )


def gather():
    """Fails when INDEX is not one of 0 to 3."""
    write(
        "gather",
        [helper.make_node("Gather", ["table", "INDEX"], ["OUTPUT"])],
        [tensor("INDEX", T.INT64, ["batch"])],
        [tensor("OUTPUT", T.FLOAT, ["batch"])],
        [("table", np.array([10, 20, 30, 40], np.float32))],
    )


def as_many():
    """OUTPUT is LENGTH[0] ones, for allocations of any size."""
    nodes = [
        helper.make_node("ConstantOfShape", ["LENGTH"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["OUTPUT"]),
    ]
    one = ("one", np.float32(1))
    write("as_many", nodes, [tensor("LENGTH", T.INT64, [1])], [tensor("OUTPUT", T.FLOAT, ["n"])], [one])


def through():
    """BACK reshapes INPUT (its bytes stay as they are); STATE and FIXED are outputs without a node: an input and a constant."""
    write(
        "through",
        [helper.make_node("Reshape", ["INPUT", "flat"], ["BACK"])],
        [tensor("INPUT", T.FLOAT, ["batch", 2]), tensor("STATE", T.FLOAT, ["batch", 2])],
        [tensor("BACK", T.FLOAT, ["elements"]), tensor("STATE", T.FLOAT, ["batch", 2]), tensor("FIXED", T.FLOAT, [2])],
        [("flat", np.array([-1], np.int64)), ("FIXED", np.array([7, 8], np.float32))],
    )


def windows():
    """y is x: windows of ten frames, passed on."""
    for name, dtype in (("fp32", T.FLOAT), ("fp16", T.FLOAT16)):
        ports = [tensor(port, dtype, ["batch", 10, 80]) for port in ("x", "y")]
        write(f"windows_{name}", [helper.make_node("Identity", ["x"], ["y"])], ports[:1], ports[1:])


def not_served():
    """An output that is a sequence of tensors, and one whose elements have a type no protocol carries."""
    sequence = helper.make_tensor_sequence_value_info("LIST", T.FLOAT, None)
    write("sequence", [helper.make_node("SequenceConstruct", ["INPUT"], ["LIST"])], [tensor("INPUT", T.FLOAT, [1])], [sequence])
    cast = helper.make_node("Cast", ["INPUT"], ["SMALL"], to=T.FLOAT8E4M3FN)
    write("float8", [cast], [tensor("INPUT", T.FLOAT, [1])], [tensor("SMALL", T.FLOAT8E4M3FN, [1])], opset=19, ir=9)


def ragged():
    """Requests joined to one list: a list that the server makes beside them, the shapes of items, and sums of what lies between offsets."""
    flat, same = ["elements"], helper.make_node("Identity", ["INPUT"], ["OUTPUT"])
    plain = [tensor("INPUT", T.FLOAT, flat)], [tensor("OUTPUT", T.FLOAT, ["same"])]
    of_list = tensor("LIST", T.INT32, ["entries"])
    write("ragged_list", [same, helper.make_node("Identity", ["LIST"], ["LIST_OUT"])], plain[0] + [of_list],
          plain[1] + [tensor("LIST_OUT", T.INT32, ["entries"])])
    items = tensor("ITEMS", T.FLOAT, ["items", "rank"])
    write("ragged_items", [same, helper.make_node("Identity", ["ITEMS"], ["SHAPE"])], plain[0] + [items],
          plain[1] + [tensor("SHAPE", T.FLOAT, ["items", "rank"])])
    sums = [
        helper.make_node("CumSum", ["INPUT", "axis"], ["running"]),
        helper.make_node("Concat", ["zero", "running"], ["upto"], axis=0),
        helper.make_node("Slice", ["OFFSETS", "first", "last"], ["begins"]),
        helper.make_node("Slice", ["OFFSETS", "second", "far"], ["ends"]),
        helper.make_node("Gather", ["upto", "begins"], ["at_begin"]),
        helper.make_node("Gather", ["upto", "ends"], ["at_end"]),
        helper.make_node("Sub", ["at_end", "at_begin"], ["sums"]),
        helper.make_node("Unsqueeze", ["sums", "column"], ["new"]),
        helper.make_node("Add", ["new", "STATE"], ["OUTPUT"]),
        helper.make_node("Identity", ["OUTPUT"], ["STATE_OUT"]),
    ]
    one = np.array
    write(
        "ragged_sums",
        sums,
        [tensor("INPUT", T.FLOAT, flat), tensor("OFFSETS", T.INT32, ["offsets"]), tensor("STATE", T.FLOAT, ["batch", 1])],
        [tensor("OUTPUT", T.FLOAT, ["batch", 1]), tensor("STATE_OUT", T.FLOAT, ["batch", 1])],
        [("axis", np.int64(0)), ("zero", one([0], np.float32)), ("first", one([0], np.int64)), ("last", one([-1], np.int64)),
         ("second", one([1], np.int64)), ("far", one([2**62], np.int64)), ("column", one([1], np.int64))],
    )


def padded():
    """Rows padded to one length: OUTPUT is twice INPUT, HALF every second element, SUM the sum of what is no padding by LENS and by MASK."""
    nodes = [
        helper.make_node("Mul", ["INPUT", "two"], ["OUTPUT"]),
        helper.make_node("Slice", ["INPUT", "zero", "far", "axis", "step"], ["HALF"]),
        helper.make_node("Shape", ["INPUT"], ["length"], start=1, end=2),
        helper.make_node("Squeeze", ["length"], ["scalar"]),
        helper.make_node("Range", ["start", "scalar", "by"], ["places"]),
        helper.make_node("Unsqueeze", ["LENS", "axis"], ["OUT_LENS"]),
        helper.make_node("Less", ["places", "OUT_LENS"], ["real"]),
        helper.make_node("Cast", ["real"], ["ones"], to=T.FLOAT),
        helper.make_node("Mul", ["INPUT", "ones"], ["by_lens"]),
        helper.make_node("Mul", ["by_lens", "MASK"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["SUM"], keepdims=1),
    ]
    rows = ["batch", "time"]
    one = lambda n: np.array([n], np.int64)
    write(
        "padded",
        nodes,
        [tensor("INPUT", T.FLOAT, rows), tensor("LENS", T.INT64, ["batch"]), tensor("MASK", T.FLOAT, rows)],
        [tensor("OUTPUT", T.FLOAT, rows), tensor("HALF", T.FLOAT, ["batch", "half"]), tensor("SUM", T.FLOAT, ["batch", 1]),
         tensor("OUT_LENS", T.INT64, ["batch", 1])],
        [("two", np.float32(2)), ("zero", one(0)), ("far", one(2**62)), ("axis", one(1)), ("step", one(2)),
         ("start", np.int64(0)), ("by", np.int64(1))],
    )


def optional():
    """OUTPUT = INPUT * SCALE + SHIFT; both have values of their own, which a run may replace."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["INPUT", "SCALE"], ["scaled"]), helper.make_node("Add", ["scaled", "SHIFT"], ["OUTPUT"])],
        "optional",
        [tensor("INPUT", T.FLOAT, ["batch", 1]), tensor("SCALE", T.FLOAT, ["rows", 1]), tensor("SHIFT", T.FLOAT, ["many", 1])],
        [tensor("OUTPUT", T.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(np.array([[2]], np.float32), "SCALE"), numpy_helper.from_array(np.array([[0]], np.float32), "SHIFT")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="sequor")
    save(model, HERE / "optional.onnx")


def optional_list():
    """OUTPUT = INPUT + the sum of the row of LIST, which has a value of its own: one element, 5."""
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["LIST", "axis"], ["sum"], keepdims=1), helper.make_node("Add", ["INPUT", "sum"], ["OUTPUT"])],
        "optional_list",
        [tensor("INPUT", T.FLOAT, ["batch", 1]), tensor("LIST", T.FLOAT, ["rows", "many"])],
        [tensor("OUTPUT", T.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(np.array([[5]], np.float32), "LIST"), numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="sequor")
    save(model, HERE / "optional_list.onnx")


def echo_int32():
    """OUTPUT is INPUT."""
    rows = ["batch", "width"]
    write("echo_int32", [helper.make_node("Identity", ["INPUT"], ["OUTPUT"])], [tensor("INPUT", T.INT32, rows)], [tensor("OUTPUT", T.INT32, rows)])


if __name__ == "__main__":
    accumulate("accumulate_fp32", T.FLOAT, np.float32(0))
    accumulate("accumulate_int32", T.INT32, np.int32(0))
    string_state()
    bool_int8()
    grow()
    mean()
    wrong_in_batches()
    scalar()
    gather()
    as_many()
    through()
    windows()
    not_served()
    ragged()
    padded()
    optional()
    optional_list()
    echo_int32()
