"""The outputs of a CTC model become tokens and text: the likeliest token of each frame, without repetitions and blanks. An answer has the new tokens. The same
as the guest ctc-greedy in Rust."""

from sequor_plugin.processor import Processor, Tensor, TokenTable, reply, run


class Plugin(Processor):
    def configure(self, config, model, inner, files):
        self.logits, self.blank = config["logits"], config["blank"]
        self.tokens = TokenTable(files.text(config["tokens"]))
        if any(port.name == self.logits for port in inner.inputs):
            outer = inner
        else:
            inner.output(self.logits)
            outer = inner.hide(self.logits).add_output("TOKENS", "INT64", [-1]).add_output("TEXT", "BYTES", [1])
        self.ranks = {port.name: len(port.shape) for port in outer.outputs}
        return outer

    def scratch(self):
        return {"last": None}

    def pre(self, call, inputs):
        """As a model of its own."""
        if self.logits in inputs:
            return reply(self.answer({}, self.spoken(call, inputs[self.logits])))
        return run(inputs) if inputs else reply({})

    def post(self, call, runs):
        tokens = [token for step in runs for token in self.spoken(call, step[self.logits])]
        others = {name: tensor for name, tensor in runs[-1].items() if name != self.logits}
        return self.answer(others, tokens)

    def spoken(self, call, logits):
        values, width, tokens = logits.floats, logits.shape[-1], []
        for at in range(0, len(values), width):
            frame = values[at:at + width]
            token = max(range(width), key=frame.__getitem__)
            if token not in (self.blank, call.scratch["last"]):
                tokens.append(token)
            call.scratch["last"] = token
        return tokens

    def answer(self, outputs, tokens):
        """The outputs with TOKENS and TEXT, as far as clients see them."""
        def add(name, dtype, values):
            if name in self.ranks:
                outputs[name] = Tensor(dtype, [1] * (self.ranks[name] - 1) + [len(values)], values)
        add("TOKENS", "INT64", tokens)
        add("TEXT", "BYTES", [self.tokens.text(tokens)])
        return outputs
