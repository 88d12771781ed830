"""Drives a plug-in under an ordinary Python: candidates by hand, answers held against the rules that the server holds them against."""

from types import SimpleNamespace

from . import NEVER, host
from .glue import Glue

_NUMBERS = {
    "step": 1, "slot": 2**32 - 1, "arrival_us": 0, "deadline_us": NEVER, "priority": 0, "shape_key": 0, "start_end": 0, "rows": 1,
    "input_bytes": 0, "state_bytes": 0,
}


def candidate(keys=(), numbers=(), **columns):
    """One candidate: candidate(deadline_us=5, keys={"tenant": "gold"}). Every column has a value."""
    unknown = set(columns) - set(_NUMBERS) - {"sequence", "ready_us"}
    if unknown:
        raise TypeError(f"no such column: {', '.join(sorted(unknown))}")
    keys = {name: host.remember(text) for name, text in dict(keys).items()}
    return SimpleNamespace(given=columns, keys=keys, numbers=dict(numbers))


class Bench:
    """A plug-in on the bench: Bench(Plugin(), max_batch=4, keys=["tenant"]).plan([candidate(...), ...])."""

    def __init__(self, plugin, config="{}", max_batch=8, keys=(), numbers=()):
        self.glue = Glue(plugin)
        self.model = SimpleNamespace(
            name="model", version=1, strategy="oldest", max_batch=max_batch, instances=1, slots=64, keys=list(keys), numbers=list(numbers))
        self.round = SimpleNamespace(
            now_us=0, instance=0, max_batch=max_batch, free_instances=1, live=0, backlog=0, not_shown=0)
        self.glue.configure(config, self.model)

    def plan(self, candidates):
        """Asks; an answer that breaks a rule of the server is a ValueError."""
        columns = self._columns(candidates)
        plan = self.glue.plan(self.round, columns)
        if plan is not None and plan.fire is not None:
            _check(plan, columns, self.round)
        return plan

    def admit(self, waiting, room, victims):
        return self.glue.admit(self.round, self._columns(waiting), room, self._columns(victims))

    def done(self, candidates):
        """Says that these requests ran."""
        columns = self._columns(candidates)
        self.glue.observe(SimpleNamespace(
            kind=[3] * columns.len, sequence=columns.sequence, amount=columns.rows, keys=columns.keys))

    def _columns(self, candidates):
        columns = {name: [c.given.get(name, default) for c in candidates] for name, default in _NUMBERS.items()}
        columns["sequence"] = [c.given.get("sequence", n) for n, c in enumerate(candidates, 1)]
        columns["ready_us"] = [c.given.get("ready_us", c.given.get("arrival_us", 0)) for c in candidates]
        columns["keys"] = [c.keys.get(name, 0) for c in candidates for name in self.model.keys]
        columns["numbers"] = [c.numbers.get(name, 0.0) for c in candidates for name in self.model.numbers]
        return SimpleNamespace(len=len(candidates), **columns)


def _check(plan, columns, round):
    picks = plan.fire + plan.rejected
    for i in picks:
        if not 0 <= i < columns.len:
            raise ValueError(f"index {i} of {columns.len} candidates")
    if len(set(picks)) < len(picks):
        raise ValueError(f"a candidate twice: {picks}")
    rows = sum(columns.rows[i] for i in plan.fire)
    if rows > round.max_batch and len(plan.fire) > 1:
        raise ValueError(f"{rows} rows in a batch of at most {round.max_batch}")
    if len({columns.shape_key[i] for i in plan.fire}) > 1:
        raise ValueError("unlike shapes in one batch")
