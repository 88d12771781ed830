"""Run by: PYTHONPATH=sdk python3 -m unittest"""

import unittest
from array import array

from plugin import Plugin
from sequor_plugin.processor import Signature, Tensor
from sequor_plugin.processor_testing import Bench

MODEL = Signature().add_input("x", "FP32", [1, -1]).add_output("y", "FP32", [1, 1])


def first(run):
    return {"y": Tensor("FP32", [1, 1], run["x"].values[:1])}


class Windows(unittest.TestCase):
    def test_the_packet_size_does_not_change_the_results(self):
        samples = array("h", range(10))

        def stream(packet):
            return Bench(Plugin(), MODEL, first, config={"window": 4}, posts=False).stream("SAMPLES", "INT16", samples, packet)["y"].values.tolist()

        self.assertEqual(stream(10), [0.0, 4 / 32768, 8 / 32768])
        for packet in range(1, 10):
            self.assertEqual(stream(packet), stream(10))
