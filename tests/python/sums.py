#!/usr/bin/env python3
"""Running sums: 64 sequences at once over 8 candidates, each answer and each control input checked; over gRPC, over HTTP, and over both at once.

Prints one line; exit 1 on any mismatch.
"""

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from server import Api, addresses, scalar

MODEL, SEQUENCES, STEPS = "accumulator_int32", 64, (1, 40)
OUTPUTS = ("OUTPUT", "SEEN", "CORRID_OUT")


def sequence(api, address, number, values, together):
    """Plays one sequence to its end; returns its mismatches."""
    client, total, wrong = Api(api, address), 0, []
    together.wait()
    for step, value in enumerate(values):
        start, end = step == 0, step == len(values) - 1
        answer = client.infer(
            MODEL, {"INPUT": scalar(value, np.int32)}, OUTPUTS, sequence_id=number, sequence_start=start, sequence_end=end
        )
        total += value
        want = {"OUTPUT": [total], "SEEN": [start, end, True], "CORRID_OUT": [number]}
        for name, row in want.items():
            got = answer.as_numpy(name)
            if got.shape != (1, len(row)) or got[0].tolist() != [int(x) for x in row]:
                wrong.append(f"{api}: sequence {number} step {step} of {len(values)}: {name} is {got.tolist()}, want {[row]}")
    client.client.close()
    return wrong


def play(options, apis, dice):
    """64 sequences at once, dealt to the APIs in turn; returns how many answers were checked, and the mismatches."""
    together, jobs, steps = threading.Barrier(SEQUENCES), [], 0
    with ThreadPoolExecutor(SEQUENCES) as threads:
        for n in range(SEQUENCES):
            api = apis[n % len(apis)]
            values = [dice.randint(-1_000_000, 1_000_000) for _ in range(dice.randint(*STEPS))]
            number = dice.randint(1, 2**63 - 1)
            jobs.append(threads.submit(sequence, api, getattr(options, api), number, values, together))
            steps += len(values)
        return steps, [fault for job in jobs for fault in job.result()]


def main():
    parser = addresses(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice, checked, wrong = random.Random(options.seed), [], []
    for apis in (["grpc"], ["http"], ["grpc", "http"]):
        steps, faults = play(options, apis, dice)
        checked.append(f"{steps} over {' and '.join(apis)}")
        wrong += faults
    for fault in wrong[:20]:
        print(fault, file=sys.stderr)
    print(f"sums: {3 * SEQUENCES} sequences, {SEQUENCES} at once; answers checked: {', '.join(checked)}; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
