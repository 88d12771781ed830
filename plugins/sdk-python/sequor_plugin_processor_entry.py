"""What a component exports: the class `Plugin` of plugin.py, behind the generated types of the contract."""

from componentize_py_types import Err
from wit_world.exports import processor as contract
from wit_world.imports import calls, tensors

from plugin import Plugin
from sequor_plugin import contents
from sequor_plugin.glue import words
from sequor_plugin.processor import Refusal
from sequor_plugin.processor_glue import Glue
from sequor_plugin.tensors import CODES, NAMES, Files, Port, Signature, Tensor

_glue = Glue(Plugin())


class Processor:
    """The exported interface."""

    def configure(self, config, model, inner, files):
        try:
            files = Files({file.name: Tensor.held(file.content) for file in files})
            outer = _glue.configure(config, model, _signature(inner), files)
        except Exception as error:
            raise Err(words(error))
        return tensors.Signature(_ports(outer.inputs), _ports(outer.outputs))

    def pre(self, call, inputs):
        is_run, answer, scratch = _refused(lambda: _glue.pre(_facts(call), call.scratch, _taken(inputs)))
        action = contract.Action_Run([_given(run) for run in answer]) if is_run else contract.Action_Reply(_given(answer))
        return contract.Prepared(action, scratch)

    def post(self, call, runs):
        outputs, scratch = _refused(lambda: _glue.post(_facts(call), call.scratch, [_taken(run) for run in runs]))
        return contract.Answered(_given(outputs), scratch)


def _refused(call):
    try:
        return call()
    except Refusal as refusal:
        raise Err(calls.Refusal(refusal.code, refusal.text, refusal.retry_us, refusal.ends))


def _facts(call):
    return {
        "sequence": call.sequence, "step": call.step, "start": bool(call.start_end & 1), "end": bool(call.start_end & 2), "numbers": call.numbers,
        "keys": call.keys, "wanted": call.outputs,
    }


def _signature(given):
    def ports(ports):
        return [Port(port.name, NAMES.get(port.dtype, "?"), port.shape, port.optional) for port in ports]
    return Signature(ports(given.inputs), ports(given.outputs))


def _ports(ports):
    return [tensors.Port(port.name, CODES[port.dtype], port.shape, port.optional) for port in ports]


def _taken(values):
    return [(value.port, contents.taken(value.content)) for value in values]


def _given(values):
    return [tensors.Value(port, contents.given(tensor)) for port, tensor in values]
