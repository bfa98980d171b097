"""A dict that notes which of its keys a program looks at: how a library's silence about a key is heard."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping
from typing import Any


class Reads(dict[str, Any]):
    """A mapping whose look-ups are noted, those of keys that it does not hold included.

    `seen`: key to the default that the reader would have taken, None without one. `opened`: the reader took
    the mapping as a whole, so that it may know any key of it.
    """

    def __init__(self, content: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__({key: _wrapped(value) for key, value in dict(content).items()})
        self.seen: dict[str, Any] = {}
        self.opened = False

    def __getitem__(self, key: str) -> Any:
        self.seen.setdefault(key, None)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.setdefault(str(key), None)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Look a key up as a dict does."""
        if self.seen.get(key) is None:
            self.seen[key] = default
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self.opened = True
        return super().__iter__()

    def keys(self) -> KeysView[str]:
        """Return a view; `key in view` is noted as one look-up."""
        return KeysView(self)

    def items(self) -> ItemsView[str, Any]:
        """Return a view of everything."""
        self.opened = True
        return super().items()

    def __copy__(self) -> Reads:
        self.opened = True
        return self

    def unread(self, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """Yield the path of each key that nobody looked at, outermost first."""
        for key, value in super().items():
            if key not in self.seen and not self.opened:
                yield (*at, key)
            elif isinstance(value, Reads) and not value.opened:
                yield from value.unread((*at, key))


def _wrapped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value if isinstance(value, Reads) else Reads(value)
    return [_wrapped(item) for item in value] if isinstance(value, list) else value
