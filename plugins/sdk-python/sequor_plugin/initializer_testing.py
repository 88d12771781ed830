"""Drives a state initializer under an ordinary Python: it stands in for the server, and holds answers against the server's rules."""

import inspect
import json
import pathlib
import tomllib
from types import SimpleNamespace

from . import host
from .initializer import FirstState
from .initializer_glue import InitializerGlue
from .tensors import Files, Tensor


class Bench:
    """An initializer before a server: Bench(Plugin(), ports, keys={"tenant": "gold"}).start({...}). `files` are the bytes of files by name. `keys` and
    `numbers` are the features of all STARTs; an empty text is none, and both may be changed between STARTs.

    It has `reads` and the defaults of the plugin.toml beside the plug-in's file. `manifest` is a text in its place."""

    def __init__(self, plugin, ports, config=None, files=(), keys=(), numbers=(), manifest=None):
        self.glue, self.ports, self.keys, self.numbers = InitializerGlue(plugin), ports, dict(keys), dict(numbers)
        self.manifest = _manifest(plugin) if manifest is None else tomllib.loads(manifest)
        missing = [name for name in self.manifest.get("features", []) if name not in self.keys and name not in self.numbers]
        if missing:
            raise LookupError(f'plugin.toml needs the feature "{missing[0]}": give it in keys or numbers')
        for name in self.manifest.get("reads", []):
            ports.request_input(name)
        self.model = SimpleNamespace(
            name="model", version=1, strategy="oldest", max_batch=8, instances=1, slots=64, keys=list(self.keys), numbers=list(self.numbers))
        defaults = {name: of["default"] for name, of in self.manifest.get("config", {}).items() if "default" in of}
        files = Files({name: Tensor("UINT8", [len(content)], content) for name, content in dict(files).items()})
        self.glue.configure(json.dumps(defaults | (config or {})), self.model, ports, files)
        self.starts = 0

    def start(self, inputs=()):
        """A START with these inputs: the FirstState of its sequence. An answer that breaks a rule of the server raises ValueError."""
        kind, value = self.glue.initialize(self._facts(), self._seen(inputs))
        if kind == "states":
            value = self._named(self.ports.states, value)
        if kind == "kept" and len(value.encode()) > 256:
            raise ValueError(f"a name of {len(value.encode())} bytes; the maximum is 256")
        return FirstState(kind, value)

    def steps(self, name, inputs=()):
        """The steps of a name, a dict of tensors each, as the server asks for them after a START with these inputs."""
        steps = [self._named(self.ports.step, step) for step in self.glue.steps(name, self._facts(), self._seen(inputs))]
        if not 1 <= len(steps) <= 4096:
            raise ValueError(f"{len(steps)} steps; there may be 1 to 4096")
        for step in steps:
            missing = [port.name for port in self.ports.step if not port.optional and port.name not in step]
            if missing:
                raise ValueError(f"a step is without {', '.join(missing)}")
        return steps

    def _facts(self):
        self.starts += 1
        return {
            "sequence": self.starts, "step": 1, "start": True, "end": False, "numbers": list(self.numbers.values()),
            "keys": [host.remember(text) if text else 0 for text in self.keys.values()], "wanted": [],
        }

    def _seen(self, inputs):
        places, seen = {port.name: at for at, port in enumerate(self.ports.request)}, []
        for name, tensor in dict(inputs).items():
            self.ports.request[places[name]].check(tensor)
            if name in self.manifest.get("reads", []):
                seen.append((places[name], tensor))
        return seen

    def _named(self, ports, values):
        for port, tensor in values:
            ports[port].check(tensor)
        return {ports[port].name: tensor for port, tensor in values}


def _manifest(plugin):
    """The plugin.toml beside the file of the plug-in's class; without one the plug-in sees no inputs."""
    try:
        file = pathlib.Path(inspect.getfile(type(plugin))).with_name("plugin.toml")
    except (OSError, TypeError):
        return {}
    return tomllib.loads(file.read_text()) if file.exists() else {}
