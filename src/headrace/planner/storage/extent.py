"""`Extent`: how large a set of rows becomes as a stream continues, and what limits it."""

from __future__ import annotations

from typing import Final, Literal

from headrace.dataclass import dataclass

Growth = Literal["nothing", "fixed", "window", "values", "stream"]
"""`fixed`: a number that the query states. `window`: the rows of a time, at any one rate. `values`: the different values of
columns. `stream`: without a limit."""

_ORDER: Final[tuple[Growth, ...]] = ("nothing", "fixed", "window", "values", "stream")


@dataclass(frozen=True, slots=True)
class Extent:
    """How a set of rows grows, and what it consists of, in words."""

    growth: Growth
    words: tuple[str, ...] = ()

    def plus(self, other: Extent) -> Extent:
        """Both sets."""
        return Extent(_greater(self.growth, other.growth), tuple(dict.fromkeys(self.words + other.words)))

    def at_most(self, other: Extent) -> Extent:
        """The set, where the other one limits it too: the one of slower growth."""
        return self if _ORDER.index(self.growth) <= _ORDER.index(other.growth) else other

    def __str__(self) -> str:
        return " and ".join(self.words) or "nothing"


NOTHING: Final = Extent("nothing")


def _greater(one: Growth, other: Growth) -> Growth:
    return max(one, other, key=_ORDER.index)
