"""Drives a processor under an ordinary Python: it stands in for the server and the model, and holds answers against the server's rules."""

import json
from types import SimpleNamespace

from . import host
from .processor import Run, join
from .processor_glue import Glue
from .tensors import Files, Tensor


class Bench:
    """A processor in front of a model: Bench(Plugin(), signature, answer). `answer` makes the outputs of a run, a dict, from its inputs. `files` are the
    bytes of files by name; `posts` is whether plugin.toml names `post` in `wants`."""

    def __init__(self, plugin, signature, answer, config=None, files=(), keys=(), numbers=(), posts=True, scratch=16 << 20):
        self.glue, self.answer, self.posts, self.limit = Glue(plugin), answer, posts, scratch
        self.inner, self.keys, self.numbers = signature, dict(keys), dict(numbers)
        self.model = SimpleNamespace(
            name="model", version=1, strategy="oldest", max_batch=8, instances=1, slots=64, keys=list(self.keys), numbers=list(self.numbers))
        files = Files({name: Tensor("UINT8", [len(content)], content) for name, content in dict(files).items()})
        self.outer = self.glue.configure(json.dumps(config or {}), self.model, signature, files)
        self.sequences, self.runs = {}, []

    def start(self, sequence, inputs):
        """A START. A sequence of this number begins anew."""
        self.sequences[sequence] = (0, b"")
        return self._send(sequence, True, False, inputs)

    def step(self, sequence, inputs):
        """A step of a sequence."""
        return self._send(sequence, False, False, inputs)

    def end(self, sequence, inputs=()):
        """An END. It may come without inputs."""
        answer = self._send(sequence, False, True, dict(inputs))
        del self.sequences[sequence]
        return answer

    def once(self, inputs):
        """A request without a sequence."""
        return self._send(0, False, False, inputs)

    def stream(self, name, dtype, values, packet):
        """A whole sequence: these values as one input of one dimension, so many a packet, and an END without inputs. The answers are joined."""
        answers = []
        for at in range(0, len(values), packet):
            part = values[at:at + packet]
            send = self.step if at else self.start
            answers.append(send(2**64 - 1, {name: Tensor(dtype, [len(part)], part)}))
        answers.append(self.end(2**64 - 1))
        return join([answer for answer in answers if answer])

    def _send(self, sequence, start, end, inputs):
        step, scratch = self.sequences[sequence] if sequence else (-1, b"")
        facts = {
            "sequence": sequence, "step": step + 1, "start": start, "end": end, "numbers": list(self.numbers.values()),
            "keys": [host.remember(text) for text in self.keys.values()], "wanted": list(range(len(self.outer.outputs))),
        }
        is_run, tensors, kept = self.glue.pre(facts, scratch, self._checked(self.outer.inputs, inputs.items()))
        scratch = self._kept(scratch, kept)
        self.runs = []
        if is_run:
            self.runs = [dict(self._named(self.inner.inputs, run)) for run in tensors]
            if not self.runs:
                raise ValueError("0 runs; a request has 1 to 4096")
            for run in self.runs:
                missing = [port.name for port in self.inner.inputs if not port.optional and port.name not in run]
                if missing:
                    raise ValueError(f"a run is without {', '.join(missing)}")
            outputs = [self.answer(run) for run in self.runs]
            if not self.posts:
                answer = join(outputs)
            else:
                tensors, kept = self.glue.post(facts, scratch, [self._checked(self.inner.outputs, of.items()) for of in outputs])
                scratch, answer = self._kept(scratch, kept), dict(self._named(self.outer.outputs, tensors))
        else:
            answer = dict(self._named(self.outer.outputs, tensors))
        if sequence:
            self.sequences[sequence] = (step + 1, scratch)
        return answer

    def _kept(self, before, kept):
        if kept is not None and len(kept) > self.limit:
            raise ValueError(f"{len(kept)} bytes of scratch; the limit is {self.limit}")
        return before if kept is None else kept

    def _checked(self, ports, tensors):
        places = {port.name: at for at, port in enumerate(ports)}
        for name, tensor in tensors:
            ports[places[name]].check(tensor)
        return [(places[name], tensor) for name, tensor in tensors]

    def _named(self, ports, values):
        for port, tensor in values:
            ports[port].check(tensor)
            yield ports[port].name, tensor
