import unittest

from plugin import Plugin
from sequor_plugin.processor import Signature, Tensor
from sequor_plugin.processor_testing import Bench

MODEL = Signature().add_input("x", "INT64", [-1]).add_output("token_ids", "INT64", [-1])
TOKENS = "<blk>\n\u2581he\nllo\n\u2581you\n".encode()


def bench(**config):
    settings = {"output": "token_ids", "tokens": "tokens.txt", "blank": 0, **config}
    return Bench(Plugin(), MODEL, lambda run: {"token_ids": run["x"]}, config=settings, files={"tokens.txt": TOKENS})


def ids(*ids):
    return {"x": Tensor("INT64", [len(ids)], ids)}


class TokenText(unittest.TestCase):
    def test_tokens_become_text_across_steps(self):
        tokens = bench()
        said = [tokens.start(1, ids(0, 1, 1)), tokens.step(1, ids(1, 2, 0, 2)), tokens.end(1, ids(3))]
        self.assertEqual([answer["TEXT"].texts for answer in said], [[" he"], ["llollo"], ["hellollo you"]])

    def test_sequences_do_not_share_tokens(self):
        tokens = bench()
        tokens.start(1, ids(1)), tokens.start(2, ids(3))
        self.assertEqual(tokens.end(1, ids(2))["TEXT"].texts, ["hello"])
        self.assertEqual(tokens.end(2, ids(0))["TEXT"].texts, ["you"])

    def test_a_file_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(LookupError, 'there is no file "none.txt"'):
            bench(tokens="none.txt")


if __name__ == "__main__":
    unittest.main()
