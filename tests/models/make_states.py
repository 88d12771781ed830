"""Makes the tiny stateful models that the behaviour tests need, beside those of make.py and in the same way.

    .venv/bin/python tests/models/make_states.py
"""

import numpy as np
from make import tensor, write
from onnx import TensorProto as T
from onnx import helper

node = helper.make_node
ROWS, CONTROL = ["batch", "width"], ["batch", 1]


def running_sum(name, dtype, rows):
    """OUTPUT = OUTPUT_STATE = INPUT + INPUT_STATE, without any control."""
    nodes = [node("Add", ["INPUT", "INPUT_STATE"], ["OUTPUT"]), node("Identity", ["OUTPUT"], ["OUTPUT_STATE"])]
    ports = [tensor(n, dtype, rows) for n in ("INPUT", "INPUT_STATE", "OUTPUT", "OUTPUT_STATE")]
    write(name, nodes, ports[:2], ports[2:])


def running_text():
    """OUTPUT = OUTPUT_STATE = INPUT_STATE (nothing where START) followed by INPUT."""
    nodes = [
        node("Where", ["START", "nothing", "INPUT_STATE"], ["kept"]),
        node("StringConcat", ["kept", "INPUT"], ["OUTPUT"]),
        node("Identity", ["OUTPUT"], ["OUTPUT_STATE"]),
    ]
    inputs = [tensor("INPUT", T.STRING, ROWS), tensor("START", T.BOOL, CONTROL), tensor("INPUT_STATE", T.STRING, ROWS)]
    outputs = [tensor("OUTPUT", T.STRING, ROWS), tensor("OUTPUT_STATE", T.STRING, ROWS)]
    write("running_text", nodes, inputs, outputs, [("nothing", np.array("", object))], opset=20, ir=9)


def delay_all():
    """One state of every type; OUT_x is what X_x was at the request before."""
    types = {
        "bool": T.BOOL, "uint8": T.UINT8, "uint16": T.UINT16, "uint32": T.UINT32, "uint64": T.UINT64,
        "int8": T.INT8, "int16": T.INT16, "int32": T.INT32, "int64": T.INT64,
        "fp16": T.FLOAT16, "fp32": T.FLOAT, "fp64": T.DOUBLE, "string": T.STRING, "bf16": T.BFLOAT16,
    }  # fmt: skip
    nodes, inputs, outputs = [], [], []
    for name, dtype in types.items():
        nodes += [node("Identity", [f"IN_{name}"], [f"OUT_{name}"]), node("Identity", [f"X_{name}"], [f"NEW_{name}"])]
        inputs += [tensor(f"{n}_{name}", dtype, ["batch", 2]) for n in ("X", "IN")]
        outputs += [tensor(f"{n}_{name}", dtype, ["batch", 2]) for n in ("OUT", "NEW")]
    write("delay_all", nodes, inputs, outputs)


def crossed():
    """Three states of two types; their inputs' names sort a, b, c, their outputs' b, c, a. Each changes in its own way."""
    nodes = [
        node("Add", ["a", "INPUT"], ["z"]),
        node("Add", ["b", "one"], ["x"]),
        node("Mul", ["c", "two"], ["twice"]),
        node("Add", ["twice", "INPUT"], ["y"]),
        node("Cast", ["x"], ["count"], to=T.FLOAT),
        node("Concat", ["z", "count", "y"], ["OUTPUT"], axis=1),
    ]
    inputs = [tensor(n, t, ["batch", 1]) for n, t in (("INPUT", T.FLOAT), ("a", T.FLOAT), ("b", T.INT32), ("c", T.FLOAT))]
    outputs = [tensor(n, t, ["batch", 1]) for n, t in (("z", T.FLOAT), ("x", T.INT32), ("y", T.FLOAT))]
    outputs.append(tensor("OUTPUT", T.FLOAT, ["batch", 3]))
    write("crossed", nodes, inputs, outputs, [("one", np.int32(1)), ("two", np.float32(2))])


