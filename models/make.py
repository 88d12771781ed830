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


def model(name, nodes, inputs, outputs, constants, description=None):
    graph = helper.make_graph(nodes, name, inputs, outputs, constants, doc_string=description)
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


def lstm(frames=24, features=32, hidden=64):
    """INPUT [batch, frames, features] -> OUTPUT [batch, hidden], the last output of an LSTM that begins with zeros. For benches: a row costs much
    less in a batch than alone."""
    f32 = TensorProto.FLOAT

    def weights(name, seed, *dims):
        scale = 1.0 / math.sqrt(hidden)
        return constant(name, f32, dims, [scale * x for x in uniform(seed, math.prod(dims))])

    nodes = [
        node("Transpose", ["INPUT"], ["x"], perm=[1, 0, 2]),
        node("LSTM", ["x", "W", "R", "B"], ["", "y"], hidden_size=hidden),
        node("Squeeze", ["y", "axis_0"], ["OUTPUT"]),
    ]
    constants = [
        weights("W", 5, 1, 4 * hidden, features),
        weights("R", 6, 1, 4 * hidden, hidden),
        weights("B", 7, 1, 8 * hidden),
        constant("axis_0", TensorProto.INT64, [1], [0]),
    ]
    inputs, outputs = [tensor("INPUT", f32, "batch", frames, features)], [tensor("OUTPUT", f32, "batch", hidden)]
    return model("lstm", nodes, inputs, outputs, constants)


def steps(seed, count, scale, per_one):
    """`count` multiples of 1 / per_one, up to `scale`. Sums of products of such numbers are exact in FP32, in any order."""
    return [round(scale * per_one * x) / per_one for x in uniform(seed, count)]


# Of the synthetic transducer: tokens, width of its layers, frames of a window and to the next one, bins of a frame, tokens that the decoder sees.
TOKENS, WIDTH, WINDOW, SHIFT, BINS, CONTEXT = 50, 32, 45, 32, 80, 2
FRAMES = SHIFT // 4


def encoder_nodes(x="x", states=("cached_key", "cached_conv", "cached_avg", "cached_len"), new=lambda name: f"new_{name}", out="encoder_out"):
    """What changes over 32 frames of log-mel banks, and 13 to their right, with four states. Every sum is exact, so batches do not matter."""
    f32 = TensorProto.FLOAT
    key, conv, avg, length = states

    def cut(source, begin, end, name):
        return node("Slice", [source, begin, end, "1"], [name])

    return [
        node("Add", [x, "six"], ["x_6"]), node("Mul", ["x_6", "quarter"], ["x_n"]),
        cut("x_n", "0", "32", "x_0"), cut("x_n", "1", "33", "x_1"), node("Sub", ["x_1", "x_0"], ["now"]), cut("x_n", "32", "45", "right"),
        node("Reshape", ["now", "to_4"], ["now_4"]), node("MatMul", ["now_4", "W_now"], ["m_now"]),
        node("ReduceSum", ["right", "1"], ["right_sum"], keepdims=1), node("MatMul", ["right_sum", "W_right"], ["m_right"]),
        node("Add", ["m_now", "m_right"], ["m"]), node("Clip", ["m", "minus_one", "one"], ["m_clip"]),
        node("Mul", ["m_clip", "steps"], ["m_steps"]), node("Round", ["m_steps"], ["m_round"]), node("Div", ["m_round", "steps"], ["h"]),
        # A convolution over this frame and the two before it.
        node("Transpose", [conv], ["conv"], perm=[0, 2, 1]), node("Concat", ["conv", "h"], ["all"], axis=1),
        cut("all", "2", "10", "c_0"), cut("all", "1", "9", "c_1"), cut("all", "0", "8", "c_2"),
        node("Mul", ["c_1", "half"], ["c_1h"]), node("Mul", ["c_2", "quarter"], ["c_2q"]), node("Sum", ["c_0", "c_1h", "c_2q"], ["c"]),
        cut("h", "6", "8", "tail"), node("Transpose", ["tail"], [new(conv)], perm=[0, 2, 1]),
        # The window before.
        node("ReduceMean", [key], ["key"], axes=[1], keepdims=1), node("Mul", ["key", "half"], ["key_h"]),
        node("Identity", ["h"], [new(key)]),
        # The mean of all frames before.
        node("Mul", [avg, "half"], ["avg_h"]), node("Unsqueeze", ["avg_h", "1"], ["avg_1"]),
        node("Add", ["c", "key_h"], ["c_key"]), node("Sub", ["c_key", "avg_1"], [out]),
        node("Add", [length, "8"], [new(length)]), node("Cast", [length], ["len"], to=f32),
        node("Cast", [new(length)], ["new_len"], to=f32), node("Mul", [avg, "len"], ["avg_sum"]),
        node("ReduceSum", ["h", "1"], ["h_sum"], keepdims=0), node("Add", ["avg_sum", "h_sum"], ["new_sum"]),
        node("Div", ["new_sum", "new_len"], ["avg"]), node("Mul", ["avg", "steps"], ["avg_steps"]),
        node("Round", ["avg_steps"], ["avg_round"]), node("Div", ["avg_round", "steps"], [new(avg)]),
    ]


