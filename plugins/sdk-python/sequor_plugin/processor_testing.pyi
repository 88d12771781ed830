from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .processor import Processor
from .tensors import Signature, Tensor

class Bench:
    model: Any
    inner: Signature
    outer: Signature
    sequences: dict[int, tuple[int, bytes]]
    runs: list[dict[str, Tensor]]
    def __init__(
        self, plugin: Processor, signature: Signature, answer: Callable[[dict[str, Tensor]], Mapping[str, Tensor]],
        config: Mapping[str, Any] | None = ..., files: Mapping[str, bytes] = ..., keys: Mapping[str, str] = ..., numbers: Mapping[str, float] = ...,
        posts: bool = ..., scratch: int = ...,
    ) -> None: ...
    def start(self, sequence: int, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
    def step(self, sequence: int, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
    def end(self, sequence: int, inputs: Mapping[str, Tensor] = ...) -> dict[str, Tensor]: ...
    def once(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
    def stream(self, name: str, dtype: str, values: Sequence[Any], packet: int) -> dict[str, Tensor]: ...
