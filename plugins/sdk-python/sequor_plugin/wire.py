"""Between the generated types of the contract and those of this kit. Only components have the former."""

from componentize_py_types import Err
from wit_world.imports import calls, tensors

from . import contents
from .processor import Refusal
from .tensors import CODES, NAMES, Port


def refused(call):
    """Calls, and answers a refusal as the contract has it."""
    try:
        return call()
    except Refusal as refusal:
        raise Err(calls.Refusal(refusal.code, refusal.text, refusal.retry_us, refusal.ends))


def facts(call):
    return {
        "sequence": call.sequence, "step": call.step, "start": bool(call.start_end & 1), "end": bool(call.start_end & 2), "numbers": call.numbers,
        "keys": call.keys, "wanted": call.outputs,
    }


def ports_of(ports):
    return [Port(port.name, NAMES.get(port.dtype, "?"), port.shape, port.optional) for port in ports]


def contract_ports(ports):
    return [tensors.Port(port.name, CODES[port.dtype], port.shape, port.optional) for port in ports]


def taken(values):
    return [(value.port, contents.taken(value.content)) for value in values]


def given(values):
    return [tensors.Value(port, contents.given(tensor)) for port, tensor in values]