def sees(name, dtype):
    """Gives back the three controls as they came."""
    names = ("START", "READY", "END")
    nodes = [node("Identity", [n], [f"SEEN_{n}"]) for n in names] + [node("Identity", ["INPUT"], ["OUTPUT"])]
    inputs = [tensor("INPUT", T.INT32, ["batch", 1])] + [tensor(n, dtype, CONTROL) for n in names]
    outputs = [tensor("OUTPUT", T.INT32, ["batch", 1])] + [tensor(f"SEEN_{n}", dtype, CONTROL) for n in names]
    write(name, nodes, inputs, outputs)


def sees_id(name, dtype):
    """A running sum that gives the correlation id back."""
    nodes = [
        node("Add", ["INPUT", "INPUT_STATE"], ["OUTPUT"]),
        node("Identity", ["OUTPUT"], ["OUTPUT_STATE"]),
        node("Identity", ["CORRID"], ["SEEN"]),
    ]
    ports = [tensor(n, T.INT32, ["batch", 1]) for n in ("INPUT", "INPUT_STATE", "OUTPUT", "OUTPUT_STATE")]
    write(name, nodes, [*ports[:2], tensor("CORRID", dtype, CONTROL)], [*ports[2:], tensor("SEEN", dtype, CONTROL)])


def begins_at_100():
    """A running sum whose first state the model chooses itself: 100 where START."""
    nodes = [
        node("Where", ["START", "hundred", "INPUT_STATE"], ["kept"]),
        node("Add", ["INPUT", "kept"], ["OUTPUT"]),
        node("Identity", ["OUTPUT"], ["OUTPUT_STATE"]),
    ]
    ports = [tensor(n, T.INT32, ["batch", 1]) for n in ("INPUT", "INPUT_STATE", "OUTPUT", "OUTPUT_STATE")]
    inputs = [*ports[:2], tensor("START", T.BOOL, CONTROL)]
    write("begins_at_100", nodes, inputs, ports[2:], [("hundred", np.int32(100))])


def on_axis_1():
    """The state is [2, batch, 3]: its first half sums INPUT, its second half twice INPUT. OUTPUT is the state, rows first."""
    nodes = [
        node("Mul", ["INPUT", "weights"], ["both"]),
        node("Add", ["INPUT_STATE", "both"], ["OUTPUT_STATE"]),
        node("Transpose", ["OUTPUT_STATE"], ["OUTPUT"], perm=[1, 0, 2]),
    ]
    inputs = [tensor("INPUT", T.FLOAT, ["batch", 3]), tensor("INPUT_STATE", T.FLOAT, [2, "batch", 3])]
    outputs = [tensor("OUTPUT", T.FLOAT, ["batch", 2, 3]), tensor("OUTPUT_STATE", T.FLOAT, [2, "batch", 3])]
    write("on_axis_1", nodes, inputs, outputs, [("weights", np.array([[[1]], [[2]]], np.float32))])


def lookup():
    """A running sum of table entries; an index that is not one of 0 to 3 fails the run."""
    nodes = [
        node("Gather", ["table", "INPUT"], ["entry"]),
        node("Add", ["entry", "INPUT_STATE"], ["OUTPUT"]),
        node("Identity", ["OUTPUT"], ["OUTPUT_STATE"]),
    ]
    inputs = [tensor("INPUT", T.INT64, ["batch", 1]), tensor("INPUT_STATE", T.FLOAT, ["batch", 1])]
    outputs = [tensor(n, T.FLOAT, ["batch", 1]) for n in ("OUTPUT", "OUTPUT_STATE")]
    write("lookup", nodes, inputs, outputs, [("table", np.array([1, 10, 100, 1000], np.float32))])


def wide():
    """A state of any width, all of it moved by INPUT; OUTPUT is its least and its greatest element."""
    nodes = [
        node("Add", ["INPUT_STATE", "INPUT"], ["OUTPUT_STATE"]),
        node("ReduceMin", ["OUTPUT_STATE"], ["least"], axes=[1]),
        node("ReduceMax", ["OUTPUT_STATE"], ["greatest"], axes=[1]),
        node("Concat", ["least", "greatest"], ["OUTPUT"], axis=1),
    ]
    inputs = [tensor("INPUT", T.FLOAT, ["batch", 1]), tensor("INPUT_STATE", T.FLOAT, ROWS)]
    write("wide", nodes, inputs, [tensor("OUTPUT", T.FLOAT, ["batch", 2]), tensor("OUTPUT_STATE", T.FLOAT, ROWS)])


