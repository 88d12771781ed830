from collections.abc import Iterator
from typing import Any

class Event:
    kind: str
    sequence: int
    amount: int
    @property
    def why(self) -> str | None: ...
    def key(self, feature: str) -> int: ...

def each(events: Any, model: Any) -> Iterator[Event]: ...
