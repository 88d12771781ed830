from collections.abc import Callable, Mapping

from .processor import Refusal
from .tensors import Tensor

calls: dict[str, int]

class Failure(Refusal):
    failure: int
    def __init__(self, failure: int, text: str, retry_us: int | None = ...) -> None: ...

def infer(model: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
def serve(model: str, answer: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]) -> None: ...
