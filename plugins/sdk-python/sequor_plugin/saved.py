"""States that a plug-in saves, as JSON."""

import json


def saved(state):
    """Makes the bytes for `save` of a value. Keys of dicts come back as texts."""
    return json.dumps(state, separators=(",", ":")).encode()


def restored(saved):
    """Reads what `saved` made."""
    return json.loads(saved)