def encoder_constants(frames=FRAMES):
    """The constants of `encoder_nodes`, which give so many frames; -1 leaves the number open."""
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    numbers = {"six": 6.0, "quarter": 0.25, "half": 0.5, "steps": 64.0, "one": 1.0, "minus_one": -1.0}
    indices = {
        "0": [0], "1": [1], "2": [2], "6": [6], "8": [FRAMES], "9": [FRAMES + 1], "10": [FRAMES + 2], "32": [SHIFT], "33": [SHIFT + 1], "45": [WINDOW],
        "to_4": [0, frames, 4 * BINS],
    }
    constants = [constant(name, f32, [], [value]) for name, value in numbers.items()]
    constants += [constant(name, i64, [len(values)], values) for name, values in indices.items()]
    return constants + [
        constant("W_now", f32, [4 * BINS, WIDTH], steps(11, 4 * BINS * WIDTH, 0.25, 256)),
        constant("W_right", f32, [BINS, WIDTH], steps(12, BINS * WIDTH, 0.01, 1024)),
    ]


def transducer_encoder():
    """x [batch, 45, 80] -> encoder_out [batch, 8, 32], see `encoder_nodes`."""
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    states = [("cached_key", f32, [FRAMES, WIDTH]), ("cached_conv", f32, [WIDTH, 2]), ("cached_avg", f32, [WIDTH]), ("cached_len", i64, [1])]
    inputs = [tensor("x", f32, "batch", WINDOW, BINS), *(tensor(name, dtype, "batch", *dims) for name, dtype, dims in states)]
    outputs = [tensor("encoder_out", f32, "batch", FRAMES, WIDTH), *(tensor(f"new_{name}", dtype, "batch", *dims) for name, dtype, dims in states)]
    return model("transducer_encoder", encoder_nodes(), inputs, outputs, encoder_constants())


def halves(names):
    """Nodes that make FP32 of these FP16 tensors, under the name with `_32`."""
    return [node("Cast", [name], [f"{name}_32"], to=TensorProto.FLOAT) for name in names]


