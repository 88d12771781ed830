"""Exports a PyTorch GRU to ONNX, with its state as an input and an output. Needs PyTorch 1.13 or later.

Usage: python3 export.py REPOSITORY. The weights are random but the same at every run; load your own checkpoint instead.
"""

import sys
from pathlib import Path

import torch

FEATURES, HIDDEN, LAYERS = 8, 32, 2


class Step(torch.nn.Module):
    """One request: some time steps in, one forecast for each out, and the state before and after."""

    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(FEATURES, HIDDEN, LAYERS, batch_first=True)
        self.head = torch.nn.Linear(HIDDEN, 1)

    def forward(self, x, h):
        # PyTorch keeps the state as [layers, batch, hidden]. With the batch first, config.pbtxt can describe it.
        y, h_next = self.gru(x, h.transpose(0, 1).contiguous())
        return self.head(y), h_next.transpose(0, 1)


def main(repository):
    torch.manual_seed(7)
    model = Step().eval()
    version = Path(repository) / "forecast" / "1"
    version.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        model,
        (torch.zeros(2, 3, FEATURES), torch.zeros(2, LAYERS, HIDDEN)),
        str(version / "model.onnx"),
        input_names=["x", "h"],
        output_names=["y", "h_next"],
        dynamic_axes={"x": {0: "batch", 1: "time"}, "h": {0: "batch"}, "y": {0: "batch", 1: "time"}, "h_next": {0: "batch"}},
        opset_version=17,
    )
    # What the served model has to answer: one sequence of four steps, run by PyTorch.
    x = torch.arange(4 * FEATURES, dtype=torch.float32).reshape(1, 4, FEATURES) / 32
    with torch.no_grad():
        y, _ = model(x, torch.zeros(1, LAYERS, HIDDEN))
    print("PyTorch:", " ".join(f"{v:.4f}" for v in y.flatten().tolist()))


main(sys.argv[1])
