class Event:
    kind: str
    sequence: int
    amount: int
    @property
    def why(self) -> str | None: ...
    def key(self, feature: str) -> int: ...