def streaming_encoder():
    """The same over FP16, as public streaming repositories have it: x [batch, frames, 80] is rounded first, and lengths [batch] go along."""
    f16, i64 = TensorProto.FLOAT16, TensorProto.INT64
    states = [("cached_key", f16, [FRAMES, WIDTH]), ("cached_conv", f16, [WIDTH, 2]), ("cached_avg", f16, [WIDTH]), ("processed_lens", i64, [1])]
    floats = [name for name, dtype, _ in states if dtype == f16]
    new = {f"{name}_32": f"new_{name}_32" for name in floats} | {"processed_lens": "next_processed_lens"}
    nodes = halves(["x", *floats]) + [
        node("Mul", ["x_32", "sixteen"], ["x_16"]), node("Round", ["x_16"], ["x_round"]), node("Div", ["x_round", "sixteen"], ["x_q"]),
        node("Sub", ["x_lens", "l_13"], ["l_now"]), node("Div", ["l_now", "l_4"], ["l_frames"]), node("Max", ["l_frames", "l_0"], ["l_least"]),
        node("Min", ["l_least", "l_8"], ["encoder_out_lens"]),
    ]
    nodes += encoder_nodes("x_q", (*(f"{name}_32" for name in floats), "processed_lens"), new.get, "encoder_out_32")
    nodes += [node("Cast", [f"{name}_32"], [name], to=f16) for name in ("encoder_out", *(f"new_{name}" for name in floats))]
    constants = encoder_constants(-1) + [constant("sixteen", TensorProto.FLOAT, [], [16.0])]
    constants += [constant(f"l_{n}", i64, [], [n]) for n in (0, 4, FRAMES, WINDOW - SHIFT)]
    inputs = [tensor("x", f16, "batch", "frames", BINS), tensor("x_lens", i64, "batch"), *(tensor(name, dtype, "batch", *dims) for name, dtype, dims in states)]
    outputs = [tensor("encoder_out", f16, "batch", "frames_out", WIDTH), tensor("encoder_out_lens", i64, "batch")]
    outputs += [tensor("next_processed_lens" if dtype == i64 else f"new_{name}", dtype, "batch", *dims) for name, dtype, dims in states]
    return model("streaming_encoder", nodes, inputs, outputs, constants)


def transducer_decoder():
    """y [batch, 2] -> decoder_out [batch, 32]: what the last tokens say of the next one."""
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    nodes = [
        node("Gather", ["E", "y"], ["e"]), node("Reshape", ["e", "flat"], ["e_flat"]), node("MatMul", ["e_flat", "W"], ["m"]),
        node("Clip", ["m", "minus_one", "one"], ["decoder_out"]),
    ]
    return model("transducer_decoder", nodes, [tensor("y", i64, "batch", CONTEXT)], [tensor("decoder_out", f32, "batch", WIDTH)], decoder_constants())


def decoder_constants():
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    return [
        constant("E", f32, [TOKENS, WIDTH], steps(13, TOKENS * WIDTH, 1.0, 32)),
        constant("W", f32, [CONTEXT * WIDTH, WIDTH], steps(14, CONTEXT * WIDTH * WIDTH, 0.3, 64)),
        constant("flat", i64, [2], [0, CONTEXT * WIDTH]), constant("one", f32, [], [1.0]), constant("minus_one", f32, [], [-1.0]),
    ]


def transducer_joiner():
    """encoder_out [batch, 32], decoder_out [batch, 32] -> logit [batch, 50]. Token 0 is the blank, and the likeliest."""
    f32 = TensorProto.FLOAT
    nodes = [
        node("Add", ["encoder_out", "decoder_out"], ["both"]), node("Clip", ["both", "minus_one", "one"], ["clipped"]),
        node("MatMul", ["clipped", "W"], ["m"]), node("Add", ["m", "b"], ["logit"]),
    ]
    inputs = [tensor(name, f32, "batch", WIDTH) for name in ("encoder_out", "decoder_out")]
    return model("transducer_joiner", nodes, inputs, [tensor("logit", f32, "batch", TOKENS)], joiner_constants())


def joiner_constants():
    f32 = TensorProto.FLOAT
    return [
        constant("W", f32, [WIDTH, TOKENS], steps(15, WIDTH * TOKENS, 1.0, 64)),
        constant("b", f32, [TOKENS], [3.5] + [0.0] * (TOKENS - 1)), constant("one", f32, [], [1.0]), constant("minus_one", f32, [], [-1.0]),
    ]


