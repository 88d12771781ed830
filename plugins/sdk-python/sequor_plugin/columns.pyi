from collections.abc import Callable, Iterable
from typing import Any

from . import Round

class Ready:
    sequence: list[int]
    step: list[int]
    slot: list[int]
    arrival_us: list[int]
    ready_us: list[int]
    deadline_us: list[int]
    priority: list[int]
    shape_key: list[int]
    start_end: list[int]
    rows: list[int]
    input_bytes: list[int]
    state_bytes: list[int]
    def __len__(self) -> int: ...
    def indices(self) -> range: ...
    def sorted(self, key: Callable[[int], Any]) -> list[int]: ...
    def key(self, feature: str, i: int) -> int: ...
    def number(self, feature: str, i: int) -> float: ...
    def batch(self, order: Iterable[int], round: Round) -> list[int]: ...
