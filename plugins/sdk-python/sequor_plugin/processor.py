"""Processors: plug-ins that prepare a model's inputs and finish its outputs.

    from sequor_plugin.processor import Processor, Tensor, run

    class Plugin(Processor):
        def configure(self, config, model, inner, files):
            return inner.hide("samples").add_input("AUDIO", "INT16", [1, -1])

        def pre(self, call, inputs):
            audio = inputs["AUDIO"]
            return run({"samples": Tensor("FP32", audio.shape, [sample / 32768 for sample in audio.values])})

`sequor plugin build` makes a component of the class `Plugin` of plugin.py. The same file runs under any Python: sequor_plugin.processor_testing drives it.
"""

from itertools import islice

from . import host
from .tensors import Files, Port, Signature, Tensor, TokenTable

__all__ = ["Files", "Port", "Processor", "Refusal", "Signature", "Tensor", "TokenTable", "join", "refuse", "reply", "run", "run_each"]

WRONG_REQUEST, NOT_NOW, FORBIDDEN, NOT_FOUND, QUOTA, WRONG_STATE = range(1, 7)
"""Codes of refusals, as the contract counts them. Another counts as the first."""

RUNS = 4096
"""Maximum number of runs of one request. A request that needs more is refused with WRONG_REQUEST."""


class Processor:
    """A processor. The server calls only the functions that plugin.toml names in `wants`.

    The server runs several instances and may call any of them, also for two requests of one sequence. Keep what a sequence needs later in
    `call.scratch`, and in `self` only what `configure` made. An exception other than Refusal traps: its words and its line go to the server's log, and
    the request fails as `plugin_failed`."""

    def configure(self, config, model, inner, files):
        """Called first. `config` is a dict; `inner` is the signature of the model, or of the next processor. The answer is what clients see in its place.
        What it raises refuses the model."""
        return inner

    def scratch(self):
        """What a sequence begins with, in `call.scratch`: bytes, or anything that JSON can hold."""
        return b""

    def pre(self, call, inputs):
        """Prepares a request: run(...), run_each(...) or reply(...); or it raises refuse(...). `inputs` is a dict of tensors. An END may come without any,
        if the model allows that. Default: passes the inputs on."""
        return run(inputs) if inputs else reply({})

    def post(self, call, runs):
        """Finishes a request: a dict of tensors. `runs` has the outputs of each run, a dict each. Default: joins them on their first dimension."""
        return join(runs)


class Call:
    """One request, besides its tensors: `sequence`, `step`, `start`, `end`, and `scratch`, which may be changed or set."""

    def __init__(self, sequence, step, start, end, numbers, keys, wanted, model, outer, scratch):
        self.sequence, self.step, self.start, self.end, self.scratch = sequence, step, start, end, scratch
        self._numbers, self._keys, self._wanted, self._model, self._outer = numbers, keys, wanted, model, outer

    def number(self, feature):
        """A numeric feature; 0 if the model has none of this name."""
        return self._numbers[self._model.numbers.index(feature)] if feature in self._model.numbers else 0.0

    def key(self, feature):
        """A key feature; 0 if the model has none of this name."""
        return self._keys[self._model.keys.index(feature)] if feature in self._model.keys else 0

    def text(self, feature):
        """The text of a key feature, if the server still remembers it."""
        return host.key_text(self.key(feature))

    def wants(self, output):
        """Whether the client asked for this output. Others may be left out of the answer."""
        return output in [self._outer.outputs[at].name for at in self._wanted]


class Run:
    """The model runs once for each of these inputs."""

    def __init__(self, runs):
        self.runs = runs


class Reply:
    """The model does not run, and the request is answered with these outputs."""

    def __init__(self, outputs):
        self.outputs = outputs


def run(inputs):
    """The model runs once with these inputs. An input that `reads` of plugin.toml does not name need not be among them."""
    return Run([inputs])


def run_each(runs, otherwise=None):
    """The model runs once for each of these inputs. If there are none, the request is answered with the outputs `otherwise`."""
    runs = list(islice(runs, RUNS + 1))
    return Run(runs) if runs else Reply(otherwise or {})


def reply(outputs):
    """The model does not run, and the request is answered with these outputs."""
    return Reply(outputs)


class Refusal(Exception):
    """Why a request is refused. Clients read the code and the text."""

    def __init__(self, code, text, retry_us=None, ends=False):
        super().__init__(text)
        self.code, self.text, self.retry_us, self.ends = code, text, retry_us, ends


def refuse(code, text, retry_us=None, ends=False):
    """To be raised: raise refuse(WRONG_REQUEST, "..."). With `ends` the sequence ends, too."""
    return Refusal(code, text, retry_us, ends)


def join(runs):
    """Joins the outputs of several runs on their first dimension. A single run stays as it is."""
    if len(runs) < 2:
        return dict(runs[0]) if runs else {}
    joined = {}
    for name, first in runs[0].items():
        parts = [of[name] for of in runs]
        if any(part.shape[1:] != first.shape[1:] for part in parts):
            raise ValueError(f'output "{name}" has other dimensions in some runs')
        joined[name] = Tensor(first.dtype, [sum(part.shape[0] for part in parts), *first.shape[1:]], b"".join(part.bytes for part in parts))
    return joined
