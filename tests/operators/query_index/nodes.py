"""The predicate index of the paper, row by row: a node for each constant, five arrays of queries in each, counting AND.

Source: PSoup, sections on the Query SteM and its index (Figure 6). A node's arrays name the queries with that constant under
`<`, `<=`, `=`, `>=` and `>`. Three things the text leaves out are needed, and can be left out here to see what they are for:
`per_relation`: unsatisfied factors are counted by relation, since a row of one satisfies factors on that one only;
`without_factors`: a query without factors on a relation selects all of its rows;
`fresh`: counting restarts for each row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

OPERATORS = ("<", "<=", "=", ">=", ">")
Factor = tuple[str, str, str, int]
"""Relation, attribute, operator, constant."""


@dataclass
class Tree:
    """The nodes of one attribute, by constant."""

    constants: list[int] = field(default_factory=list)
    arrays: dict[int, dict[str, list[int]]] = field(default_factory=dict)

    def put(self, operator: str, constant: int, query: int) -> None:
        if constant not in self.arrays:
            self.constants.insert(bisect_left(self.constants, constant), constant)
            self.arrays[constant] = {each: [] for each in OPERATORS}
        self.arrays[constant][operator].append(query)

    def take(self, operator: str, constant: int, query: int) -> None:
        self.arrays[constant][operator].remove(query)
        if not any(self.arrays[constant].values()):
            del self.arrays[constant]
            self.constants.remove(constant)


@dataclass
class NodeIndex:
    """Queries by number, each a set of factors, of one or several relations.

    `visited` counts nodes, `counted` factors found satisfied.
    """

    per_relation: bool = True
    without_factors: bool = True
    fresh: bool = True
    trees: dict[tuple[str, str], Tree] = field(default_factory=dict)
    factors: dict[int, tuple[Factor, ...]] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    visited: int = 0
    counted: int = 0

    def register(self, query: int, *factors: Factor) -> None:
        """A conjunction; each distinct factor is one."""
        self.factors[query] = tuple(dict.fromkeys(factors))
        for relation, attribute, operator, constant in self.factors[query]:
            self.trees.setdefault((relation, attribute), Tree()).put(operator, constant, query)

    def drop(self, query: int) -> None:
        """Its numbers leave the arrays; nodes and trees that are empty go."""
        for relation, attribute, operator, constant in self.factors.pop(query):
            tree = self.trees[relation, attribute]
            tree.take(operator, constant, query)
            if not tree.constants:
                del self.trees[relation, attribute]
        self.left.pop(query, None)

    def wanted(self, relation: str, row: dict[str, int | None]) -> set[int]:
        """The queries none of whose factors on the relation the row fails."""
        needed = {query: self._needed(query, relation) for query in self.factors}
        left = dict(needed) if self.fresh or not self.left else {**needed, **self.left}
        touched: set[int] = set()
        for (of, attribute), tree in self.trees.items():
            value = row.get(attribute)
            if of != relation or value is None:
                continue
            for operator, constant in self._satisfied(tree, value):
                for query in tree.arrays[constant][operator]:
                    self.counted += 1
                    left[query] -= 1
                    touched.add(query)
        self.left = left
        asked = set(self.factors) if self.without_factors else touched
        return {query for query in asked if left[query] == 0}

    def _needed(self, query: int, relation: str) -> int:
        factors = self.factors[query]
        return sum(factor[0] == relation for factor in factors) if self.per_relation else len(factors)

    def _satisfied(self, tree: Tree, value: int) -> list[tuple[str, int]]:
        """The operator and constant of each array whose queries the value satisfies."""
        below, above = bisect_left(tree.constants, value), bisect_right(tree.constants, value)
        self.visited += len(tree.constants)
        same = [(operator, value) for operator in ("<=", "=", ">=") if below < above]
        greater = [(operator, constant) for constant in tree.constants[above:] for operator in ("<", "<=")]
        return [
            *same,
            *greater,
            *((operator, constant) for constant in tree.constants[:below] for operator in (">=", ">")),
        ]
