"""Events."""

KINDS = {1: "began", 2: "slotted", 3: "done", 4: "failed", 5: "ended", 6: "batch_ran"}
ENDINGS = {
    1: "end", 2: "idle", 3: "restarted", 4: "cancelled", 5: "evicted", 6: "drained", 7: "fenced", 8: "unsealed", 9: "dropped", 10: "rejected",
    11: "failed",
}


class Event:
    """`kind`: began, slotted, done, failed, ended, batch_ran, or other. `sequence` is 0 for a batch and for requests without one. `amount`: committed
    steps (began), microseconds in the backlog (slotted), rows (done, failed), a code (ended: `why` is its name), microseconds (batch_ran)."""

    def __init__(self, kind, sequence, amount, keys, names):
        self.kind, self.sequence, self.amount = KINDS.get(kind, "other"), sequence, amount
        self._keys, self._names = keys, names

    @property
    def why(self):
        return ENDINGS.get(self.amount, "other") if self.kind == "ended" else None

    def key(self, feature):
        """A key feature of the request that the event is about, or of the sequence's START; 0 if the model has none of this name."""
        return self._keys[self._names.index(feature)] if feature in self._names else 0


def each(events, model):
    """One after the other."""
    names = model.keys
    width = len(names)
    for i, kind in enumerate(events.kind):
        yield Event(kind, events.sequence[i], events.amount[i], events.keys[i * width:(i + 1) * width], names)
