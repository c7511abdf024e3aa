"""A pool of values in memory, which keeps those that save most for their bytes (Aurora's buffer pool, Carney et al. 2002, section 4.2:
the block with the lowest priority is evicted, not the one that was not used for the longest time).

The priority of a value is what it saves, times how often its kind was asked for, by byte; to that is added the priority of the last
value that was evicted, so that values are evicted in the end if they are not read any more (GreedyDual-Size with frequencies).
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import field
from math import inf
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from headrace.dataclass import dataclass

MOST_USES: Final = 8
"""Questions of a kind that count: so often may all other values be replaced until those of the kind are evicted."""
_KINDS: Final = 1024
"""Kinds whose uses are counted, also while none of their values is held."""
_SPARE: Final = 64


class Sized(Protocol):
    """A value that states how much memory it takes."""

    @property
    def nbytes(self) -> int:
        """In bytes."""
        ...


_Key = TypeVar("_Key", bound=Hashable)
_Kind = TypeVar("_Kind", bound=Hashable)
_Value = TypeVar("_Value", bound=Sized)
_Place: TypeAlias = tuple[int, _Key]
"""The number of a kind, and a key."""


@dataclass(slots=True)
class _Held(Generic[_Value]):
    """A value, its bytes when it came, what it saves, and the turn of its last use."""

    value: _Value
    bytes: int
    saves: float
    turn: int


@dataclass(slots=True)
class _Group(Generic[_Kind, _Key, _Value]):
    """The values of a group; `order` has the priority and turn of each use, of which the last one of a value counts."""

    held: dict[_Place[_Key], _Held[_Value]] = field(default_factory=dict)
    order: list[tuple[float, int, _Place[_Key]]] = field(default_factory=list)
    kinds: OrderedDict[_Kind, int] = field(default_factory=OrderedDict)
    """Their numbers."""
    uses: dict[int, int] = field(default_factory=dict)
    asked: int = 0
    bytes: int = 0
    turn: int = 0
    floor: float = 0.0
    """The priority of the last value that was evicted."""

    def ask(self, kind: _Kind) -> int:
        """Count a use of a kind; returns its number."""
        self.asked += 1
        number = self.kinds.setdefault(kind, self.asked)
        self.kinds.move_to_end(kind)
        self.uses[number] = min(MOST_USES, self.uses.get(number, 0) + 1)
        if len(self.kinds) > _KINDS:
            del self.uses[self.kinds.popitem(last=False)[1]]
        return number

    def use(self, place: _Place[_Key]) -> None:
        """Give a value the priority that it has now."""
        one = self.held[place]
        self.turn += 1
        one.turn = self.turn
        priority = self.floor + one.saves * self.uses.get(place[0], 1) / max(1, one.bytes)
        heapq.heappush(self.order, (priority, one.turn, place))
        if len(self.order) > 2 * len(self.held) + _SPARE:
            self.order = [use for use in self.order if self._is_last(use)]
            heapq.heapify(self.order)

    def remove(self, place: _Place[_Key]) -> None:
        """Remove a value, if it is held."""
        one = self.held.pop(place, None)
        self.bytes -= 0 if one is None else one.bytes

    def shrink(self, values: int, most: float) -> None:
        """Evict what is above so many values and bytes."""
        while self.held and (len(self.held) > values or self.bytes > most):
            use = heapq.heappop(self.order)
            if self._is_last(use):
                self.floor = use[0]
                self.remove(use[2])

    def _is_last(self, use: tuple[float, int, _Place[_Key]]) -> bool:
        one = self.held.get(use[2])
        return one is not None and one.turn == use[1]


class PriorityPool(Generic[_Kind, _Key, _Value]):
    """For each of several groups at most `limit` values, with at most as many bytes as the last caller allowed. Shared by threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._groups: dict[str, _Group[_Kind, _Key, _Value]] = {}
        self._lock = threading.Lock()

    def ask(self, of: str, kind: _Kind) -> int:
        """Count that a kind of values of a group is asked for, which raises their priority up to the eighth time.

        Returns the number of the kind, with which its values are stored and found.
        """
        with self._lock:
            return self._groups.setdefault(of, _Group()).ask(kind)

    def get(self, of: str, kind: int, key: _Key) -> _Value | None:
        """The value of a group, which is used now; or None."""
        with self._lock:
            group = self._groups.get(of)
            one = None if group is None else group.held.get((kind, key))
            if group is None or one is None:
                return None
            group.use((kind, key))
            return one.value

    def put(
        self, of: str, kind: int, key: _Key, value: _Value, saves: float = 1.0, most: float = inf
    ) -> None:
        """Store a value that saves so much, such as rows to read, as often as it is read; the group takes at most `most` bytes."""
        with self._lock:
            group = self._groups.setdefault(of, _Group())
            group.remove((kind, key))
            group.held[kind, key] = _Held(value, value.nbytes, saves, 0)
            group.bytes += value.nbytes
            group.use((kind, key))
            group.shrink(self._limit, most)

    def shrink(self, of: str, most: float) -> int:
        """Evict what a group has above so many bytes; returns the bytes that it holds."""
        with self._lock:
            group = self._groups.get(of)
            if group is None:
                return 0
            group.shrink(self._limit, most)
            return group.bytes

    def clear(self) -> None:
        """Remove all values and counts, as in a new process."""
        with self._lock:
            self._groups.clear()