def transducer():
    """The four states of a streaming transducer's encoder. INPUT moves every element of the first by 1, of the second by 2, of the third by 3
    times itself, and the fourth counts. OUTPUT is the least and the greatest element of each."""
    states = {"att": (T.FLOAT, [64, 45, 192], 1), "cnn": (T.FLOAT, [30, 384, 30], 2), "sum": (T.FLOAT, [15, 384], 3), "len": (T.INT64, [15], 0)}
    nodes, inputs, outputs, constants, ends = [], [tensor("INPUT", T.FLOAT, ["batch", 1])], [], [], []
    for name, (dtype, dims, weight) in states.items():
        inputs.append(tensor(f"{name}_cache", dtype, ["batch", *dims]))
        outputs.append(tensor(f"new_{name}_cache", dtype, ["batch", *dims]))
        if weight:
            constants += [(f"{name}_weight", np.float32(weight)), (f"{name}_shape", np.array([-1] + [1] * len(dims), np.int64))]
            nodes += [
                node("Mul", ["INPUT", f"{name}_weight"], [f"{name}_by"]),
                node("Reshape", [f"{name}_by", f"{name}_shape"], [f"{name}_add"]),
                node("Add", [f"{name}_cache", f"{name}_add"], [f"new_{name}_cache"]),
            ]
        else:
            constants.append((f"{name}_one", np.int64(1)))
            nodes.append(node("Add", [f"{name}_cache", f"{name}_one"], [f"new_{name}_cache"]))
        nodes.append(node("Cast", [f"new_{name}_cache"], [f"{name}_float"], to=T.FLOAT))
        nodes.append(node("Flatten", [f"{name}_float"], [f"{name}_flat"], axis=1))
        for op in ("ReduceMin", "ReduceMax"):
            nodes.append(node(op, [f"{name}_flat"], [f"{name}_{op}"], axes=[1]))
            ends.append(f"{name}_{op}")
    nodes.append(node("Concat", ends, ["OUTPUT"], axis=1))
    write("transducer", nodes, inputs, [*outputs, tensor("OUTPUT", T.FLOAT, ["batch", 8])], constants)


def recurrent(name, direction="forward"):
    """x [time, 1, 3] through an LSTM whose first states the graph gives (a constant, and one that it computes), and a GRU: g [time, 1, 5]. And through an RNN
    whose sums are exact for inputs that are multiples of 1/256: y [time, 1, 2]. ONNX Runtime's kernel for RNN rounds one step otherwise than many."""
    rng, f32 = np.random.default_rng(11), np.float32
    sides = 1 if direction == "forward" else 2 if direction == "bidirectional" else 1

    def weights(kind, gates, size, features):
        draw = lambda *dims: rng.uniform(-0.6, 0.6, dims).astype(f32)  # noqa: E731
        return [
            (f"{kind}_W", draw(sides, gates * size, features)),
            (f"{kind}_R", draw(sides, gates * size, size)),
            (f"{kind}_B", draw(sides, 2 * gates * size)),
        ]

    constants = weights("lstm", 4, 4, 3)
    constants += [("first_h", rng.uniform(-1, 1, (sides, 1, 4)).astype(f32)), ("seed_c", rng.uniform(-1, 1, (sides, 1, 4)).astype(f32))]
    constants += [("two", np.array([2.0], f32)), ("side", np.array([1], np.int64))]
    nodes = [
        node("Mul", ["seed_c", "two"], ["first_c"]),
        node("LSTM", ["x", "lstm_W", "lstm_R", "lstm_B", "", "first_h", "first_c"], ["lstm_y"], name="/encoder/LSTM", hidden_size=4, direction=direction),
    ]
    if direction == "forward":
        constants += weights("gru", 3, 5, 4)
        constants += [
            ("rnn_W", np.array([[[0.5, -0.25, 0.75], [-0.5, 1.0, 0.25]]], f32)),
            ("rnn_R", np.array([[[1, 0], [0, 1]]], f32)),
            ("rnn_B", np.array([[0.25, 0.5, 0, 0]], f32)),
        ]
        nodes += [
            node("Squeeze", ["lstm_y", "side"], ["a"]),
            node("GRU", ["a", "gru_W", "gru_R", "gru_B"], ["gru_y"], hidden_size=5, linear_before_reset=1),
            node("Squeeze", ["gru_y", "side"], ["g"]),
            node("RNN", ["x", "rnn_W", "rnn_R", "rnn_B"], ["rnn_y", "rnn_last"], hidden_size=2, activations=["Relu"]),
            node("Squeeze", ["rnn_y", "side"], ["y"]),
        ]
        ends = [tensor("g", T.FLOAT, ["time", 1, 5]), tensor("y", T.FLOAT, ["time", 1, 2])]
    else:
        nodes.append(node("Identity", ["lstm_y"], ["y"]))
        ends = [tensor("y", T.FLOAT, ["time", sides, 1, 4])]
    write(name, nodes, [tensor("x", T.FLOAT, ["time", 1, 3])], ends, constants)


