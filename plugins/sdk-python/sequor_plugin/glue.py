"""A plug-in by the functions of the contract. The component and a test both run it."""

import json
import sys

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
        hook = self.plugin.plan
        return told(lambda: expect("plan", hook(round, Ready(ready, self.model)), (Plan, type(None)), PLANS), hook)

    def admit(self, round, waiting, room, victims, events=None):
        self.observe(events)

        def checked():
            answer = self.plugin.admit(round, Ready(waiting, self.model), room, Ready(victims, self.model))
            answers = list(expect("admit", answer, (list, tuple), ADMISSIONS))
            return [expect("admit", one, (Admission,), ADMISSIONS) for one in answers]
        return told(checked, self.plugin.admit)

    def observe(self, events):
        """Events, if there are any."""
        def all_of_them():
            for event in each(events, self.model):
                self.plugin.observe(event)
        if events is not None:
            told(all_of_them, self.plugin.observe)

    def save(self):
        return told(self.plugin.save, self.plugin.save)

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


def told(call, hook):
    """Calls, and writes what that raises to the server's log. `hook` is the author's function that it asks."""
    try:
        return call()
    except BaseException as error:
        host.error(words(error, hook))
        raise


def words(error, hook=None):
    """What was raised, and where in the author's own file: the innermost of its lines, or the hook whose answer is wrong."""
    own = [place for name, place in _frames(error.__traceback__) if _is_authors(name)]
    file, line = own[-1] if own else _defined(hook)
    place = f" at {file.rsplit('/', 1)[-1]}:{line}" if file else ""
    return f"{type(error).__name__}: {error}{place}"


# The last one has several modules, `componentize_py_runtime` among them.
_KIT = ("sequor_plugin", "wit_world", "componentize_py")


def _is_authors(module):
    """Whether this module is neither of this kit, nor of what stands around it in a component, nor of Python's library."""
    top = (module or "").split(".")[0]
    is_kit = top in _KIT or top.startswith("componentize_py_")
    return bool(top) and not is_kit and top not in sys.stdlib_module_names


def _defined(hook):
    """Where the author defines a hook. Nothing for one that the kit has."""
    code = getattr(hook, "__code__", None)
    if code is None or not _is_authors(getattr(hook, "__module__", None)):
        return "", 0
    return code.co_filename, code.co_firstlineno


def _frames(trace):
    # The module traceback would look for the source files, and a component that has no files falls of looking.
    while trace:
        code = trace.tb_frame
        yield code.f_globals.get("__name__"), (code.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
