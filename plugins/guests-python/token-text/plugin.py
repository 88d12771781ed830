"""Token ids of a CTC or transducer model become text: blanks and repetitions go, and word marks become spaces. Each answer is the text that is new; that of
an END is the whole."""

from sequor_plugin.processor import Processor, Tensor


class Plugin(Processor):
    def configure(self, config, model, inner, files):
        self.output, self.blank = config["output"], config["blank"]
        port = inner.output(self.output)
        if port.dtype not in ("INT32", "INT64"):
            raise ValueError(f'output "{self.output}" is {port.dtype}; token ids are INT32 or INT64')
        self.tokens = {}
        for at, line in enumerate(files.lines(config["tokens"])):
            token, _, number = line.rpartition(" ")
            self.tokens[int(number) if token else at] = token or line
        return inner.hide(self.output).add_output("TEXT", "BYTES", [1])

    def scratch(self):
        return {"last": self.blank, "text": ""}

    def post(self, call, runs):
        kept, new = call.scratch, []
        for run in runs:
            for token in run[self.output].values:
                if token not in (self.blank, kept["last"]):
                    new.append(self.tokens.get(token, ""))
                kept["last"] = token
        text = "".join(new).replace("\u2581", " ")
        kept["text"] += text
        others = {name: tensor for name, tensor in runs[-1].items() if name != self.output}
        return {**others, "TEXT": Tensor("BYTES", [1], [kept["text"].strip() if call.end else text])}
