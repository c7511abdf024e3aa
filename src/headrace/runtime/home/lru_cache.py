"""A bounded cache of the values used last, shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """Values of at most `limit` by their `size`, which is 1 for each unless it is given; the one that was not read for the longest time is evicted first."""

    def __init__(self, limit: int, size: Callable[[_Value], int] = lambda _: 1) -> None:
        self._limit, self._size = limit, size
        self._total = 0
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        """The value, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        """Store a value."""
        with self._lock:
            self._remove(key)
            self._values[key] = value
            self._total += self._size(value)
            while self._total > self._limit:
                self._remove(next(iter(self._values)))

    def present(self) -> list[_Key]:
        """The keys of all values."""
        with self._lock:
            return list(self._values)

    def drop(self, keys: Iterable[_Key]) -> None:
        """Remove the values of some keys."""
        with self._lock:
            for key in keys:
                self._remove(key)

    def clear(self) -> None:
        """Remove all values, as in a new worker."""
        with self._lock:
            self._values.clear()
            self._total = 0

    def _remove(self, key: _Key) -> None:
        if key in self._values:
            self._total -= self._size(self._values.pop(key))
