"""Tensors: small ones as bytes, large ones as handles of what the server keeps."""

import struct
from array import array

CODES = {
    "BOOL": 1, "UINT8": 2, "UINT16": 3, "UINT32": 4, "UINT64": 5, "INT8": 6, "INT16": 7, "INT32": 8, "INT64": 9, "FP16": 10, "FP32": 11,
    "FP64": 12, "BYTES": 13, "BF16": 14,
}
NAMES = {code: name for name, code in CODES.items()}
FORMATS = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f",
    "FP64": "d",
}
"""Letters of `array` and `memoryview` for the elements of each type. FP16 and BF16 have none: read `floats` or their bytes."""


class Tensor:
    """A tensor: Tensor("FP32", [1, 3], [0.5, 1, 2]). `values` may be an array, a memoryview, bytes, or any numbers; of type BYTES, texts or bytes.

    The server passes a tensor of up to `by-value` bytes (plugin.toml) as bytes and a larger one as a handle. `bytes` and `values` copy a handle's
    bytes into the plug-in; `read` and `part` do not need all of them. To pass a tensor on copies nothing."""

    def __init__(self, dtype, shape, values=b""):
        self.dtype, self.shape, self.handle = dtype, list(shape), None
        self._bytes = _encoded(dtype, values)
        self._check()

    @classmethod
    def held(cls, handle):
        """A tensor that the server keeps."""
        self = cls.__new__(cls)
        self.dtype, self.shape, self.handle, self._bytes = NAMES.get(handle.dtype(), "?"), list(handle.shape()), handle, None
        return self

    @property
    def bytes(self):
        """All bytes. Those of a handle are copied."""
        return self.handle.read(0, self.handle.size()) if self._bytes is None else self._bytes

    @property
    def size(self):
        """The number of bytes."""
        return self.handle.size() if self._bytes is None else len(self._bytes)

    @property
    def values(self):
        """The elements as a memoryview, without a copy; of type BYTES, a list of bytes."""
        if self.dtype == "BYTES":
            return list(_elements(self.bytes))
        return memoryview(self.bytes).cast(FORMATS[self.dtype])

    @property
    def floats(self):
        """The elements of type FP32, FP16 or BF16 as numbers."""
        if self.dtype == "FP16":
            return [value for (value,) in struct.iter_unpack("<e", self.bytes)]
        if self.dtype == "BF16":
            return memoryview(b"".join(b"\0\0" + self.bytes[at:at + 2] for at in range(0, self.size, 2))).cast("f")
        if self.dtype != "FP32":
            raise ValueError(f"a tensor is {self.dtype}; floats are FP32, FP16 or BF16")
        return self.values

    @property
    def texts(self):
        """The elements of type BYTES as texts."""
        return [element.decode() for element in _elements(self.bytes)]

    def read(self, at, length):
        """`length` bytes that begin at byte `at`."""
        return self.handle.read(at, length) if self._bytes is None else self._bytes[at:at + length]

    def part(self, at, length, shape):
        """A tensor of the same type with another shape, made of the `length` bytes that begin at byte `at`. Nothing of a handle is copied."""
        return Tensor(self.dtype, shape, self._bytes[at:at + length]) if self._bytes is not None else Tensor.held(self.handle.part(at, length, list(shape)))

    def cast(self, dtype, shape):
        """The same bytes with another type and another shape: of a part of a file, for example. Nothing of a handle is copied."""
        return Tensor(dtype, shape, self._bytes) if self._bytes is not None else Tensor.held(self.handle.cast(CODES[dtype], list(shape)))

    def _check(self):
        size, elements = array(FORMATS[self.dtype]).itemsize if self.dtype in FORMATS and self.dtype != "BOOL" else 1, 1
        for dim in self.shape:
            elements *= dim
        if self.dtype in FORMATS and elements * size != len(self._bytes):
            raise ValueError(f"{len(self._bytes)} bytes do not fill {self.shape} of {self.dtype}")

    def __eq__(self, other):
        return (self.dtype, self.shape, self.bytes) == (other.dtype, other.shape, other.bytes)

    def __repr__(self):
        return f"Tensor({self.dtype}, {self.shape})"


