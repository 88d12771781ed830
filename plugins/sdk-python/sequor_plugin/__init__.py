"""The kit for plug-ins of the Sequor inference server. This module is for schedulers, which decide which requests run together and when.
`sequor_plugin.processor` changes inputs and outputs of a model. `sequor_plugin.initializer` makes first states.

    from sequor_plugin import Scheduler, fire

    class Plugin(Scheduler):
        def plan(self, round, ready):
            return fire(ready.batch(ready.sorted(ready.deadline_us.__getitem__), round))

`sequor plugin build` makes a component of the class `Plugin` of plugin.py. The same file runs under any Python: sequor_plugin.testing drives it.
"""

from . import host
from .answers import Admission, Plan, default, defer, evict, fire, in_order, reject, take, wait, wait_until_us, wait_us
from .columns import Ready
from .events import Event
from .saved import restored, saved

__all__ = [
    "NEVER", "Admission", "Event", "Plan", "Ready", "Scheduler", "default", "defer", "evict", "fire", "host", "in_order", "key_of", "reject", "restored",
    "saved", "take", "wait", "wait_until_us", "wait_us",
]

NEVER = 2**64 - 1
"""The deadline of a request that has none."""


class Scheduler:
    """A scheduler. Only the hooks that plugin.toml names in `wants` are called."""

    def configure(self, config, model):
        """Configures the plug-in, before any other call. `config` is a dict. An exception refuses the plug-in, and the operator reads it."""

    def plan(self, round, ready):
        """Chooses the candidates that run now: fire(...), wait_us(...), default()."""
        return default()

    def admit(self, round, waiting, room, victims):
        """Decides which waiting sequences get a slot: a list of take(instance), evict(victim), defer(), reject(code), for the first of `waiting`; the
        others go on waiting. `room` is the number of free slots of each instance. Default: the sequences that wait longest take the free slots."""
        return in_order(len(waiting), room)

    def observe(self, event):
        """Learns what happened. The events since the last call come before each question."""

    def save(self):
        """Returns the state that the next version gets; at most 1 MiB of bytes. saved(value) makes them."""
        return b""

    def restore(self, saved):
        """Restores a state that an earlier instance saved, perhaps of another version. restored(bytes) reads what saved(value) made."""


def key_of(text):
    """The key of a text: the 64-bit FNV-1a of its UTF-8."""
    key = 0xCBF29CE484222325
    for byte in text.encode():
        key = ((key ^ byte) * 0x100000001B3) % 2**64
    return key
