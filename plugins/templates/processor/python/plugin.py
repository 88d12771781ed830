"""Clients send 16-bit samples in packets of any size, and the model takes windows of numbers between -1 and 1. An END fills the last window up."""

from array import array

from sequor_plugin.processor import Processor, Tensor, run_each


class Plugin(Processor):
    def configure(self, config, model, inner, files):
        """The answer is what clients see in place of the model's inputs and outputs."""
        self.window = config["window"]
        if self.window <= 0:
            raise ValueError("window must be above 0")
        # Refuses a model without these tensors.
        inner.input("x")
        inner.output("y")
        return inner.hide("x", "y").add_input("SAMPLES", "INT16", [-1]).add_output("y", "FP32", [-1, 1])

    def pre(self, call, inputs):
        # Kept for each sequence: the bytes of the window that is not full yet.
        kept = call.scratch
        if "SAMPLES" in inputs:
            kept += inputs["SAMPLES"].bytes
        size = 2 * self.window
        if call.end:
            kept += bytes(-len(kept) % size)
        windows = [memoryview(kept)[at:at + size].cast("h") for at in range(0, len(kept) - size + 1, size)]
        call.scratch = kept[len(windows) * size:]
        runs = [{"x": Tensor("FP32", [1, self.window], array("f", (sample / 32768 for sample in window)))} for window in windows]
        # The model runs once a window. If no window is full, it does not run, and the answer is empty.
        return run_each(runs, otherwise={"y": Tensor("FP32", [0, 1])})
