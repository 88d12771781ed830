"""State initializers: plug-ins that make the first state of a sequence.

    from sequor_plugin.initializer import Initializer, Tensor, default, states

    class Plugin(Initializer):
        def initialize(self, call, inputs):
            return states({"total": Tensor("INT32", [1], [100])}) if call.key("tenant") else default()

`sequor plugin build` makes a component of the class `Plugin` of plugin.py. The same file runs under any Python: sequor_plugin.initializer_testing drives it.
"""

from .processor import FORBIDDEN, NOT_FOUND, NOT_NOW, QUOTA, WRONG_REQUEST, WRONG_STATE, Call, Refusal, refuse
from .tensors import Files, Port, Tensor, find

__all__ = [
    "FORBIDDEN", "NOT_FOUND", "NOT_NOW", "QUOTA", "WRONG_REQUEST", "WRONG_STATE", "Call", "Files", "FirstState", "Initializer", "Port", "Ports", "Refusal",
    "Tensor", "copy_of", "default", "kept", "refuse", "states",
]


class Initializer:
    """A state initializer.

    The server runs several instances and may call any of them. So an answer may depend on the call, the configuration and the files, and not on earlier
    calls: keep in `self` only what `configure` made. An exception other than Refusal traps: its words and its line go to the server's log, and the START
    fails as `plugin_failed`."""

    def configure(self, config, model, ports, files):
        """Called first. `config` is a dict. What it raises refuses the model."""

    def initialize(self, call, inputs):
        """Called with each START: default(), states(...), copy_of(...) or kept(...); or it raises refuse(...). `inputs` is a dict of the tensors that
        `reads` of plugin.toml names."""
        return default()

    def steps(self, name, call, inputs):
        """The inputs of each step that leads to the states of this name, a dict each. Called after kept(name), if the server keeps no states of that
        name. An initializer that never answers so need not have it."""
        raise NotImplementedError(f'there are no steps for "{name}"')


class Ports:
    """The tensors of the model: `states`, without the batch dimension; `request`, the inputs that clients send; `step`, the inputs of a step."""

    def __init__(self, states=(), request=(), step=()):
        self.states, self.request, self.step = list(states), list(request), list(step)

    def state(self, name):
        """The state of this name, or a LookupError that names those that there are."""
        return find(self.states, name, "state")

    def request_input(self, name):
        """The input of this name that clients send, or a LookupError that names those that there are."""
        return find(self.request, name, "input of requests")

    def step_input(self, name):
        """The input of this name of a step, or a LookupError that names those that there are."""
        return find(self.step, name, "input")

    def add_state(self, name, dtype, shape):
        """The same with one more state."""
        return Ports([*self.states, Port(name, dtype, shape, True)], self.request, self.step)

    def add_request(self, name, dtype, shape, optional=False):
        """The same with one more input that clients send."""
        return Ports(self.states, [*self.request, Port(name, dtype, shape, optional)], self.step)

    def add_step(self, name, dtype, shape, optional=False):
        """The same with one more input of a step."""
        return Ports(self.states, self.request, [*self.step, Port(name, dtype, shape, optional)])


class FirstState:
    """What a sequence begins with. `kind` is "default", "states", "copy_of" or "kept"; `value` is the dict of tensors, the id or the name."""

    def __init__(self, kind, value=None):
        self.kind, self.value = kind, value

    def __eq__(self, other):
        return isinstance(other, FirstState) and (self.kind, self.value) == (other.kind, other.value)

    def __repr__(self):
        return f"{self.kind}({'' if self.value is None else repr(self.value)})"


def default():
    """Every state begins as config.pbtxt says: with its `initial_state`, or with zeros."""
    return FirstState("default")


def states(values):
    """These values of states, a dict by name. A state that is not in it begins as config.pbtxt says."""
    return FirstState("states", dict(values))


def copy_of(id):
    """The states of another live sequence of the same load, by the client's id. `copy_if_same` of sequor.toml says which sequences may be copied."""
    return FirstState("copy_of", str(id))


def kept(name):
    """The states that the steps of this name lead to. The server calls `steps` if it keeps none, and keeps the result under the name. The steps of an
    empty name run for this START alone."""
    return FirstState("kept", name)
