#!/usr/bin/env python3
"""Speech in chunks through the server against ONNX Runtime on the whole sound, bit for bit: one sequence at a time, then many at once.

The runtime of this interpreter must be the server's version; its library file may be another. Many at once must also mean batched: the mean batch comes
from the server's own counters. Prints one line; exit 1 on any mismatch.
"""

import contextlib
import itertools
import os
import pathlib
import sys
import time

import grpc
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2

from server import Api, addresses, metric
from vad import SAMPLES, Vad, chunks, read_wav

SEQUENCES, GROUPS, STEPS, CHANNELS, MEAN_BATCH, MAX_BATCH = 256, 8, 20, 4, 4.0, 64
FIRST_ID = 7_000_000
INFER = "/inference.GRPCInferenceService/ModelInfer"


def sounds(folder):
    """Every sound of the folder by name: its chunks and what ONNX Runtime says to them."""
    vad, found = Vad(), {}
    for path in sorted(pathlib.Path(folder).glob("*.wav")):
        rows = chunks(read_wav(path))
        found[path.name] = rows, vad.whole(rows)
    if not found:
        raise SystemExit(f"no sounds in {folder}")
    return found


def one_at_a_time(address, found):
    """Each sound as a sequence with one request under way; returns the answers by name."""
    api, answers = Api("grpc", address), {}
    for number, (name, (rows, _)) in enumerate(found.items(), FIRST_ID):
        last, heard = len(rows) - 1, []
        for step, row in enumerate(rows):
            flags = {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step == last}
            heard.append(api.infer("vad", {"input": row[None]}, **flags).as_numpy("output")[0, 0])
        answers[name] = np.array(heard, np.float32)
    return answers


def request(number, step, steps, row):
    """A request as tritonclient would send it, in bytes made beforehand: the load below shall come as fast as the server takes it."""
    made = service_pb2.ModelInferRequest(model_name="vad", id=f"{number}/{step}")
    made.inputs.add(name="input", datatype="FP32", shape=[1, row.shape[0]])
    made.raw_input_contents.append(row.tobytes())
    made.parameters["sequence_id"].int64_param = number
    made.parameters["sequence_start"].bool_param = step == 0
    made.parameters["sequence_end"].bool_param = step == steps - 1
    return made.SerializeToString()


def many_at_once(address, cuts):
    """Each cut as a sequence, in groups over a few connections: a group's next steps are sent at once, as soon as all answers to its last ones are here.
    The other groups have their steps under way meanwhile. Returns the answers by cut.

    A sequence is never more than one step ahead: gRPC's Python client does not keep the order of calls, not even of one thread's on one connection."""
    steps = len(cuts[0])
    answers, waiting = np.full((len(cuts), steps), np.nan, np.float32), {}
    requests = [[request(FIRST_ID + 1000 + n, step, steps, row) for step, row in enumerate(rows)] for n, rows in enumerate(cuts)]

    def take(n, step):
        answers[n, step] = np.frombuffer(waiting[n].result().raw_output_contents[0], "<f4")[0]

    with contextlib.ExitStack() as open_channels:
        own = [("grpc.use_local_subchannel_pool", 1)]  # else all of them are one connection
        channels = [open_channels.enter_context(grpc.insecure_channel(address, own)) for _ in range(CHANNELS)]
        for channel in channels:
            grpc.channel_ready_future(channel).result(30)
        for step, group in itertools.product(range(steps), range(GROUPS)):
            call = channels[group % CHANNELS].unary_unary(INFER, response_deserializer=service_pb2.ModelInferResponse.FromString)
            mine = range(group, len(cuts), GROUPS)
            if step:
                for n in mine:
                    take(n, step - 1)
            for n in mine:
                waiting[n] = call.future(requests[n][step], timeout=120)
        for n in range(len(cuts)):
            take(n, steps - 1)
    return answers


def cut(found):
    """One piece a sequence, all of one length: the sounds in turn, each time from a later chunk on for as long as there are later ones."""
    rows = [rows for rows, _ in found.values()]
    steps = min(min(map(len, rows)), STEPS)
    pieces = []
    for n in range(SEQUENCES):
        sound = rows[n % len(rows)]
        start = n // len(rows) % (len(sound) - steps + 1)
        pieces.append(sound[start : start + steps])
    return pieces


def explain(vad, rows, heard):
    """Which row count of a batch of ONNX Runtime's gives these answers, if not 1: the smallest, or None."""
    for batch in range(2, MAX_BATCH + 1):
        state, answers = np.zeros((2, batch, 128), np.float32), []
        for row in rows:
            answer, state = vad.step(np.repeat(row[None], batch, axis=0), state)
            answers.append(answer[0])
        if np.array_equal(np.array(answers, np.float32), heard):
            return batch
    return None


def judge(found):
    """Faults of the sounds themselves: speech is found in speech and not in noise."""
    for name, (_, want) in found.items():
        if "noise" in name.lower():
            if want.max() > 0.10:
                yield f"{name}: noise reaches {want.max()}"
        elif want.max() < 0.99 or (want > 0.5).mean() < 0.5:
            yield f"{name}: speech reaches {want.max()}, {(want > 0.5).mean():.0%} above 0.5"


def counters(address):
    return np.array([metric(address, f"nv_inference_{name}", model="vad") for name in ("count", "exec_count")])


def counted(address, before, rows):
    """Rows and executions since `before`, once the rows are all counted."""
    deadline = time.monotonic() + 10
    while (now := counters(address) - before)[0] < rows and time.monotonic() < deadline:
        time.sleep(0.02)
    return now


def main():
    parser = addresses(__doc__)
    parser.add_argument("--sounds", default=os.environ.get("SEQUOR_SOUNDS", SAMPLES), help="a folder of .wav files; default %(default)s")
    options = parser.parse_args()
    found = sounds(options.sounds)
    wrong = list(judge(found))

    single = one_at_a_time(options.grpc, found)
    for name, heard in single.items():
        if not np.array_equal(heard, found[name][1]):
            wrong.append(f"{name}: {(heard != found[name][1]).sum()} of {len(heard)} answers differ from ONNX Runtime's, batch 1")

    pieces, vad, matched = cut(found), Vad(), {}
    before = counters(options.metrics)
    for n, heard in enumerate(many_at_once(options.grpc, pieces)):
        batch = 1 if np.array_equal(vad.whole(pieces[n]), heard) else explain(vad, pieces[n], heard)
        matched[batch] = matched.get(batch, 0) + 1
    if None in matched:
        wrong.append(f"{matched[None]} of {len(pieces)} sequences match no row count of ONNX Runtime")
    rows, runs = counted(options.metrics, before, len(pieces) * len(pieces[0]))
    mean = rows / max(runs, 1)
    if rows != len(pieces) * len(pieces[0]) or mean <= MEAN_BATCH:
        wrong.append(f"{rows:.0f} rows counted, sent {len(pieces) * len(pieces[0])}; mean batch {mean:.1f}, want more than {MEAN_BATCH}")

    for fault in wrong:
        print(fault, file=sys.stderr)
    equal = ", ".join(f"{many} at row count {batch}" for batch, many in sorted(matched.items(), key=str))
    print(
        f"speech: {len(found)} sounds, {sum(map(len, single.values()))} chunks one at a time; {len(pieces)} sequences at once, {rows:.0f} chunks, "
        f"mean batch {mean:.1f}; equal to ONNX Runtime {onnxruntime.__version__} bit for bit: {equal}; wrong: {len(wrong)}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
