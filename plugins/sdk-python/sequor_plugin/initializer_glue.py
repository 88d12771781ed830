"""A state initializer in the words of the contract. The component and a test both run it."""

import json

from .glue import expect
from .initializer import FirstState
from .processor import Call
from .processor_glue import logged, named, placed
from .tensors import Signature


class InitializerGlue:
    """One instance: the author's class, and its model. Tensors are lists of (port, tensor)."""

    def __init__(self, plugin):
        self.plugin = plugin

    def configure(self, config, model, ports, files):
        self.model, self.ports = model, ports
        self.plugin.configure(json.loads(config or "{}"), model, ports, files)

    def initialize(self, facts, inputs):
        """(kind, value): the value is a list of tensors, a text, or None."""
        def call():
            answer = self.plugin.initialize(self._call(facts), named(self.ports.request, inputs))
            expect("initialize", answer, (FirstState,), "default(), states(...), copy_of(...) or kept(...)")
            if answer.kind == "states":
                return answer.kind, placed(self.ports.states, answer.value, "the model has no state")
            return answer.kind, answer.value
        return logged(call, self.plugin.initialize)

    def steps(self, name, facts, inputs):
        """The tensors of each step."""
        def call():
            steps = self.plugin.steps(name, self._call(facts), named(self.ports.request, inputs))
            return [placed(self.ports.step, step, "the model has no input") for step in steps]
        return logged(call, self.plugin.steps)

    def _call(self, facts):
        return Call(**facts, model=self.model, outer=Signature(), scratch=b"")
