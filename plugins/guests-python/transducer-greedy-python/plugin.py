"""Frames of a transducer's encoder become tokens and text: greedy search, which calls the models `decoder` and `joiner`. An answer has the new tokens. The same
as the guest transducer-greedy in Rust, but for lengths and whole transcripts."""

from sequor_plugin import models
from sequor_plugin.processor import Processor, Tensor, TokenTable, reply, run


class Plugin(Processor):
    def configure(self, config, model, inner, files):
        self.config, self.frames, self.silent = config, config["frames"], (config["blank_id"], config["unk_id"])
        self.tokens = TokenTable(files.text(config["tokens"]))
        if any(port.name == self.frames for port in inner.inputs):
            outer = inner
        else:
            inner.output(self.frames)
            outer = inner.hide(self.frames).add_output("TOKENS", "INT64", [-1]).add_output("TEXT", "BYTES", [1])
        self.ranks = {port.name: len(port.shape) for port in outer.outputs}
        return outer

    def scratch(self):
        """The last tokens, and the decoder's answer to them."""
        return {"context": [self.config["blank_id"]] * self.config["context_size"], "decoded": None}

    def pre(self, call, inputs):
        """As a model of its own."""
        if self.frames in inputs:
            return reply(self.answer({}, self.search(call, inputs[self.frames])))
        return run(inputs) if inputs else reply({})

    def post(self, call, runs):
        tokens = [token for step in runs for token in self.search(call, step[self.frames])]
        others = {name: tensor for name, tensor in runs[-1].items() if name != self.frames}
        return self.answer(others, tokens)

    def search(self, call, frames):
        kept, tokens, width = call.scratch, [], frames.shape[-1]
        count = 1
        for dim in frames.shape[:-1]:
            count *= dim
        for n in range(count):
            size = frames.size // count
            frame = frames.part(n * size, size, [1, width])
            for _ in range(self.config["symbols"]):
                joined = models.infer(self.config["joiner"], {"encoder_out": frame, "decoder_out": self.decoded(kept)})
                logits = joined[self.config["joiner_output"]].floats
                token = max(range(len(logits)), key=logits.__getitem__)
                if token in self.silent:
                    break
                tokens.append(token)
                kept["context"], kept["decoded"] = [*kept["context"][1:], token], None
        if count:
            self.decoded(kept)
        return tokens

    def decoded(self, kept):
        """The decoder's answer to the last tokens. Bytes are kept as hexadecimal digits, which JSON can hold."""
        if kept["decoded"] is None:
            tokens = Tensor("INT64", [1, len(kept["context"])], kept["context"])
            decoded = models.infer(self.config["decoder"], {self.config["decoder_input"]: tokens})[self.config["decoder_output"]]
            kept["decoded"] = [decoded.dtype, decoded.shape[-1], decoded.bytes.hex()]
        dtype, width, digits = kept["decoded"]
        return Tensor(dtype, [1, width], bytes.fromhex(digits))

    def answer(self, outputs, tokens):
        """The outputs with TOKENS and TEXT, as far as clients see them."""
        def add(name, dtype, values):
            if name in self.ranks:
                outputs[name] = Tensor(dtype, [1] * (self.ranks[name] - 1) + [len(values)], values)
        add("TOKENS", "INT64", tokens)
        add("TEXT", "BYTES", [self.tokens.text(tokens)])
        return outputs