def _encoded(dtype, values):
    if dtype not in CODES:
        raise ValueError(f"there is no type {dtype}; there are {', '.join(CODES)}")
    if isinstance(values, (bytes, bytearray)):
        return bytes(values)
    if isinstance(values, (array, memoryview)):
        return values.tobytes()
    if dtype == "BYTES":
        encoded = [value.encode() if isinstance(value, str) else bytes(value) for value in values]
        return b"".join(len(value).to_bytes(4, "little") + value for value in encoded)
    if dtype == "BOOL":
        return bytes(map(bool, values))
    return array(FORMATS[dtype], values).tobytes()


def _elements(raw):
    at = 0
    while at < len(raw):
        length = int.from_bytes(raw[at:at + 4], "little")
        yield raw[at + 4:at + 4 + length]
        at += 4 + length


class Port:
    """An input or an output. `shape` is whole; -1 leaves a dimension open."""

    def __init__(self, name, dtype, shape, optional=False):
        self.name, self.dtype, self.shape, self.optional = name, dtype, list(shape), optional

    def check(self, tensor):
        """A tensor that does not fit is a ValueError."""
        if tensor.dtype != self.dtype:
            raise ValueError(f'"{self.name}" is {self.dtype}, not {tensor.dtype}')
        if len(tensor.shape) != len(self.shape) or any(want not in (-1, dim) for want, dim in zip(self.shape, tensor.shape)):
            raise ValueError(f'"{self.name}" is {self.shape}, not {tensor.shape}')


class Signature:
    """The inputs and outputs of a model or a processor."""

    def __init__(self, inputs=(), outputs=()):
        self.inputs, self.outputs = list(inputs), list(outputs)

    def input(self, name):
        """The input of this name, or a LookupError that names those that there are."""
        return find(self.inputs, name, "input")

    def output(self, name):
        """The output of this name, or a LookupError that names those that there are."""
        return find(self.outputs, name, "output")

    def add_input(self, name, dtype, shape, optional=False):
        """The same with one more input."""
        return Signature([*self.inputs, Port(name, dtype, shape, optional)], self.outputs)

    def add_output(self, name, dtype, shape):
        """The same with one more output."""
        return Signature(self.inputs, [*self.outputs, Port(name, dtype, shape)])

    def hide(self, *names):
        """The same without the inputs and outputs of these names."""
        return Signature([p for p in self.inputs if p.name not in names], [p for p in self.outputs if p.name not in names])


def find(ports, name, what):
    """The port of this name, or a LookupError that names those that there are."""
    for port in ports:
        if port.name == name:
            return port
    raise LookupError(f'the model has no {what} "{name}"; it has {", ".join(port.name for port in ports)}')


class TokenTable:
    """Tokens of a speech model by their numbers. A line of the text is `token number`, or a token, counted from 0."""

    def __init__(self, text):
        self.tokens = {}
        for at, line in enumerate(text.splitlines()):
            token, _, number = line.rpartition(" ")
            if line:
                self.tokens[int(number) if token else at] = token or line

    def text(self, tokens):
        """The tokens in words: a word begins with the mark U+2581. A token that is not in the table says nothing."""
        return "".join(self.tokens.get(token, "") for token in tokens).replace("\u2581", " ")


class Files:
    """The files that sequor.toml names for this plug-in."""

    def __init__(self, files):
        self._files = dict(files)

    def bytes(self, name):
        if name not in self._files:
            names = ", ".join(self._files) or "none"
            raise LookupError(f'there is no file "{name}"; `files` in sequor.toml names {names}')
        return self._files[name].bytes

    def text(self, name):
        return self.bytes(name).decode()

    def lines(self, name):
        return self.text(name).splitlines()

    def names(self):
        return list(self._files)
