"""Base classes of operators that may share state with other queries of a family: one for all of them, one for those
that store rows or fold what they store of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Advance, BaseOperator, Operator, Sections, StateOwner
from headrace.operators.families.cohort import Cohort, cohorts
from headrace.operators.families.family import family_name, numbered
from headrace.operators.families.numbering import is_numbered, number_of
from headrace.operators.rows.row_state import ROWS, RowLayout
from headrace.time import Instant


class FamilyOperator(BaseOperator):
    """An operator that stores its rows among those of its `family`, if it has one; see `headrace.operators.families`.

    Subclasses are dataclasses with a field `family`, and define `together` and `advance_family`.
    """

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def family(self) -> str | None:
            """The name of the state it shares with queries of its shape."""

    @property
    def family_key(self) -> str | None:
        """The name of its family, if its query can have one."""
        return self.family

    @property
    def shape(self) -> tuple[object, ...] | None:
        """All that queries of its family have in common; None if it has none."""
        return None

    def in_family(self) -> Operator:
        """The operator with the name of its family, if its query is in the query log and its shape allows it."""
        shape = self.shape if is_numbered(self.id) else None
        if shape is None:
            return self
        return self.with_family(family_name((type(self).__name__, *shape)))

    def among_readers_of(self, results: str) -> Operator:
        """The operator in the family of those that read results with one clock, each those of another query."""
        return self if self.family is None else self.with_family(self.reading(results).in_family().family_key)

    def reading(self, stream: str) -> Operator:
        """The operator over another stream."""
        other: Operator = replace(cast("Any", self), stream=stream)
        return other

    def with_family(self, family: str | None) -> Operator:
        """The operator with the name of a family, or without one."""
        named: Operator = replace(cast("Any", self), family=family)
        return named

    @property
    def former_states(self) -> tuple[str, ...]:
        """The family whose queries read one stream."""
        of_one_stream = None if self.family is None else self.in_family().family_key
        return () if of_one_stream is None or of_one_stream == self.family else (of_one_stream,)

    def without_family(self) -> Operator:
        """The operator with its own state."""
        return self.with_family(None)

    def unshared(self) -> Operator:
        """The operator with its own state."""
        return self.without_family()

    def for_family(self, sections: Sections) -> Sections:
        """Its sections with its number in each row."""
        if self.family is None:
            return sections
        number = number_of(self.id)
        return {name: numbered(table, number) for name, table in sections.items()}

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Of its family's rows those with its number."""
        return list(tables) if self.family is None else Cohort.of((self,)).own_rows(tables)

    def owners(
        self, queries: Sequence[Operator], advance_of: Callable[[Operator], Advance]
    ) -> Sequence[tuple[StateOwner, Advance]]:
        """The cohorts of its family."""
        if self.family is None:
            return [(self, advance_of(self))]
        return cohorts(queries, {query.id: advance_of(query) for query in queries})


class RowFamilyOperator(FamilyOperator):
    """An operator that stores rows, or folds what it stores of them: rows of its family are scanned together."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def rows(self) -> RowLayout:
            """The layout of stored rows."""

    @property
    def own_slot(self) -> int:
        """The slot of all its rows, if they are not routed by values."""
        return self.rows.slot

    @property
    def former_states(self) -> tuple[str, ...]:
        """Also the family whose queries computed the ends of their rows by one expression."""
        former = super().former_states
        if self.family is None or not self.rows.ends_differ:
            return former
        of_one_end: Operator = replace(cast("Any", self), rows=replace(self.rows, ends_differ=False))
        return (*former, str(of_one_end.in_family().family_key))

    @property
    def family_rows(self) -> RowLayout | None:
        """What it stores of each row."""
        return None if self.family is None else self.rows

    def family_deltas(self, rows: pa.Table | None, first: Instant | Ints) -> Sections:  # noqa: ARG002
        """The rows of all queries."""
        return {} if rows is None else {ROWS: rows}
