"""Calls to other models of the server. In a test, `serve` stands in for them.

    from sequor_plugin import models

    outputs = models.infer("joiner", {"encoder_out": frame, "decoder_out": decoded})

A grant of the operator must name the model, and `configure` must not call it. A component imports the server's models if plugin.py has the text
`models.infer`."""

from .processor import NOT_NOW, WRONG_REQUEST, WRONG_STATE, Refusal

try:
    from componentize_py_types import Err
    from wit_world.imports import models as _server

    from .contents import given, taken
except ImportError:
    _server = None

_stand_ins, calls = {}, {}


class Failure(Refusal):
    """Why a call gave no outputs. Codes 1 to 6 are those of a refusal; 7: the deadline has passed; 8: the model failed. Unless the plug-in catches it, it
    refuses the request: with its own code, or as "not now"."""

    def __init__(self, failure, text, retry_us=None):
        super().__init__(failure if WRONG_REQUEST <= failure <= WRONG_STATE else NOT_NOW, text, retry_us)
        self.failure = failure


def infer(model, inputs):
    """Runs another model once and waits for its outputs, a dict of tensors."""
    if _server:
        try:
            outputs = _server.infer(model, [_server.NamedTensor(name, given(tensor)) for name, tensor in inputs.items()])
        except Err as error:
            raise Failure(error.value.code, error.value.text, error.value.retry_us)
        return {output.name: taken(output.content) for output in outputs}
    if model not in _stand_ins:
        raise Failure(4, f'there is no model "{model}"')
    calls[model] += 1
    return _stand_ins[model](inputs)


def serve(model, answer):
    """In a test: lets `answer` stand in for a model. `calls` counts how often each was called."""
    _stand_ins[model], calls[model] = answer, 0
