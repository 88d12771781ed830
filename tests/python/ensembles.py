#!/usr/bin/env python3
"""Sequences through an ensemble of two running sums: 64 at once over 8 slots in each member, each answer checked; over gRPC and HTTP.

Prints one line; exit 1 on any mismatch.
"""

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from server import Api, addresses, scalar

MODEL, SEQUENCES, STEPS = "both", 64, (1, 20)


def sequence(api, address, number, values, together):
    """Plays one sequence to its end; returns its mismatches."""
    client, first, second, wrong = Api(api, address), 0, 0, []
    together.wait()
    for step, value in enumerate(values):
        start, end = step == 0, step == len(values) - 1
        answer = client.infer(
            MODEL, {"INPUT": scalar(value, np.int32)}, ("OUTPUT",), sequence_id=number, sequence_start=start, sequence_end=end
        )
        first += value
        second += first
        got = answer.as_numpy("OUTPUT")
        if got.shape != (1, 1) or got[0][0] != second:
            wrong.append(f"{api}: sequence {number} step {step} of {len(values)}: {got.tolist()}, want {second}")
    client.client.close()
    return wrong


def main():
    options = addresses(__doc__).parse_args()
    dice, together, jobs, steps = random.Random(1), threading.Barrier(SEQUENCES), [], 0
    with ThreadPoolExecutor(SEQUENCES) as threads:
        for n in range(SEQUENCES):
            api = ("grpc", "http")[n % 2]
            values = [dice.randint(-10_000, 10_000) for _ in range(dice.randint(*STEPS))]
            number = dice.randint(1, 2**63 - 1)
            jobs.append(threads.submit(sequence, api, getattr(options, api), number, values, together))
            steps += len(values)
        wrong = [fault for job in jobs for fault in job.result()]
    for fault in wrong[:20]:
        print(fault, file=sys.stderr)
    print(f"{steps} steps of {SEQUENCES} sequences, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
