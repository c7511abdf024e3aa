"""PSoup's Query SteM as the paper describes it, slow and readable: five arrays a node, and the counting AND (section 3.1).

One for all queries, whatever their FROM lists. What an implementer has to add to the text: counters of factors *per relation* (the
total never reaches zero for a query over two), queries without a factor on the relation, and removal. `counts="total"` is
the printed version, for a test that it fails.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

RELOPS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}


@dataclass(frozen=True)
class Factor:
    """`relation.attribute op constant`, or with `other`, a column of the same relation, `… op other + constant`."""

    relation: str
    attribute: str
    op: str
    constant: int
    other: str | None = None


@dataclass
class _Tree:
    """The constants of one attribute in order, each with the queries of its five operators."""

    constants: list[int] = field(default_factory=list)
    nodes: dict[int, dict[str, list[int]]] = field(default_factory=dict)

    def add(self, factor: Factor, query: int) -> None:
        if factor.constant not in self.nodes:
            insort(self.constants, factor.constant)
            self.nodes[factor.constant] = {op: [] for op in RELOPS}
        self.nodes[factor.constant][factor.op].append(query)

    def remove(self, factor: Factor, query: int) -> None:
        arrays = self.nodes[factor.constant]
        arrays[factor.op].remove(query)
        if not any(arrays.values()):
            del self.nodes[factor.constant]
            self.constants.remove(factor.constant)


@dataclass
class QueryStem:
    """All standing queries; `visits` counts nodes looked at, `decrements` satisfied factors."""

    counts: Literal["per relation", "total"] = "per relation"
    visits: int = 0
    decrements: int = 0
    _factors: dict[int, tuple[Factor, ...]] = field(default_factory=dict)
    _from: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _trees: dict[tuple[str, str], _Tree] = field(default_factory=lambda: defaultdict(_Tree))
    _listed: dict[str, list[tuple[Factor, int]]] = field(default_factory=lambda: defaultdict(list))

    def insert(self, query: int, relations: Sequence[str], factors: Sequence[Factor]) -> None:
        """A query; the same factor written twice counts once."""
        self._from[query], self._factors[query] = tuple(relations), tuple(dict.fromkeys(factors))
        for factor in self._factors[query]:
            if factor.other is not None:
                self._listed[factor.relation].append((factor, query))
            else:
                self._trees[factor.relation, factor.attribute].add(factor, query)

    def remove(self, query: int) -> None:
        """Without it; nodes that nobody needs go."""
        for factor in self._factors.pop(query):
            if factor.other is not None:
                self._listed[factor.relation].remove((factor, query))
            else:
                self._trees[factor.relation, factor.attribute].remove(factor, query)
        del self._from[query]

    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(len(tree.constants) for tree in self._trees.values())

    def probe(self, relation: str, row: Mapping[str, int | None]) -> set[int]:
        """Queries that read the relation and none of whose factors on it alone the row fails."""
        cells = {query: self._needed(query, relation) for query, of in self._from.items() if relation in of}
        for attribute, value in row.items():
            if value is not None and (relation, attribute) in self._trees:
                self._satisfy(self._trees[relation, attribute], value, cells)
        for factor, query in self._listed[relation]:
            left, right = row[factor.attribute], row[factor.other or ""]
            if left is not None and right is not None and RELOPS[factor.op](left, right + factor.constant):
                self._decrement(query, cells)
        return {query for query, left in cells.items() if left == 0}

    def _needed(self, query: int, relation: str) -> int:
        mine = [each for each in self._factors[query] if self.counts == "total" or each.relation == relation]
        return len(mine)

    def _satisfy(self, tree: _Tree, value: int, cells: dict[int, int]) -> None:
        place = bisect_left(tree.constants, value)
        equal = place < len(tree.constants) and tree.constants[place] == value
        above = place + equal
        for constants, ops in (
            (tree.constants[:place], (">", ">=")),
            (tree.constants[place:above], ("<=", "=", ">=")),
            (tree.constants[above:], ("<", "<=")),
        ):
            for constant in constants:
                self.visits += 1
                for op in ops:
                    for query in tree.nodes[constant][op]:
                        self._decrement(query, cells)

    def _decrement(self, query: int, cells: dict[int, int]) -> None:
        self.decrements += 1
        cells[query] -= 1
