"""Trees of joins over sources that share no common key, and what their inner joins make, by how many rows of each source are stored and
how many of the possible combinations each join keeps.

All sources of one key are joined at once, so a tree is an order of the keys in which each but the first connects new sources with
those before. A star with a key for each arm has an order of its arms; a chain begins anywhere and grows to both sides.
Sources: trees of MJoins (Babu 2005, chapter 5); for independent joins the size of a part is that of all combinations, times the share that
each of its joins keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.time import Duration

Tree: TypeAlias = tuple[tuple[int, ...], ...]
"""The sources that each join adds, innermost first."""
MOST: Final = 120
"""Trees that are compared: all of a star of five arms."""


@dataclass(frozen=True, slots=True)
class TreeGraph:
    """Sources, the sets of them that share a key, the tree of the registration, and the longest time for which a row is joined."""

    names: tuple[str, ...]
    keys: tuple[frozenset[int], ...]
    registered: Tree
    longest: Duration

    def trees(self) -> Iterator[Tree]:
        """All trees without combinations of sources that share no key; at most `MOST`."""
        return islice(self._grown(frozenset(), ()), MOST)

    def _grown(self, joined: frozenset[int], tree: Tree) -> Iterator[Tree]:
        if len(joined) == len(self.names):
            yield tree
        for key in self.keys:
            if key - joined and (not joined or key & joined):
                yield from self._grown(joined | key, (*tree, tuple(sorted(key - joined))))

    def keys_of(self, tree: Tree) -> list[frozenset[int]]:
        """The key of each join of a tree."""
        joined, keys = frozenset[int](), list[frozenset[int]]()
        for sources in tree:
            keys.append(
                next(key for key in self.keys if key >= set(sources) and (not joined or key & joined))
            )
            joined |= keys[-1]
        return keys

    def shown(self, tree: Tree) -> str:
        """`f, z, then y, then x`."""
        return ", then ".join(", ".join(self.names[source] for source in sources) for sources in tree)


def is_tree(count: int, keys: Sequence[frozenset[int]]) -> bool:
    """Whether sets of sources connect all of them, with one way between any two."""
    if not keys or sum(len(key) - 1 for key in keys) != count - 1:
        return False
    joined, waiting = set(keys[0]), list(keys[1:])
    while touching := next((key for key in waiting if key & joined), None):
        joined |= touching
        waiting.remove(touching)
    return not waiting and len(joined) == count


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source, or of combinations, that an epoch adds to those stored."""

    stored: float
    new: float


@dataclass(frozen=True, slots=True)
class Stage:
    """What one join of a tree did in an epoch: the rows of each side, combinations first where it has them, and the rows that it made."""

    sides: tuple[Rows, ...]
    made: float


def possible(sides: Sequence[Rows]) -> float:
    """The combinations of the sides that have a new row."""
    return prod(side.stored + side.new for side in sides) - prod(side.stored for side in sides)


def inner_rows(
    graph: TreeGraph, tree: Tree, rows: Mapping[int, Rows], kept: Mapping[frozenset[int], float]
) -> float:
    """The rows that all joins of a tree but the last make in an epoch; `kept` is by key the share of combinations that its join keeps."""
    joined, share, total = list[int](), 1.0, 0.0
    for sources, key in zip(tree[:-1], graph.keys_of(tree)[:-1], strict=True):
        joined += sources
        share *= kept[key]
        total += share * possible([rows[source] for source in joined])
    return total
