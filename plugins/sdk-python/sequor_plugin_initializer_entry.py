"""What a component exports: the class `Plugin` of plugin.py, behind the generated types of the contract."""

from componentize_py_types import Err
from wit_world.exports import state_initializer as contract

from plugin import Plugin
from sequor_plugin.glue import words
from sequor_plugin.initializer import Ports
from sequor_plugin.initializer_glue import InitializerGlue
from sequor_plugin.tensors import Files, Tensor
from sequor_plugin.wire import facts, given, ports_of, refused, taken

_glue = InitializerGlue(Plugin())

_ANSWERS = {
    "default": lambda _: contract.FirstState_Default(), "states": lambda states: contract.FirstState_States(given(states)),
    "copy_of": contract.FirstState_CopyOf, "kept": contract.FirstState_Kept,
}


class StateInitializer:
    """The exported interface."""

    def configure(self, config, model, ports, files):
        try:
            ports = Ports(ports_of(ports.states), ports_of(ports.request), ports_of(ports.step))
            _glue.configure(config, model, ports, Files({file.name: Tensor.held(file.content) for file in files}))
        except Exception as error:
            raise Err(words(error, _glue.plugin.configure))

    def initialize(self, call, inputs):
        kind, value = refused(lambda: _glue.initialize(facts(call), taken(inputs)))
        return _ANSWERS[kind](value)

    def steps(self, name, call, inputs):
        return [given(step) for step in refused(lambda: _glue.steps(name, facts(call), taken(inputs)))]