def streaming_decoder():
    """The decoder over FP16: y [batch, 2] -> decoder_out [batch, 1, 32]."""
    f16, i64 = TensorProto.FLOAT16, TensorProto.INT64
    nodes = [
        node("Gather", ["E", "y"], ["e"]), node("Reshape", ["e", "flat"], ["e_flat"]), node("MatMul", ["e_flat", "W"], ["m"]),
        node("Clip", ["m", "minus_one", "one"], ["clipped"]), node("Cast", ["clipped"], ["half"], to=f16), node("Unsqueeze", ["half", "axis"], ["decoder_out"]),
    ]
    constants = [*decoder_constants(), constant("axis", i64, [1], [1])]
    return model("streaming_decoder", nodes, [tensor("y", i64, "batch", CONTEXT)], [tensor("decoder_out", f16, "batch", 1, WIDTH)], constants)


def streaming_joiner():
    """The joiner over FP16."""
    f16 = TensorProto.FLOAT16
    nodes = halves(["encoder_out", "decoder_out"]) + [
        node("Add", ["encoder_out_32", "decoder_out_32"], ["both"]), node("Clip", ["both", "minus_one", "one"], ["clipped"]),
        node("MatMul", ["clipped", "W"], ["m"]), node("Add", ["m", "b"], ["sum"]), node("Cast", ["sum"], ["logit"], to=f16),
    ]
    inputs = [tensor(name, f16, "batch", WIDTH) for name in ("encoder_out", "decoder_out")]
    return model("streaming_joiner", nodes, inputs, [tensor("logit", f16, "batch", TOKENS)], joiner_constants())


def tokens():
    """The table of the synthetic transducer: syllables, some of which begin a word."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    words = ["<blk>"] + ["\u2581" * (n % 3 == 0) + syllable for n, syllable in enumerate(syllables[:TOKENS - 2])] + ["<unk>"]
    return "".join(f"{word} {n}\n" for n, word in enumerate(words)).encode()


def accumulate():
    """As the example of Triton's stateful backend: Accumulate_Out = Input summed over its first axis + (Accumulate_In, or 0 where ResetSequence);
    Output = Input + Accumulate_Out. The batch stands on axis 1. The description names the state as that backend reads it."""
    f32 = TensorProto.FLOAT
    nodes = [
        node("Where", ["ResetSequence", "first", "Accumulate_In"], ["kept"]),
        node("ReduceSum", ["Input", "axis"], ["sum"], keepdims=1),
        node("Add", ["kept", "sum"], ["Accumulate_Out"]),
        node("Add", ["Input", "Accumulate_Out"], ["Output"]),
    ]
    inputs = [
        tensor("Input", f32, 4, "batch", 5),
        tensor("ResetSequence", TensorProto.BOOL, "batch", 1),
        tensor("Accumulate_In", f32, 1, "batch", 5),
    ]
    outputs = [tensor("Output", f32, 4, "batch", 5), tensor("Accumulate_Out", f32, 1, "batch", 5)]
    constants = [constant("first", f32, [1, 1, 5], [0.0] * 5), constant("axis", TensorProto.INT64, [1], [0])]
    description = "InputState and OutputState pairs: <<<Accumulate_In:1x-1x5, Accumulate_Out:1x-1x5>>>"
    return model("accumulate", nodes, inputs, outputs, constants, description)


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
    "accumulate/1/accumulate.onnx": accumulate,
    "accumulator_fp32/1/model.onnx": accumulator_fp32,
    "accumulator_int32/1/model.onnx": accumulator_int32,
    "gru/1/model.onnx": gru,
    "vad/samples/noise.wav": noise,
    "../benches/models/lstm.onnx": lstm,
    "../examples/transducer/repository/encoder/1/model.onnx": transducer_encoder,
    "../examples/transducer/repository/asr/tokens.txt": tokens,
    "../examples/transducer/repository/scorer/tokens.txt": tokens,
    "../examples/transducer/repository/decoder/1/model.onnx": transducer_decoder,
    "../examples/transducer/repository/joiner/1/model.onnx": transducer_joiner,
    "../examples/streaming_asr/repository/encoder/1/encoder.onnx": streaming_encoder,
    "../examples/streaming_asr/repository/decoder/1/decoder.onnx": streaming_decoder,
    "../examples/streaming_asr/repository/joiner/1/joiner.onnx": streaming_joiner,
    "../examples/streaming_asr/repository/scorer/tokens.txt": tokens,
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
