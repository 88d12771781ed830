"""What a plug-in may ask of the server. Under an ordinary Python the answers are a test's: lines go to standard error, and the texts behind keys are
those given to `remember`."""

import sys

try:
    from wit_world.imports import host as _server
except ImportError:
    _server = None

try:
    from wit_world.imports import identity as _identity
except ImportError:
    _identity = None

_texts, counters, lines = {}, {}, []


def log(level, message):
    """Writes a line to the server's log; level 0 is an error, 3 for debugging."""
    if _server:
        _server.log(level, message)
    else:
        lines.append((level, message))
        print(f"log {level}: {message}", file=sys.stderr)


def error(message):
    log(0, message)


def warn(message):
    log(1, message)


def info(message):
    log(2, message)


def debug(message):
    log(3, message)


def metric_add(name, value):
    """Adds to a counter of the plug-in's own."""
    if _server:
        _server.metric_add(name, float(value))
    else:
        counters[name] = counters.get(name, 0) + value


def key_text(key):
    """The text behind a key, if the server still remembers it."""
    return _server.key_text(key) if _server else _texts.get(key)


def sequence_text(of):
    """The client's id of a live sequence. Only with the grant sequence-text."""
    if _identity:
        return _identity.sequence_text(of)
    if _server:
        raise RuntimeError("this component was built without ids: name sequence_text in plugin.py")
    return str(of)


def remember(text):
    """A test's stand-in for a text the server has met."""
    from . import key_of
    key = key_of(text)
    _texts[key] = text
    return key
