"""Writes plug-ins for the Sequor inference server: a plug-in decides which requests run together and when.

    from sequor_plugin import Scheduler, fire

    class Plugin(Scheduler):
        def plan(self, round, ready):
            order = sorted(range(len(ready)), key=lambda i: ready.deadline_us[i])
            return fire(ready.batch(order, round))

`sequor plugin build` makes a component of the class `Plugin` of plugin.py. The same file runs under any Python: sequor_plugin.testing drives it.
"""

from . import host
from .answers import Admission, Plan, default, defer, evict, fire, in_order, refuse, take, wait, wait_until_us, wait_us
from .columns import Ready
from .events import Event

__all__ = [
    "Admission", "Event", "Plan", "Ready", "Scheduler", "default", "defer", "evict", "fire", "host", "in_order", "key_of", "refuse", "take",
    "wait", "wait_until_us", "wait_us",
]

NEVER = 2**64 - 1
"""The deadline of a request that has none."""


class Scheduler:
    """A scheduler. Only the hooks that plugin.toml names in `wants` are called."""

    def configure(self, config, model):
        """First of all: `config` is a dict. What it raises is shown to whoever attaches the plug-in, and refuses the attachment."""

    def plan(self, round, ready):
        """Which of the candidates run now: fire(...), wait_us(...), default()."""
        return default()

    def admit(self, round, waiting, room, victims):
        """Who of those who wait gets a slot: a list of take(instance), evict(victim), defer(), refuse(code). `room` counts free slots an instance.
        Left as it is: whoever waits longest takes what is free."""
        return in_order(len(waiting), room)

    def observe(self, event):
        """Something happened."""

    def save(self):
        """What whoever takes its place shall know; at most 1 MiB of bytes."""
        return b""

    def restore(self, saved):
        """What an earlier one saved, perhaps of another version."""


def key_of(text):
    """The key of a text: the 64-bit FNV-1a of its UTF-8."""
    key = 0xCBF29CE484222325
    for byte in text.encode():
        key = ((key ^ byte) * 0x100000001B3) % 2**64
    return key
