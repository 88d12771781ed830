"""What a component exports: the class `Plugin` of plugin.py, behind the generated types of the contract."""

from componentize_py_types import Err
from wit_world.exports import processor as contract
from wit_world.imports import tensors

from plugin import Plugin
from sequor_plugin.glue import words
from sequor_plugin.processor_glue import Glue
from sequor_plugin.tensors import Files, Signature, Tensor
from sequor_plugin.wire import contract_ports, facts, given, ports_of, refused, taken

_glue = Glue(Plugin())


class Processor:
    """The exported interface."""

    def configure(self, config, model, inner, files):
        try:
            files = Files({file.name: Tensor.held(file.content) for file in files})
            outer = _glue.configure(config, model, Signature(ports_of(inner.inputs), ports_of(inner.outputs)), files)
        except Exception as error:
            raise Err(words(error, _glue.plugin.configure))
        return tensors.Signature(contract_ports(outer.inputs), contract_ports(outer.outputs))

    def pre(self, call, inputs):
        is_run, answer, scratch = refused(lambda: _glue.pre(facts(call), call.scratch, taken(inputs)))
        action = contract.Action_Run([given(run) for run in answer]) if is_run else contract.Action_Reply(given(answer))
        return contract.Prepared(action, scratch)

    def post(self, call, runs):
        outputs, scratch = refused(lambda: _glue.post(facts(call), call.scratch, [taken(run) for run in runs]))
        return contract.Answered(given(outputs), scratch)
