import unittest

from plugin import Plugin
from sequor_plugin import models
from sequor_plugin.processor import Refusal, Signature, Tensor
from sequor_plugin.processor_testing import Bench

CONFIG = {
    "frames": "encoder_out", "tokens": "tokens.txt", "blank_id": 0, "unk_id": 5, "context_size": 2, "symbols": 1, "decoder": "decoder",
    "decoder_input": "y", "decoder_output": "decoder_out", "joiner": "joiner", "joiner_output": "logit",
}
TOKENS = "<blk> 0\n\u2581a 1\nb 2\n\u2581c 3\nd 4\n<unk> 5\n".encode()
OWN = Signature().add_input("encoder_out", "FP32", [1, -1, 1]).add_output("TOKENS", "INT64", [-1]).add_output("TEXT", "BYTES", [1])


def decoder(inputs):
    first, second = inputs["y"].values
    return {"decoder_out": Tensor("FP32", [1, 1, 1], [first * 2 + second])}


def joiner(inputs):
    token = int(inputs["encoder_out"].floats[0] + inputs["decoder_out"].floats[0]) % 6
    return {"logit": Tensor("FP32", [1, 6], [float(n == token) for n in range(6)])}


def expected(frames):
    context, tokens = [0, 0], []
    for frame in frames:
        token = (frame + context[0] * 2 + context[1]) % 6
        if token not in (0, 5):
            context = [context[1], token]
            tokens.append(token)
    return tokens


class TransducerGreedy(unittest.TestCase):
    def bench(self, signature=OWN, answer=None):
        models.serve("decoder", decoder)
        models.serve("joiner", joiner)
        return Bench(Plugin(), signature, answer, config=CONFIG, files={"tokens.txt": TOKENS})

    def test_tokens_do_not_depend_on_packets(self):
        frames = [n * n % 11 for n in range(60)]
        for packet in (1, 7, 60):
            bench, tokens = self.bench(), []
            for at in range(0, 60, packet):
                part = frames[at:at + packet]
                send = bench.step if at else bench.start
                tokens += send(1, {"encoder_out": Tensor("FP32", [1, len(part), 1], part)})["TOKENS"].values
            self.assertEqual(tokens, expected(frames))
            self.assertEqual(models.calls, {"decoder": len(tokens) + 1, "joiner": 60})

    def test_the_decoder_answers_with_tokens_behind_an_encoder(self):
        encoder = Signature().add_input("x", "INT32", [1]).add_output("encoder_out", "FP32", [-1, 2, 1])
        bench = self.bench(encoder, lambda run: {"encoder_out": Tensor("FP32", [1, 2, 1], [1, 1])})
        answer = bench.start(1, {"x": Tensor("INT32", [1], [1])})
        self.assertEqual((list(answer["TOKENS"].values), answer["TEXT"].texts), (expected([1, 1]), [" ab"]))

    def test_a_failed_model_call_refuses_the_step_with_the_models_text(self):
        bench = self.bench()

        def full(inputs):
            raise models.Failure(8, "it failed")
        models.serve("joiner", full)
        with self.assertRaises(Refusal) as raised:
            bench.start(1, {"encoder_out": Tensor("FP32", [1, 1, 1], [1])})
        self.assertEqual((raised.exception.code, raised.exception.text), (2, "it failed"))


if __name__ == "__main__":
    unittest.main()
