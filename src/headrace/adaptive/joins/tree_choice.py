"""The choice between trees of joins while they run: what each join of the tree in force keeps, and the tree whose inner joins would make
fewest rows.

Each key is joined by one join of any tree, so the tree in force shows of every key what part of the combinations has it. That the joins are
independent is an assumption: where a tree does not keep what was believed of it, the next change has to save more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from headrace.adaptive.joins.join_trees import Rows, Stage, Tree, TreeGraph, inner_rows, possible
from headrace.dataclass import dataclass

DECAY: Final = 0.5
"""The weight of what was observed before an epoch, to that of the epoch."""
INTERVAL: Final = 2
"""Epochs with rows between two comparisons of all trees."""
LEAST: Final = 1000
"""Rows of the sources after which the tree in force is known."""
MARGIN: Final = 0.25
"""A new tree costs the rows of its joins for one window before it is in force: it has to cost so much less."""
MOST_CAUTION: Final = 8.0
INNER: Final = 2.0
"""The cost of a row between two joins, which is made, stored and joined, to that of a row of a source."""


@dataclass(slots=True)
class TreeChoice:
    """The choice for one query. `tree` is in force; figures of trees are rows of inner joins by 1000 rows of the sources."""

    graph: TreeGraph
    tree: Tree
    caution: float = 1.0
    believed: float | None = None
    """What was believed of the tree in force, until it was measured."""
    _rows: dict[int, Rows] = field(default_factory=dict)
    _kept: dict[frozenset[int], tuple[float, float]] = field(default_factory=dict)
    """By key the combinations that its join made, and that were possible."""
    _made: float = 0.0
    _of_sources: float = 0.0
    _seen: float = 0.0
    _epochs: int = 0

    def take(self, stages: Sequence[Stage]) -> None:
        """Take in an epoch of the tree in force, innermost join first."""
        new = dict[int, Rows]()
        for sources, stage in zip(self.tree, stages, strict=True):
            new |= dict(zip(sources, stage.sides[-len(sources) :], strict=True))
        for key, stage in zip(self.graph.keys_of(self.tree), stages, strict=True):
            made, could = self._kept.get(key, (0.0, 0.0))
            self._kept[key] = made * DECAY + stage.made, could * DECAY + possible(stage.sides)
        for source, rows in new.items():
            before = self._rows.get(source, rows)
            self._rows[source] = Rows(rows.stored, before.new * DECAY + rows.new * (1 - DECAY))
        of_sources = sum(rows.new for rows in new.values())
        self._made = self._made * DECAY + sum(stage.made for stage in stages[:-1])
        self._of_sources = self._of_sources * DECAY + of_sources
        self._seen += of_sources
        self._epochs += 1

    @property
    def is_known(self) -> bool:
        """Whether enough was observed of the tree in force to compare it with others."""
        return self._seen >= LEAST and len(self._kept) == len(self.graph.keys) and self._of_sources > 0

    @property
    def measured(self) -> float:
        """What the tree in force makes."""
        return 1000 * self._made / self._of_sources

    def expected(self, tree: Tree) -> float:
        """What a tree would make."""
        kept = {key: made / could if could else 0.0 for key, (made, could) in self._kept.items()}
        new = sum(rows.new for rows in self._rows.values())
        return 1000 * inner_rows(self.graph, tree, self._rows, kept) / new if new else 0.0

    def better(self) -> Tree | None:
        """Another tree, if one costs so much less that it is worth its rows until it is in force."""
        if not self.is_known or self._epochs % INTERVAL:
            return None
        self._judge()
        best = min(self.graph.trees(), key=self.expected)
        saves = _cost(self.expected(best)) * (1 + MARGIN * self.caution) < _cost(self.measured)
        return best if best != self.tree and saves else None

    def still_better(self, tree: Tree) -> bool:
        """Whether a tree that grows is still worth it."""
        return not self.is_known or _cost(self.expected(tree)) < _cost(self.measured)

    def put_in_force(self, tree: Tree, believed: float) -> None:
        """Follow another tree, of which this is believed."""
        self.tree, self.believed = tree, believed
        self._made = self._of_sources = self._seen = 0.0
        self._epochs = 0

    def _judge(self) -> None:
        """Compare what was believed of the tree in force with what it makes."""
        if self.believed is None:
            return
        kept_promise = _cost(self.measured) <= _cost(self.believed) * (1 + MARGIN)
        self.caution = max(1.0, self.caution / 2) if kept_promise else min(MOST_CAUTION, self.caution * 2)
        self.believed = None


def _cost(inner: float) -> float:
    return 1000 + INNER * inner
