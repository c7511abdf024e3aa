"""A bounded cache of the values used last, shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from math import inf
from typing import Generic, Protocol, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Sized(Protocol):
    """A value that states how much memory it takes."""

    @property
    def nbytes(self) -> int:
        """In bytes."""
        ...


_Measured = TypeVar("_Measured", bound=Sized)


class Recent(Generic[_Key, _Value]):
    """At most `limit` values; the one that was not read for the longest time is evicted first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)

    def present(self) -> list[_Key]:
        """The keys of all values."""
        with self._lock:
            return list(self._values)

    def drop(self, keys: Iterable[_Key]) -> None:
        """Remove the values of some keys."""
        with self._lock:
            for key in keys:
                self._values.pop(key, None)

    def clear(self) -> None:
        """Remove all values, as in a new worker."""
        with self._lock:
            self._values.clear()


class RecentBytes(Generic[_Key, _Measured]):
    """For each of several groups the values used last: at most `limit` of them, with at most as many bytes as the last caller allowed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._groups: dict[str, OrderedDict[_Key, _Measured]] = {}
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def get(self, of: str, key: _Key) -> _Measured | None:
        """The value of a group, or None."""
        with self._lock:
            values = self._groups.get(of, OrderedDict())
            if key in values:
                values.move_to_end(key)
            return values.get(key)

    def put(self, of: str, key: _Key, value: _Measured, most: float = inf) -> None:
        """Store a value, if it fits into `most` bytes alone; the group takes at most these."""
        with self._lock:
            values = self._groups.setdefault(of, OrderedDict())
            self._remove(of, key)
            values[key] = value
            self._held[of] = self._held.get(of, 0) + value.nbytes
            self._shrink(of, most)

    def shrink(self, of: str, most: float) -> int:
        """Evict what a group has above so many bytes; returns the bytes that it holds."""
        with self._lock:
            self._shrink(of, most)
            return self._held.get(of, 0)

    def clear(self) -> None:
        """Remove all values, as in a new process."""
        with self._lock:
            self._groups.clear()
            self._held.clear()

    def _shrink(self, of: str, most: float) -> None:
        values = self._groups.get(of, OrderedDict())
        while values and (len(values) > self._limit or self._held[of] > most):
            self._remove(of, next(iter(values)))

    def _remove(self, of: str, key: _Key) -> None:
        value = self._groups[of].pop(key, None)
        if value is not None:
            self._held[of] -= value.nbytes
