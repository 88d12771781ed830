"""Packets of 16-bit PCM at 16 kHz become the windows of a voice activity model, as the guest pcm-window in Rust makes them."""

from array import array

from sequor_plugin.processor import WRONG_REQUEST, Processor, Tensor, refuse, run_each

SAMPLES = 512 << 10
"""Maximum number of samples of one request, as in Rust."""


class Plugin(Processor):
    def configure(self, config, model, inner, files):
        self.input, self.output, self.context = config["input"], config["output"], config["context"]
        self.window = inner.input(self.input).shape[-1]
        if self.window <= self.context:
            raise ValueError("context is as long as the window")
        inner.output(self.output)
        return inner.hide(self.input).add_input("AUDIO", "INT16", [-1])

    def pre(self, call, inputs):
        # The samples from the next window's context on.
        kept = call.scratch or bytes(2 * self.context)
        if "AUDIO" in inputs:
            samples = inputs["AUDIO"].shape[0]
            if samples > SAMPLES:
                raise refuse(WRONG_REQUEST, f"{samples} samples in one request; the maximum is {SAMPLES}")
            kept += inputs["AUDIO"].bytes
        size, step, context = 2 * self.window, 2 * (self.window - self.context), 2 * self.context
        if call.end:
            kept += bytes(-(len(kept) - context) % step)
        samples, runs = memoryview(kept).cast("h"), []
        for at in range(0, len(kept) - size + 1, step):
            window = array("f", (sample / 32768 for sample in samples[at // 2:(at + size) // 2]))
            runs.append({self.input: Tensor("FP32", [1, self.window], window)})
        call.scratch = kept[len(runs) * step:]
        return run_each(runs, otherwise={self.output: Tensor("FP32", [0, 1])})