def recurrent_open():
    """x [time, batch, 3] through a GRU: y [time, 1, batch, 2]."""
    rng, f32 = np.random.default_rng(12), np.float32
    constants = [("W", rng.uniform(-1, 1, (1, 6, 3)).astype(f32)), ("R", rng.uniform(-1, 1, (1, 6, 2)).astype(f32))]
    nodes = [node("GRU", ["x", "W", "R"], ["y"], hidden_size=2)]
    ends = [tensor("y", T.FLOAT, ["time", 1, "batch", 2])]
    write("recurrent_open", nodes, [tensor("x", T.FLOAT, ["time", "batch", 3])], ends, constants)


def attention(name, axis, new_steps=False):
    """Attention over a cache that grows: each value so far (INPUT twice over) times the product of its key (INPUT) with the last key, summed up.
    MASK is 1 where the caches have a row, and with `new_steps` for INPUT behind them. Their batch is on the axis `axis`; on axis 1 there are layers before it, which INPUT has behind its own."""
    places = axis + 1
    behind = places + 1
    nodes = [
        node("Transpose", ["INPUT"], ["keys"], perm=[1, 0, 2, 3]) if axis else node("Identity", ["INPUT"], ["keys"]),
        node("Add", ["keys", "keys"], ["values"]),
        node("Concat", ["KEYS", "keys"], ["KEYS_OUT"], axis=places),
        node("Concat", ["VALUES", "values"], ["VALUES_OUT"], axis=places),
        node("Slice", ["keys", "last", "far", "along"], ["query"]),
        node("Mul", ["KEYS_OUT", "query"], ["products"]),
        node("ReduceSum", ["products", "width"], ["scores"], keepdims=1),
        node("Shape", ["keys"], ["new"], start=places, end=places + 1),
        node("Shape", ["MASK"], ["count"], start=0, end=1),
        node("Concat", ["count", "new"], ["news"], axis=0),
        node("ConstantOfShape", ["news"], ["ones"], value=helper.make_tensor("one", T.FLOAT, [1], [1.0])),
        node("Identity", ["MASK"], ["real"]) if new_steps else node("Concat", ["MASK", "ones"], ["real"], axis=1),
        node("Unsqueeze", ["real", "third"], ["mask"]),
        node("Mul", ["scores", "mask"], ["weights"]),
        node("Mul", ["VALUES_OUT", "weights"], ["weighted"]),
        node("ReduceSum", ["weighted", "summed"], ["OUTPUT"], keepdims=0),
    ]
    def cache(name, length):
        return tensor(name, T.FLOAT, ["layers", "batch", length, 4] if axis else ["batch", length, 4])
    given = tensor("INPUT", T.FLOAT, ["batch", "layers", "new", 4] if axis else ["batch", "new", 4])
    one = lambda *n: np.array(n, np.int64)
    write(
        name,
        nodes,
        [given, cache("KEYS", "len"), cache("VALUES", "len"), tensor("MASK", T.FLOAT, ["batch", "real"])],
        [tensor("OUTPUT", T.FLOAT, ["batch", 4]), cache("KEYS_OUT", "longer"), cache("VALUES_OUT", "longer")],
        [("last", one(-1)), ("far", one(2**62)), ("along", one(places)), ("width", one(behind)), ("third", one(2)),
         ("summed", one(0, places) if axis else one(places))],
    )


