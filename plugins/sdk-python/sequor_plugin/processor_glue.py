"""A processor in the words of the contract. The component and a test both run it."""

import json

from .glue import expect, told
from .processor import RUNS, WRONG_REQUEST, Call, Refusal, Reply, Run, refuse
from .tensors import Signature


class Glue:
    """One instance: the author's class, the model, and what both sides take and give. Tensors are lists of (port, tensor)."""

    def __init__(self, plugin):
        self.plugin = plugin

    def configure(self, config, model, inner, files):
        self.model, self.inner = model, inner
        outer = self.plugin.configure(json.loads(config or "{}"), model, inner, files)
        self.outer = expect("configure", outer, (Signature,), "a Signature, for example `inner` with its changes")
        return self.outer

    def pre(self, facts, scratch, inputs):
        """(is a run, tensors, new scratch)"""
        def call():
            call = self._call(facts, scratch)
            action = self.plugin.pre(call, named(self.outer.inputs, inputs))
            expect("pre", action, (Run, Reply), "run(...), run_each(...) or reply(...)")
            if isinstance(action, Run):
                if len(action.runs) > RUNS:
                    raise refuse(WRONG_REQUEST, f"the request needs more than {RUNS} runs of the model. Send less in one request")
                return True, [placed(self.inner.inputs, run, "the model has no input") for run in action.runs], self._kept(call, scratch)
            return False, placed(self.outer.outputs, action.outputs, "clients do not see an output"), self._kept(call, scratch)
        return logged(call, self.plugin.pre)

    def post(self, facts, scratch, runs):
        """(tensors, new scratch)"""
        def call():
            call = self._call(facts, scratch)
            outputs = self.plugin.post(call, [named(self.inner.outputs, run) for run in runs])
            expect("post", outputs, (dict,), "a dict of tensors by their names")
            return placed(self.outer.outputs, outputs, "clients do not see an output"), self._kept(call, scratch)
        return logged(call, self.plugin.post)

    def _call(self, facts, scratch):
        kept = self.plugin.scratch()
        if scratch:
            kept = scratch if isinstance(kept, bytes) else json.loads(scratch)
        return Call(**facts, model=self.model, outer=self.outer, scratch=kept)

    def _kept(self, call, before):
        """The bytes to keep; None leaves those from before."""
        kept = call.scratch if isinstance(self.plugin.scratch(), bytes) else json.dumps(call.scratch, separators=(",", ":")).encode()
        kept = bytes(kept)
        return None if kept == before else kept


def logged(call, hook):
    """Writes what `call` raises to the server's log, except a refusal, which is the client's to read."""
    refused = []

    def unless_refused():
        try:
            return call()
        except Refusal as refusal:
            refused.append(refusal)
    answer = told(unless_refused, hook)
    if refused:
        raise refused[0]
    return answer


def named(ports, values):
    return {ports[port].name: tensor for port, tensor in values}


def placed(ports, tensors, missing):
    places = {port.name: at for at, port in enumerate(ports)}
    for name in tensors:
        if name not in places:
            raise LookupError(f'{missing} "{name}"; there are {", ".join(places)}')
    return [(places[name], tensor) for name, tensor in tensors.items()]
