"""Functions of the server. In a test, lines go to standard error, and the texts of keys are those of `remember`."""

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


def metric_add(name, value, labels=None):
    """Adds to a counter of the plug-in. `labels` is a dict."""
    labels = dict(labels or {})
    if _server:
        _server.metric_add(name, [_server.Label(key, str(text)) for key, text in labels.items()], float(value))
    else:
        counter = name + ("{" + ",".join(f'{key}="{text}"' for key, text in labels.items()) + "}" if labels else "")
        counters[counter] = counters.get(counter, 0) + value


def key_text(key):
    """The text whose hash is `key`, if the server knows it."""
    return _server.key_text(key) if _server else _texts.get(key)


def sequence_text(of):
    """The client's id of a live sequence. Only with the grant sequence-text."""
    if _identity:
        return _identity.sequence_text(of)
    if _server:
        raise RuntimeError("this component was built without ids: name sequence_text in plugin.py")
    return str(of)


def remember(text):
    """Makes a text known, as a request does in the server."""
    from . import key_of
    key = key_of(text)
    _texts[key] = text
    return key
