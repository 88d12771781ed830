"""A plug-in by the functions of the contract. The component and a test both run it."""

import json

from . import host
from .answers import Admission, Plan
from .columns import Ready
from .events import each


PLANS = "fire(...), wait(), wait_us(...), wait_until_us(...) or default()"
ADMISSIONS = "a list of take(...), evict(...), defer() and reject(...)"


class Glue:
    """One instance: the author's class, and the model it serves. An exception goes to the server's log with its line, before the trap, which has no
    message."""

    def __init__(self, plugin):
        self.plugin, self.model = plugin, None

    def configure(self, config, model):
        self.model = model
        self.plugin.configure(json.loads(config or "{}"), model)

    def plan(self, round, ready, events=None):
        self.observe(events)
        return told(lambda: expect("plan", self.plugin.plan(round, Ready(ready, self.model)), (Plan, type(None)), PLANS))

    def admit(self, round, waiting, room, victims, events=None):
        self.observe(events)

        def checked():
            answer = self.plugin.admit(round, Ready(waiting, self.model), room, Ready(victims, self.model))
            answers = list(expect("admit", answer, (list, tuple), ADMISSIONS))
            return [expect("admit", one, (Admission,), ADMISSIONS) for one in answers]
        return told(checked)

    def observe(self, events):
        """Events, if there are any."""
        def all_of_them():
            for event in each(events, self.model):
                self.plugin.observe(event)
        if events is not None:
            told(all_of_them)

    def save(self):
        return told(self.plugin.save)

    def restore(self, saved):
        self.plugin.restore(saved)


class AnswerError(TypeError):
    """A hook returned something else than the contract has."""


def expect(hook, answer, types, expected):
    """The answer of a hook, if it is of one of these types. The error names what is expected."""
    if not isinstance(answer, types):
        raise AnswerError(f"{hook} returned {_kind(answer)}; expected {expected}")
    return answer


def _kind(value):
    return "nothing" if value is None else type(value).__name__


def told(call):
    try:
        return call()
    except BaseException as error:
        host.error(words(error))
        raise


def words(error):
    """What was raised, and where in the author's own file."""
    places = list(_places(error.__traceback__))
    own = [(file, line) for file, line in places if not any(part in file for part in ("sequor_plugin/", "sequor_plugin_entry"))]
    at = own[-1:] if own or isinstance(error, AnswerError) else places[-1:]
    place = f" at {at[0][0].rsplit('/', 1)[-1]}:{at[0][1]}" if at else ""
    return f"{type(error).__name__}: {error}{place}"


def _places(trace):
    # The module traceback would look for the source files, and a component that has no files falls of looking.
    while trace:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
