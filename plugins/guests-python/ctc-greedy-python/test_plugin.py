import unittest

from plugin import Plugin
from sequor_plugin.processor import Signature, Tensor
from sequor_plugin.processor_testing import Bench

MODEL = Signature().add_input("x", "INT64", [-1]).add_output("logits", "FP32", [1, -1, 4])
CONFIG = {"logits": "logits", "tokens": "tokens.txt", "blank": 0}
TOKENS = "<blk> 0\n\u2581he 1\nllo 2\n\u2581you 3\n".encode()


def logits(tokens):
    rows = [0.5 if n == token else -1.0 for token in tokens for n in range(4)]
    return Tensor("FP32", [1, len(tokens), 4], rows)


class CtcGreedy(unittest.TestCase):
    def test_ctc_decoding_carries_repetitions_and_blanks_across_steps(self):
        bench = Bench(Plugin(), MODEL, lambda run: {"logits": logits(run["x"].values)}, config=CONFIG, files={"tokens.txt": TOKENS})
        frames = [[0, 1, 1], [1, 2, 0, 2], [3]]
        x = [{"x": Tensor("INT64", [len(step)], step)} for step in frames]
        answers = [bench.start(1, x[0]), bench.step(1, x[1]), bench.end(1, x[2])]
        self.assertEqual([list(answer["TOKENS"].values) for answer in answers], [[1], [2, 2], [3]])
        self.assertEqual([answer["TEXT"].texts for answer in answers], [[" he"], ["llollo"], [" you"]])

    def test_the_ctc_decoder_can_be_served_as_a_standalone_model(self):
        own = Signature().add_input("logits", "FP32", [1, -1, 4]).add_output("TOKENS", "INT64", [-1]).add_output("TEXT", "BYTES", [1])
        bench = Bench(Plugin(), own, None, config=CONFIG, files={"tokens.txt": TOKENS})
        self.assertEqual(bench.start(1, {"logits": logits([1, 2])})["TEXT"].texts, [" hello"])
        self.assertEqual(list(bench.step(1, {"logits": logits([2, 0])})["TOKENS"].values), [])
        self.assertEqual(bench.end(1), {})


if __name__ == "__main__":
    unittest.main()
