"""Values made once for the same objects, such as the layout of a table: every epoch needs them several times, and to
compare or to hash what they are made of costs more than a look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_Made = TypeVar("_Made")


class MadeOnce(Generic[_Made]):
    """Values by the identity of immutable objects, which stay alive with them; the cache is emptied when there are `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[tuple[int, ...], tuple[tuple[object, ...], _Made]] = {}

    def of(self, objects: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        """The value of these objects, made by `make` if it is not there."""
        key = tuple(map(id, objects))
        known = self._made.get(key)
        if known is None:
            if len(self._made) >= self._most:
                self._made.clear()
            known = self._made[key] = objects, make()
        return known[1]
