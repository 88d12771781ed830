#!/usr/bin/env python3
"""Streams: Triton's own gRPC client over `ModelStreamInfer`, one stream for many sequences; and requests sent ahead with `async_infer`.

Prints one line; exit 1 on any mismatch.
"""

import queue
import sys

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from server import addresses, scalar

SEQUENCES, STEPS, WAIT = 24, 20, 60.0
FP32, INT32 = "accumulator_fp32", "accumulator_int32"


def tensor(value, dtype, name="FP32"):
    made = tritonclient.grpc.InferInput("INPUT", [1, 1], name)
    made.set_data_from_numpy(scalar(value, dtype))
    return [made]


def of(model, value):
    return tensor(value, np.float32) if model == FP32 else tensor(value, np.int32, "INT32")


class Stream:
    """One stream; replies are taken in the order in which they come."""

    def __init__(self, address, **options):
        self.client, self.replies = tritonclient.grpc.InferenceServerClient(address), queue.Queue()
        self.client.start_stream(callback=lambda result, error: self.replies.put((result, error)), **options)

    def send(self, model, value, **options):
        self.client.async_stream_infer(model, of(model, value), **options)

    def take(self):
        return self.replies.get(timeout=WAIT)

    def close(self):
        self.client.stop_stream()
        self.client.close()


def ordered(address, wrong):
    """Steps of many sequences of two models, sent ahead: answers come in the order of the requests, each with its own sum."""
    stream, asked, sums = Stream(address), [], {}
    for step in range(STEPS):
        for n in range(SEQUENCES):
            model, number = (FP32, INT32)[n % 2], 7_000_000 + n
            value = step * n + 1
            sums[number] = sums.get(number, 0) + value
            request_id = f"{number}-{step}"
            stream.send(model, value, request_id=request_id, sequence_id=number, sequence_start=step == 0, sequence_end=step == STEPS - 1)
            asked.append((request_id, sums[number]))
    for request_id, total in asked:
        result, error = stream.take()
        if error or result.get_response().id != request_id or result.as_numpy("OUTPUT")[0, 0] != total:
            wrong.append(f"{request_id}: {error or result.get_response().id}, want {total}")
            break
    stream.close()
    return len(asked)


def errors(address, wrong):
    """An error is a reply; what comes after it is answered."""
    stream = Stream(address)
    stream.send(FP32, 1, request_id="no start", sequence_id=7_100_001)
    stream.send("nope", 1, request_id="no model")
    stream.send(FP32, 5, request_id="good", sequence_id=7_100_001, sequence_start=True, sequence_end=True)
    sentences = ["must specify the START flag on the first request of the sequence", "Request for unknown model: 'nope' is not found"]
    for sentence in sentences:
        result, error = stream.take()
        if result is not None or sentence not in str(error):
            wrong.append(f"got {error}, want {sentence}")
    result, error = stream.take()
    if error or result.get_response().id != "good" or result.as_numpy("OUTPUT")[0, 0] != 5:
        wrong.append(f"after errors: {error or result.get_response()}")
    stream.close()
    return 3


def strict(address, wrong):
    """With `triton_grpc_error` the first error ends the stream, with its status."""
    stream = Stream(address, headers={"triton_grpc_error": "true"})
    stream.send(FP32, 1, sequence_id=7_200_001)
    _, error = stream.take()
    if not isinstance(error, InferenceServerException) or error.status() != "StatusCode.INVALID_ARGUMENT":
        wrong.append(f"strict: got {error!r}")
    stream.close()
    return 1


def final(address, wrong):
    """A client may ask to have the last answer of a request marked."""
    stream = Stream(address)
    stream.send(FP32, 1, sequence_id=7_300_001, sequence_start=True, sequence_end=True, enable_empty_final_response=True)
    result, error = stream.take()
    if error or not result.get_response().parameters["triton_final_response"].bool_param:
        wrong.append(f"final: {error or result.get_response()}")
    stream.close()
    return 1


def ahead(address, wrong):
    """`async_infer` without waiting in between keeps the order of a sequence."""
    client, number = tritonclient.grpc.InferenceServerClient(address), 7_400_001
    answers = queue.Queue()
    # gRPC keeps no order among the calls that wait for the connection to come about.
    client.is_server_live()
    for step in range(50):
        client.async_infer(
            FP32,
            of(FP32, step),
            callback=lambda result, error: answers.put((result, error)),
            request_id=str(step),
            sequence_id=number,
            sequence_start=step == 0,
            sequence_end=step == 49,
        )
    for _ in range(50):
        result, error = answers.get(timeout=WAIT)
        step = -1 if error else int(result.get_response().id)
        if error or result.as_numpy("OUTPUT")[0, 0] != step * (step + 1) / 2:
            wrong.append(f"ahead: {error or result.get_response()}")
            break
    client.close()
    return 50


def main():
    options, wrong = addresses(__doc__).parse_args(), []
    checked = sum(check(options.grpc, wrong) for check in (ordered, errors, strict, final, ahead))
    for fault in wrong[:20]:
        print(fault, file=sys.stderr)
    print(f"streams: {checked} replies checked; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