def appended():
    """CACHE with LENS values in each row, and INPUT with IN_LENS: CACHE_OUT has the values of both at its beginning, NEW_LENS of them. OUTPUT is
    their sum. What lies behind the values of CACHE and INPUT is not read."""
    nodes = [
        node("Concat", ["CACHE", "INPUT"], ["both"], axis=1),
        node("Shape", ["CACHE"], ["before"], start=1, end=2),
        node("Shape", ["both"], ["whole"], start=1, end=2),
        node("Squeeze", ["whole"], ["places_count"]),
        node("Range", ["none", "places_count", "step"], ["places"]),
        node("Unsqueeze", ["LENS", "column"], ["lens"]),
        node("Add", ["LENS", "IN_LENS"], ["total"]),
        node("Unsqueeze", ["total", "column"], ["NEW_LENS"]),
        node("Less", ["places", "lens"], ["is_old"]),
        node("Less", ["places", "NEW_LENS"], ["is_real"]),
        node("Sub", ["before", "lens"], ["gap"]),
        node("Add", ["places", "gap"], ["moved"]),
        node("Where", ["is_old", "places", "moved"], ["from"]),
        node("Where", ["is_real", "from", "none"], ["index"]),
        node("Unsqueeze", ["index", "last"], ["indexes"]),
        node("Shape", ["both"], ["shape"]),
        node("Expand", ["indexes", "shape"], ["all"]),
        node("GatherElements", ["both", "all"], ["gathered"], axis=1),
        node("Cast", ["is_real"], ["ones"], to=T.FLOAT),
        node("Unsqueeze", ["ones", "last"], ["mask"]),
        node("Mul", ["gathered", "mask"], ["CACHE_OUT"]),
        node("ReduceSum", ["CACHE_OUT", "column"], ["OUTPUT"], keepdims=0),
    ]
    cache = lambda name, places: tensor(name, T.FLOAT, ["batch", places, 2])
    lengths = lambda name: tensor(name, T.INT64, ["batch"])
    one = lambda n: np.array([n], np.int64)
    write(
        "appended",
        nodes,
        [cache("INPUT", "new"), cache("CACHE", "len"), lengths("LENS"), lengths("IN_LENS")],
        [tensor("OUTPUT", T.FLOAT, ["batch", 2]), cache("CACHE_OUT", "longer"), tensor("NEW_LENS", T.INT64, ["batch", 1])],
        [("none", np.int64(0)), ("step", np.int64(1)), ("column", one(1)), ("last", one(2))],
    )


if __name__ == "__main__":
    recurrent("recurrent")
    recurrent_open()
    for direction in ("reverse", "bidirectional"):
        recurrent(f"recurrent_{direction}", direction)
    running_sum("sum_int32", T.INT32, ROWS)
    running_sum("sum_fp32", T.FLOAT, ROWS)
    running_sum("whole_int32", T.INT32, [3])
    running_text()
    delay_all()
    crossed()
    for name, dtype in (("int32", T.INT32), ("fp32", T.FLOAT), ("bool", T.BOOL)):
        sees(f"sees_{name}", dtype)
    for name, dtype in (("uint64", T.UINT64), ("int64", T.INT64), ("uint32", T.UINT32), ("int32", T.INT32), ("string", T.STRING)):
        sees_id(f"sees_id_{name}", dtype)
    begins_at_100()
    on_axis_1()
    lookup()
    wide()
    transducer()
    attention("attention", 0)
    attention("attention_layers", 1)
    attention("attention_whole", 0, new_steps=True)
    appended()
