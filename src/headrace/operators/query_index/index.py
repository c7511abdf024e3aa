"""Query index of one stream: an immutable version, with the compiled conditions of all its standing queries and a slot
for each, from which the next version is made by what is added and dropped.

A change gives a new index and leaves the old version unchanged for its users. New queries are compiled into a side of
their own; a side that outgrows a tenth of the one before it is merged into it, so a registration costs what is new, and
matching visits a few sides. Queries are known by *slots*: small integers for bitmaps, each given once. Where many queries
were dropped `index_cache` makes an index of the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.boxes.box_index import Part, compiled
from headrace.operators.query_index.boxes.by_column import Plan, Words, planned
from headrace.operators.query_index.predicates.normal_form import Normal, normal

if TYPE_CHECKING:
    from headrace.operators.native.bitmaps import Factors

_OUTGROWN: Final = 0.1
_WORTH_A_PART: Final = 32
_WORTH_HISTOGRAMS: Final = 256
"""Queries for each attribute that are worth a part of their own, which histograms can fold, where the kernel of bitmaps was
built: fewer cost less in one part with the others, whose bitmaps of rows by rank they read.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered query, and its index in bitmaps."""

    id: str
    slot: int
    form: Normal


@dataclass(frozen=True, eq=False)
class Compiled:
    """A part with the tables of its kernels, each made on first use."""

    part: Part

    @cached_property
    def plan(self) -> Plan:
        """The tiles of column-major matching."""
        return planned(self.part)

    @cached_property
    def factors(self) -> Factors:
        """The boxes, as the compiled kernel takes them."""
        from headrace.operators.query_index.boxes.box_factors import factors_of  # noqa: PLC0415 - of many queries

        return factors_of(self.part)

    @cached_property
    def tables(self) -> tuple[Words, ...]:
        """The tables of row-major matching."""
        return by_row.tables(self.part)

    @cached_property
    def of_one_attribute(self) -> bool:
        """Whether every query is one box that names one attribute at most."""
        named = np.zeros(self.part.boxes, np.int64)
        for attribute in self.part.attributes:
            named[attribute.boxes] += 1
        return self.part.boxes == self.part.queries and not (named > 1).any()


@dataclass(frozen=True, eq=False)
class Side:
    """Queries compiled together: those that boxes decide, and those that also have a residual."""

    entries: tuple[Entry, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Entry]:
        """Entries by query."""
        return {entry.id: entry for entry in self.entries}

    @cached_property
    def plain(self) -> tuple[Compiled, ...]:
        """The queries without residual; those of one attribute separately, if there are many, since they cost less."""
        from headrace.operators.native.library import library  # noqa: PLC0415 - with the first conditions

        forms = [(e.slot, e.form) for e in self.entries if e.form.residual is None]
        single = [form for form in forms if len(form[1].boxes) == 1 and len(form[1].boxes[0]) <= 1]
        named = {attribute for _, form in single for box in form.boxes for attribute in box}
        least = _WORTH_A_PART if library() is None else _WORTH_HISTOGRAMS * max(1, len(named))
        if not least <= len(single) < len(forms):
            return (Compiled(compiled(forms)),)
        others = [form for form in forms if len(form[1].boxes) != 1 or len(form[1].boxes[0]) > 1]
        return Compiled(compiled(others)), Compiled(compiled(single))

    @cached_property
    def residual(self) -> Part:
        """The boxes of the queries with a residual."""
        return compiled([(entry.slot, entry.form) for entry in self.with_residual])

    @cached_property
    def with_residual(self) -> tuple[Entry, ...]:
        """The queries with a residual."""
        return tuple(entry for entry in self.entries if entry.form.residual is not None)

    @cached_property
    def cautious(self) -> tuple[Entry, ...]:
        """Queries whose residual may fail: NULLs among their attributes make a row exceptional."""
        return tuple(entry for entry in self.entries if entry.form.residual_may_fail)


@dataclass(frozen=True)
class QueryIndex:
    """An immutable version of the index.

    `sides` hold every query ever added since they were compiled; those in `dropped` (by id, within their side) are not live.
    """

    sides: tuple[Side, ...] = ()
    dropped: tuple[frozenset[str], ...] = ()
    next_slot: int = 0

    def __len__(self) -> int:
        return sum(len(s.entries) - len(d) for s, d in zip(self.sides, self.dropped, strict=True))

    def __contains__(self, id: str) -> bool:  # noqa: A002
        return self._find(id) is not None

    def entries(self) -> Iterator[Entry]:
        """The live queries."""
        for side, dropped in zip(self.sides, self.dropped, strict=True):
            yield from (entry for entry in side.entries if entry.id not in dropped)

    @cached_property
    def slots(self) -> Ints:
        """The slots of the live queries, ascending."""
        return np.array(sorted(entry.slot for entry in self.entries()), np.int64)

    def entry(self, id: str) -> Entry:  # noqa: A002
        """A live query; raises KeyError if there is none of that id."""
        index = self._find(id)
        if index is None:
            raise KeyError(id)
        return self.sides[index].by_id[id]

    def compile(self) -> None:
        """Compile the conditions now, not with the first batch: a process that rehearses has no batch."""
        for side in self.sides:
            for part in side.plain:
                _ = part.factors

    def dead_slots(self) -> frozenset[int]:
        """Slots that still have boxes in a side but have no query."""
        return frozenset(
            side.by_id[id_].slot
            for side, dropped in zip(self.sides, self.dropped, strict=True)
            for id_ in dropped
        )

    def changed(
        self, add: Mapping[str, Expression | None] | None = None, remove: Collection[str] = ()
    ) -> QueryIndex:
        """The next version: without `remove`, then with `add` (id to predicate; None selects all rows).

        Costs what changes, and sometimes a merge. Raises `UserError` for an id that exists already, or does not exist.
        """
        index = self._without(remove)
        fresh: list[Entry] = []
        next_slot = index.next_slot
        for id_, predicate in (add or {}).items():
            if id_ in index:
                raise UserError(f"the query '{id_}' is in the index already")
            fresh.append(Entry(id_, next_slot, normal(predicate)))
            next_slot += 1
        sides, dropped = list(index.sides), list(index.dropped)
        if fresh:
            sides.append(Side(tuple(fresh)))
            dropped.append(frozenset())
        _merge(sides, dropped)
        return replace(index, sides=tuple(sides), dropped=tuple(dropped), next_slot=next_slot)

    def _find(self, id_: str) -> int | None:
        for index, (side, dropped) in enumerate(zip(self.sides, self.dropped, strict=True)):
            if id_ in side.by_id and id_ not in dropped:
                return index
        return None

    def _without(self, remove: Collection[str]) -> QueryIndex:
        dropped = [set(ids) for ids in self.dropped]
        for id_ in dict.fromkeys(remove):
            index = self._find(id_)
            if index is None:
                raise UserError(f"the query '{id_}' is not in the index")
            dropped[index].add(id_)
        return replace(self, dropped=tuple(map(frozenset, dropped)))


def _merge(sides: list[Side], dropped: list[frozenset[str]]) -> None:
    """Join sides from the newest on while one outgrows a tenth of the one before, or a tenth of it is dropped."""
    for index in range(len(sides) - 1, -1, -1):
        is_last = index == len(sides) - 1
        sizes = [len(side.entries) - len(ids) for side, ids in zip(sides, dropped, strict=True)]
        if index and is_last and sizes[index] > _OUTGROWN * sizes[index - 1]:
            live = [*_live(sides[index - 1], dropped[index - 1]), *_live(sides[index], dropped[index])]
            del sides[index], dropped[index]
            sides[index - 1], dropped[index - 1] = Side(tuple(live)), frozenset()
        elif len(dropped[index]) > _OUTGROWN * len(sides[index].entries):
            live = _live(sides[index], dropped[index])
            if live:
                sides[index], dropped[index] = Side(tuple(live)), frozenset()
            else:
                del sides[index], dropped[index]


def _live(side: Side, dropped: frozenset[str]) -> list[Entry]:
    return [entry for entry in side.entries if entry.id not in dropped]
