"""Drives a plug-in under an ordinary Python: candidates made by hand, and the server's rules for answers."""

import inspect
import json
import pathlib
import tomllib
from types import SimpleNamespace

from . import NEVER, host
from .events import ENDINGS
from .glue import Glue

_NUMBERS = {
    "step": 1, "slot": 2**32 - 1, "arrival_us": 0, "deadline_us": NEVER, "priority": 0, "shape_key": 0, "start_end": 0, "rows": 1,
    "input_bytes": 0, "state_bytes": 0,
}
_CODES = {name: code for code, name in ENDINGS.items()}


def candidate(keys=(), numbers=(), **columns):
    """One candidate: candidate(deadline_us=5, keys={"tenant": "gold"}). Every column has a value."""
    unknown = set(columns) - set(_NUMBERS) - {"sequence", "ready_us"}
    if unknown:
        raise TypeError(f"no such column: {', '.join(sorted(unknown))}")
    keys = {name: host.remember(text) for name, text in dict(keys).items()}
    return SimpleNamespace(given=columns, keys=keys, numbers=dict(numbers))


class Bench:
    """A plug-in under test: Bench(Plugin(), max_batch=4, keys=["tenant"]).plan([candidate(...), ...]).

    It has the hooks, columns and defaults of the plugin.toml beside the plug-in's file: a column that the file does not name is missing, as in the
    server. `manifest` is a text in its place. `round` is the state of the load for the next question; `round.now_us` is the clock."""

    def __init__(self, plugin, config="{}", max_batch=8, keys=(), numbers=(), manifest=None):
        self.glue, self.manifest = Glue(plugin), _manifest(plugin) if manifest is None else tomllib.loads(manifest)
        self.model = SimpleNamespace(
            name="model", version=1, strategy="oldest", max_batch=max_batch, instances=1, slots=64, keys=list(keys), numbers=list(numbers))
        self.round = SimpleNamespace(
            now_us=0, run_us=0, instance=0, max_batch=max_batch, free_instances=1, live=0, backlog=0, not_shown=0)
        defaults = {name: of["default"] for name, of in self.manifest.get("config", {}).items() if "default" in of}
        self.glue.configure(json.dumps(defaults | json.loads(config or "{}")), self.model)

    def plan(self, candidates):
        """Asks for a plan. An answer that breaks a rule of the server raises ValueError."""
        self._wants("plan")
        plan = self.glue.plan(self.round, self._columns(candidates))
        if plan is not None and plan.fire is not None:
            # The server knows shapes and rows even if the plug-in does not see them.
            _check(plan, self._all_columns(candidates), self.round)
        return plan

    def admit(self, waiting, room, victims):
        """Asks who gets a slot."""
        self._wants("admit")
        return self.glue.admit(self.round, self._columns(waiting), room, self._columns(victims))

    def wait_us(self, micros):
        """Advances the clock."""
        self.round.now_us += micros

    def began(self, starts):
        """The sequences of these requests began."""
        self._report(1, starts, lambda start: start.given.get("step", 1) - 1)

    def slotted(self, starts, waited_us):
        """Their sequences got slots, after this time in the backlog."""
        self._report(2, starts, lambda _: waited_us)

    def done(self, candidates):
        """These requests ran."""
        self._report(3, candidates, lambda request: request.given.get("rows", 1))

    def failed(self, candidates):
        """These requests failed."""
        self._report(4, candidates, lambda request: request.given.get("rows", 1))

    def ended(self, starts, why):
        """The sequences of these STARTs ended; `why` is a name as of Event.why."""
        self._report(5, starts, lambda _: _CODES[why])

    def batch_ran(self, micros):
        """A batch ran for this long."""
        self._report(6, [candidate(sequence=0)], lambda _: micros)

    def _report(self, kind, of, amount):
        if not self._has("wants", "observe") and not self._has("wants", "on-event"):
            return
        columns = self._all_columns(of)
        keys = [0] * len(columns.keys) if kind in (2, 6) else columns.keys
        self.glue.observe(SimpleNamespace(
            kind=[kind] * columns.len, sequence=columns.sequence, amount=[amount(one) for one in of], keys=keys))

    def _wants(self, hook):
        if not self._has("wants", hook):
            raise LookupError(f'the server does not ask for a {hook}; add "{hook}" to `wants` of plugin.toml')

    def _has(self, list_name, name):
        return name in self.manifest.get(list_name, [name])

    def _columns(self, candidates):
        columns = vars(self._all_columns(candidates))
        shown = {name: column for name, column in columns.items() if name == "len" or self._has("columns", name.replace("_", "-"))}
        return SimpleNamespace(**{name: shown.get(name) for name in columns})

    def _all_columns(self, candidates):
        columns = {name: [c.given.get(name, default) for c in candidates] for name, default in _NUMBERS.items()}
        columns["sequence"] = [c.given.get("sequence", n) for n, c in enumerate(candidates, 1)]
        columns["ready_us"] = [c.given.get("ready_us", c.given.get("arrival_us", 0)) for c in candidates]
        columns["keys"] = [c.keys.get(name, 0) for c in candidates for name in self.model.keys]
        columns["numbers"] = [c.numbers.get(name, 0.0) for c in candidates for name in self.model.numbers]
        return SimpleNamespace(len=len(candidates), **columns)


def _manifest(plugin):
    """The plugin.toml beside the file of the plug-in's class; without one the server asks for everything."""
    try:
        file = pathlib.Path(inspect.getfile(type(plugin))).with_name("plugin.toml")
    except (OSError, TypeError):
        return {}
    return tomllib.loads(file.read_text()) if file.exists() else {}


def _check(plan, columns, round):
    picks = plan.fire + [candidate for candidate, _, _ in plan.rejected]
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
