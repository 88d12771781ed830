from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import Model
from .tensors import Files as Files, Port as Port, Signature as Signature, Tensor as Tensor, TokenTable as TokenTable

WRONG_REQUEST: int
NOT_NOW: int
FORBIDDEN: int
NOT_FOUND: int
QUOTA: int
WRONG_STATE: int

class Processor:
    def configure(self, config: dict[str, Any], model: Model, inner: Signature, files: Files) -> Signature: ...
    def scratch(self) -> Any: ...
    def pre(self, call: Call, inputs: dict[str, Tensor]) -> Run | Reply: ...
    def post(self, call: Call, runs: list[dict[str, Tensor]]) -> Mapping[str, Tensor]: ...

class Call:
    sequence: int
    step: int
    start: bool
    end: bool
    scratch: Any
    def number(self, feature: str) -> float: ...
    def key(self, feature: str) -> int: ...
    def wants(self, output: str) -> bool: ...

class Run:
    runs: list[Mapping[str, Tensor]]
    def __init__(self, runs: Sequence[Mapping[str, Tensor]]) -> None: ...

class Reply:
    outputs: Mapping[str, Tensor]
    def __init__(self, outputs: Mapping[str, Tensor]) -> None: ...

def run(inputs: Mapping[str, Tensor]) -> Run: ...
def run_each(runs: Iterable[Mapping[str, Tensor]], otherwise: Mapping[str, Tensor] | None = ...) -> Run | Reply: ...
def reply(outputs: Mapping[str, Tensor]) -> Reply: ...

class Refusal(Exception):
    code: int
    text: str
    retry_us: int | None
    ends: bool
    def __init__(self, code: int, text: str, retry_us: int | None = ..., ends: bool = ...) -> None: ...

def refuse(code: int, text: str, retry_us: int | None = ..., ends: bool = ...) -> Refusal: ...
def join(runs: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]: ...
