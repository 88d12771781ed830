from collections.abc import Iterable, Sequence
from typing import Any

from . import host as host
from .answers import Admission as Admission, Plan as Plan
from .answers import default as default, defer as defer, evict as evict, fire as fire, in_order as in_order, reject as reject, take as take
from .answers import wait as wait, wait_until_us as wait_until_us, wait_us as wait_us
from .columns import Ready as Ready
from .events import Event as Event
from .saved import restored as restored, saved as saved

NEVER: int

class Model:
    name: str
    version: int
    strategy: str
    max_batch: int
    instances: int
    slots: int
    numbers: list[str]
    keys: list[str]

class Round:
    now_us: int
    run_us: int
    instance: int
    max_batch: int
    free_instances: int
    live: int
    backlog: int
    not_shown: int

class Scheduler:
    def configure(self, config: dict[str, Any], model: Model) -> None: ...
    def plan(self, round: Round, ready: Ready) -> Plan | None: ...
    def admit(self, round: Round, waiting: Ready, room: Sequence[int], victims: Ready) -> list[Admission]: ...
    def observe(self, event: Event) -> None: ...
    def save(self) -> bytes: ...
    def restore(self, saved: bytes) -> None: ...

def key_of(text: str) -> int: ...
