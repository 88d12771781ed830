import unittest

from plugin import Plugin
from sequor_plugin.processor import Refusal, Signature, Tensor
from sequor_plugin.processor_testing import Bench

MODEL = Signature().add_input("input", "FP32", [-1, 576]).add_output("output", "FP32", [-1, 1])
CONFIG = {"input": "input", "output": "output", "context": 64}


def weighted(run):
    """An answer that depends on every sample and its place."""
    return {"output": Tensor("FP32", [1, 1], [sum(sample * place for place, sample in enumerate(run["input"].values))])}


def bench():
    return Bench(Plugin(), MODEL, weighted, config=CONFIG, posts=False, scratch=4096)


class PcmWindow(unittest.TestCase):
    def test_the_packet_size_does_not_change_the_results(self):
        sound = [(n * 40503 >> 3) % 65536 - 32768 for n in range(9001)]
        whole = bench().stream("AUDIO", "INT16", sound, len(sound))["output"]
        self.assertEqual(whole.shape, [18, 1])
        for packet in (16, 320, 512, 1600):
            self.assertEqual(bench().stream("AUDIO", "INT16", sound, packet)["output"], whole, packet)

    def test_each_window_starts_with_the_end_of_the_previous_window(self):
        windows = bench()
        windows.start(1, {"AUDIO": Tensor("INT16", [1024], range(1024))})
        first, second = ([round(sample * 32768) for sample in run["input"].values] for run in windows.runs)
        self.assertEqual(first, [0] * 64 + list(range(512)))
        self.assertEqual(second, list(range(448, 1024)))

    def test_a_request_with_too_many_samples_is_refused(self):
        windows = bench()
        windows.start(1, {})
        with self.assertRaises(Refusal) as refused:
            windows.step(1, {"AUDIO": Tensor("INT16", [524289], bytes(2 * 524289))})
        self.assertEqual((refused.exception.code, refused.exception.text), (1, "524289 samples in one request; the maximum is 524288"))


if __name__ == "__main__":
    unittest.main()
