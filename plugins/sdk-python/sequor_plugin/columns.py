"""The candidates."""


NAMES = (
    "sequence", "step", "slot", "arrival_us", "ready_us", "deadline_us", "priority", "shape_key", "start_end", "rows", "input_bytes", "state_bytes")
_MISSING = object()


class Ready:
    """The candidates, longest ready first: columns as lists, entry `i` of each is about candidate `i`. A column is there if plugin.toml
    names it: sequence, step, slot, arrival_us, ready_us, deadline_us, priority, shape_key, start_end, rows, input_bytes, state_bytes."""

    def __init__(self, columns, model):
        self._columns, self._model = columns, model

    def __len__(self):
        return self._columns.len

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        column = getattr(self._columns, name, _MISSING)
        if column is _MISSING:
            raise AttributeError(f'there is no column "{name}"; there are {", ".join(NAMES)}')
        if not column and self._columns.len:
            raise LookupError(f'the server was not asked for this column; add "{name.replace("_", "-")}" to `columns` of plugin.toml')
        return column or []

    def indices(self):
        """Every candidate, in the order in which they became ready."""
        return range(len(self))

    def sorted(self, key):
        """Every candidate, sorted by key(i); with equal keys, longest ready first."""
        return sorted(self.indices(), key=key)

    def key(self, feature, i):
        """A key feature of candidate `i`; 0 if the model has none of this name."""
        return self._feature("keys", self._model.keys, feature, i, 0)

    def number(self, feature, i):
        """A numeric feature of candidate `i`; 0 if the model has none of this name."""
        return self._feature("numbers", self._model.numbers, feature, i, 0.0)

    def batch(self, order, round):
        """Of these, in this order, those that one batch can take: of the first one's shape, and no more rows than the round has."""
        rows, shapes = self._columns.rows, self._columns.shape_key
        taken, left, shape = [], round.max_batch, None
        for i in order:
            size, of = rows[i] if rows else 1, shapes[i] if shapes else 0
            shape = of if shape is None else shape
            if of == shape and (size <= left or not taken):
                taken.append(i)
                left -= size
                if left <= 0:
                    break
        return taken

    def _feature(self, column, names, feature, i, missing):
        if feature not in names:
            return missing
        return getattr(self, column)[i * len(names) + names.index(feature)]
