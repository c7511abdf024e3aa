"""An MJoin, one update at a time: relations that change, of any acyclic or cyclic graph of equalities, with an index for each attribute
and drop probing by logical filters.

An update of a relation is a row that is inserted or deleted; its results are insertions or deletions of combinations with one row of
every other relation. First it is tested whether it has any: the *logical filter* of another relation is that a chain of rows joins the
update along the only path to that relation in a spanning tree. The first filter that fails drops it. Then combinations are made by what
the filters have looked up: no look-up is made twice for one update. Equalities outside of the spanning tree are tested on combinations.
Headrace joins all new rows of a side at once by one key (`operators/joins/probing/two_phases.py`), and trees of such joins where there are
several.
Sources: Viglas, Naughton, Burger (2003); Babu (2005), sections 5.1 and 5.2; SteMs with an index for each attribute: PSoup (2002), section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

Row: TypeAlias = tuple[int, ...]
"""The values of a row's attributes."""
End: TypeAlias = tuple[int, int]
"""A relation and the number of an attribute."""
Equality: TypeAlias = tuple[End, End]
Combination: TypeAlias = tuple[int, ...]
"""For each relation the id of a row."""


@dataclass(slots=True)
class Stem:
    """The rows of one relation by id, with an index for each attribute of an equality."""

    attributes: tuple[int, ...]
    rows: dict[int, Row] = field(default_factory=dict)
    indexes: dict[int, dict[int, dict[int, None]]] = field(init=False)
    """Attribute → value → ids."""

    def __post_init__(self) -> None:
        self.indexes = {attribute: {} for attribute in self.attributes}

    def insert(self, row_id: int, row: Row) -> None:
        """Store a row."""
        self.rows[row_id] = row
        for attribute, index in self.indexes.items():
            index.setdefault(row[attribute], {})[row_id] = None

    def delete(self, row_id: int) -> None:
        """Remove a row, and the values that no row has any more."""
        row = self.rows.pop(row_id)
        for attribute, index in self.indexes.items():
            ids = index[row[attribute]]
            del ids[row_id]
            if not ids:
                del index[row[attribute]]

    def expire(self, before: int) -> None:
        """Remove the rows with an id, which is their time, before an instant."""
        for row_id in [row_id for row_id in self.rows if row_id < before]:
            self.delete(row_id)

    def probe(self, attribute: int, value: int) -> Sequence[int]:
        """The ids of rows with a value."""
        return tuple(self.indexes[attribute].get(value, ()))


@dataclass(slots=True)
class MJoin:
    """The join of some relations by equalities; `probes` counts look-ups in an index, `dropped` updates without results.

    `orders`: by relation the others, in the order in which the logical filters of its updates are tested; it may change at any time.
    """

    relations: int
    equalities: Sequence[Equality]
    orders: dict[int, Sequence[int]] = field(default_factory=dict)
    probes: int = 0
    dropped: int = 0
    stems: list[Stem] = field(init=False)
    tree: dict[int, dict[int, tuple[int, int]]] = field(init=False)
    """The spanning tree: relation → neighbour → the attributes of both that are equal."""

    def __post_init__(self) -> None:
        ends = {end for equality in self.equalities for end in equality}
        self.stems = [
            Stem(tuple(sorted(attribute for owner, attribute in ends if owner == relation)))
            for relation in range(self.relations)
        ]
        self.tree, connected = {relation: {} for relation in range(self.relations)}, {0}
        while len(connected) < self.relations:
            for one, other in [*self.equalities, *((b, a) for a, b in self.equalities)]:
                if one[0] in connected and other[0] not in connected:
                    self.tree[one[0]][other[0]] = one[1], other[1]
                    self.tree[other[0]][one[0]] = other[1], one[1]
                    connected.add(other[0])
                    break
            else:
                raise ValueError("a relation without an equality would need a Cartesian product")

    def path(self, root: int, relation: int) -> list[int]:
        """The relations on the way from an updated one to another, which is the last."""
        ways = [[root]]
        for way in ways:  # grows meanwhile
            if way[-1] == relation:
                return way[1:]
            ways += [[*way, neighbour] for neighbour in self.tree[way[-1]] if neighbour not in way]
        raise AssertionError("a spanning tree has a path between any two")

    def operators(self, root: int, filters: Sequence[int]) -> list[int]:
        """The order of joins by an order of logical filters: those on the path of each that have not been before."""
        return list(dict.fromkeys(step for relation in filters for step in self.path(root, relation)))

    def update(self, relation: int, row_id: int, row: Row, *, inserted: bool) -> list[Combination]:
        """The combinations that an insertion adds, or a deletion removes; then the row is stored, or removed."""
        if not inserted:
            self.stems[relation].delete(row_id)
        others = [other for other in range(self.relations) if other != relation]
        looked_up = dict[tuple[int, int, int], Sequence[int]]()
        combinations = list[Combination]()
        filters = self.orders.get(relation, others)
        if all(self._joins(row, relation, self.path(relation, other), looked_up) for other in filters):
            made = self._below(relation, row_id, row, None, looked_up)
            combinations = [
                tuple(ids[other] for other in range(self.relations))
                for ids in made
                if self._holds({**ids}, relation, row)
            ]
        else:
            self.dropped += 1
        if inserted:
            self.stems[relation].insert(row_id, row)
        return combinations

    def _partners(
        self, row: Row, relation: int, other: int, looked_up: dict[tuple[int, int, int], Sequence[int]]
    ) -> Sequence[int]:
        """The rows of a neighbour that join a row, looked up once for each value."""
        own, attribute = self.tree[relation][other]
        key = other, attribute, row[own]
        if key not in looked_up:
            self.probes += 1
            looked_up[key] = self.stems[other].probe(attribute, row[own])
        return looked_up[key]

    def _joins(
        self,
        row: Row,
        relation: int,
        path: Sequence[int],
        looked_up: dict[tuple[int, int, int], Sequence[int]],
    ) -> bool:
        """A logical filter: whether some rows join a row along a path."""
        if not path:
            return True
        other, *rest = path
        partners = self._partners(row, relation, other, looked_up)
        return any(self._joins(self.stems[other].rows[id_], other, rest, looked_up) for id_ in partners)

    def _below(
        self,
        relation: int,
        row_id: int,
        row: Row,
        parent: int | None,
        looked_up: dict[tuple[int, int, int], Sequence[int]],
    ) -> Iterator[Mapping[int, int]]:
        """A row with rows of all relations that are reached from it, but not by its parent."""
        branches = [
            [
                below
                for id_ in self._partners(row, relation, other, looked_up)
                for below in self._below(other, id_, self.stems[other].rows[id_], relation, looked_up)
            ]
            for other in self.tree[relation]
            if other != parent
        ]
        for combined in product(*branches):
            yield {relation: row_id, **{key: value for below in combined for key, value in below.items()}}

    def _holds(self, ids: Mapping[int, int], relation: int, row: Row) -> bool:
        """Whether all equalities hold, also those outside of the spanning tree."""

        def value(end: End) -> int:
            return (row if end[0] == relation else self.stems[end[0]].rows[ids[end[0]]])[end[1]]

        return all(value(one) == value(other) for one, other in self.equalities)
