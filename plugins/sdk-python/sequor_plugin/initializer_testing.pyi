from collections.abc import Mapping
from typing import Any

from . import Model
from .initializer import FirstState, Initializer, Ports
from .tensors import Tensor

class Bench:
    model: Model
    ports: Ports
    keys: dict[str, str]
    numbers: dict[str, float]
    manifest: dict[str, Any]
    def __init__(
        self, plugin: Initializer, ports: Ports, config: Mapping[str, Any] | None = ..., files: Mapping[str, bytes] = ..., keys: Mapping[str, str] = ...,
        numbers: Mapping[str, float] = ..., manifest: str | None = ...,
    ) -> None: ...
    def start(self, inputs: Mapping[str, Tensor] = ...) -> FirstState: ...
    def steps(self, name: str, inputs: Mapping[str, Tensor] = ...) -> list[dict[str, Tensor]]: ...
