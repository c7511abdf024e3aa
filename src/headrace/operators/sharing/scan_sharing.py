"""Scan groups: which operators of a scan task fold or store their rows together, and the scanner of each group.

Aggregates with the same joins and grouping are folded once for all their conditions and windows (`shared_predicates`);
those that count distinct values, once for all their windows (`shared_panes`). Everything else is unshared, on the rows
that pass its first filter, which one index finds for all (`routed_scans`). The output of the task is the same in each
case: an operator's deltas as it would have made them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias
from typing import Literal as Choice

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.synopsis_calls import uses_synopses
from headrace.operators.base.batch import Batch
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import Operator, Scanner
from headrace.operators.families.family import state_name, with_stored_layout
from headrace.operators.families.pane_queries import over_panes
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.on_demand.row_bitmaps import united
from headrace.operators.on_demand.selection import Selection
from headrace.operators.on_demand.shared_selections import BITS, SharedSelections
from headrace.operators.query_index.index_cache import predicate_of
from headrace.operators.query_index.predicates.normal_form import reads_only_columns
from headrace.operators.rows.row_pipeline import RowFilter, RowStep, joins_of
from headrace.operators.scalar.evaluation.failing import can_fail
from headrace.operators.sharing.family_rows import FamilyRows
from headrace.operators.sharing.routed_scans import (
    MOST_SEPARATE_FILTERS,
    OnDemand,
    RoutedRows,
    first_filter,
)
from headrace.operators.time_windows.pane_aggregate import PaneAggregate

_ANY: Final = "any condition"
LEAST_FOLDED_TOGETHER: Final = 2
"""From this many conditions on, aggregates fold the rows of one index: with ten, a run of 8 million rows takes 0.64 of the time."""
_Key: TypeAlias = tuple[object, object]
_few: Final[MadeOnce[bool]] = MadeOnce(64)
"""Whether queries with one scan have few conditions."""


class ScanGroup(Protocol):
    """The scanner of one or several operators."""

    @property
    def representative(self) -> str:
        """The id of one of the operators, which is in no other scan group."""
        ...

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""
        ...

    def finish(self) -> ScanOutput:
        """The deltas of all batches."""
        ...


@dataclass(frozen=True, slots=True)
class Unshared:
    """An operator that shares its scan with no other."""

    operator: Operator
    scanner: Scanner

    @property
    def representative(self) -> str:
        """The operator's id."""
        return self.operator.id

    def add(self, batch: Batch) -> None:
        """Fold a batch."""
        self.scanner.add(batch)

    def finish(self) -> ScanOutput:
        """Its deltas."""
        output = ScanOutput()
        output.add(self.operator, self.scanner.finish())
        return output


@dataclass(frozen=True, slots=True)
class SelectionScan:
    """All selections over the stream that store bitmaps."""

    queries: tuple[Selection, ...]
    shared: SharedSelections

    @property
    def representative(self) -> str:
        """The id of one of them."""
        return self.queries[0].id

    def add(self, batch: Batch) -> None:
        """Match a batch."""
        self.shared.add(batch)

    def finish(self) -> ScanOutput:
        """All containers as one table, and what was scanned for each selection."""
        output = ScanOutput()
        for operator, (_, seen) in zip(self.queries, self.shared.of_each(), strict=True):
            output.add(operator, seen)
        tables = [table for table in self.shared.tables if table.num_rows]
        if tables:
            output.put(f"{state_name(self.queries[0])}/{BITS}", united(tables))
        return output


SharingKind: TypeAlias = Choice["unshared", "routed", "panes", "conditions", "selections", "rows", "values"]


def scan_groups(
    operators: Iterable[Operator], relations: Mapping[str, pa.Table], row_layout_states: Collection[str] = ()
) -> list[ScanGroup]:
    """Scanners for one task's operators, with those that can share together.

    `row_layout_states` names the states in which sparse groups are stored as rows; an unshared operator makes such rows.
    """
    return [
        scan_group_of(how, queries, relations, row_layout_states)
        for how, queries in groups(operators, row_layout_states)
    ]


def scan_group_of(
    how: SharingKind,
    queries: Sequence[Operator],
    relations: Mapping[str, pa.Table],
    row_layout_states: Collection[str],
) -> ScanGroup:
    """The scan group of operators that `groups` returned together, with their kind of sharing."""
    if how == "unshared":
        (operator,) = queries
        return Unshared(operator, _scanner(operator, relations, row_layout_states))
    if how in ("routed", "values"):
        by_id = {operator.id: operator for operator in queries}
        scanners = OnDemand(lambda name: _scanner(by_id[name], relations, row_layout_states))
        if how == "routed":
            return RoutedRows.of(tuple(queries), scanners)
        from headrace.operators.sharing.pairs.query_values import QueryValues  # noqa: PLC0415 - of many queries

        return QueryValues.of(over_panes(queries), scanners)
    if how == "selections":
        selecting = tuple(selection for operator in queries if (selection := operator.on_request) is not None)
        return SelectionScan(selecting, SharedSelections.of(selecting))
    if how == "rows":
        return FamilyRows.of(tuple(queries), relations)
    from headrace.operators.sharing.shared_panes import SharedPanes  # noqa: PLC0415
    from headrace.operators.sharing.shared_predicates import SharedPredicates  # noqa: PLC0415 - of many queries

    sharing = over_panes(queries)
    if how == "panes":
        return SharedPanes.of(sharing, relations)
    are_few = _few.of(sharing, lambda: not _are_many(map(predicate_of, sharing)))
    return SharedPredicates.of(sharing, relations, few=are_few)


def _scanner(
    operator: Operator, relations: Mapping[str, pa.Table], row_layout_states: Collection[str]
) -> Scanner:
    return (with_stored_layout(operator, row_layout_states) if row_layout_states else operator).scanner(
        relations
    )


def groups(
    operators: Iterable[Operator], row_layout_states: Collection[str] = ()
) -> Iterator[tuple[SharingKind, Sequence[Operator]]]:
    """Operators over the same rows, grouped by how they share.

    By common panes (the same rows and keys); by an index of their conditions (the same joins and keys); unshared, with
    an index that routes rows to each, or without. `row_layout_states` as in `scan_groups`.
    """
    unshared: list[Operator] = []
    for how, queries in _sharing(operators, row_layout_states):
        if how == "unshared":
            unshared += queries
        else:
            yield how, queries
    filtered = [(operator, first_filter(operator)) for operator in unshared]
    routed = _are_many(condition for _, condition in filtered if condition is not None)
    if routed:
        yield from _routed(
            [operator for operator, condition in filtered if condition is not None], row_layout_states
        )
    for operator, condition in filtered:
        if condition is None or not routed:
            yield "unshared", (operator,)


def _routed(
    operators: Sequence[Operator], row_layout_states: Collection[str]
) -> Iterator[tuple[SharingKind, Sequence[Operator]]]:
    """Queries whose rows one index finds. Many aggregates of a family that store values have their own, unless sparse groups are stored as rows."""
    storing: dict[str, list[Operator]] = {}
    for operator in operators:
        if _folds_values(operator) and state_name(operator) not in row_layout_states:
            storing.setdefault(state_name(operator), []).append(operator)
    values = [queries for queries in storing.values() if len(queries) > MOST_SEPARATE_FILTERS]
    yield from (("values", queries) for queries in values)
    taken = {id(query) for queries in values for query in queries}
    if others := [operator for operator in operators if id(operator) not in taken]:
        yield "routed", others


def _folds_values(operator: Operator) -> bool:
    """Whether it stores values of rows, in a family, behind a filter alone."""
    aggregate = operator.over_panes
    if aggregate is None or aggregate.family is None or not aggregate.grouped.distinct_arguments:
        return False
    return shares(aggregate) and len(aggregate.steps) == 1 and isinstance(aggregate.steps[0], RowFilter)


def _sharing(
    operators: Iterable[Operator], row_layout_states: Collection[str]
) -> Iterator[tuple[SharingKind, Sequence[Operator]]]:
    by_grouping: dict[_Key, list[PaneAggregate]] = {}
    families: dict[tuple[str, tuple[RowStep, ...]], list[PaneAggregate]] = {}
    selections: list[Selection] = []
    storing: dict[str, list[Operator]] = {}
    for operator in operators:
        if (selection := operator.on_request) is not None:
            if selection.materialize == "partial":  # the others store nothing
                selections.append(selection)
            continue
        if operator.family_rows is not None:
            storing.setdefault(state_name(operator), []).append(operator)
            continue
        scan_group = operator.over_panes
        if scan_group is None or not shares(scan_group):
            yield "unshared", (operator,)
        elif scan_group.family is not None and _is_filtered(scan_group):
            families.setdefault((scan_group.family, joins_of(scan_group.steps)), []).append(scan_group)
        else:
            by_grouping.setdefault((scan_group.steps, _keys(scan_group)), []).append(scan_group)
    if selections:
        yield "selections", selections
    for sharers in storing.values():
        yield "rows" if _are_scanned_together(sharers) else "unshared", sharers
    # queries of a family have the same keys and arguments: one represents all
    for (_, joins), queries in families.items():
        if queries[0].grouped.distinct_arguments:
            for query in queries:
                by_grouping.setdefault((query.steps, _keys(query)), []).append(query)
        else:
            by_grouping.setdefault((_ANY, (joins, _keys(queries[0]))), []).extend(queries)
    for (steps, _), queries in by_grouping.items():
        indexed = steps == _ANY and _are_indexed(queries, row_layout_states)
        yield from _together(queries, indexed=indexed)


def _are_scanned_together(queries: Sequence[Operator]) -> bool:
    """Whether queries of a family have a scan of their own; a few that store nothing have the index of all others."""
    if queries[0].longest_stored != 0:
        return len(queries) > 1
    return _are_many(first_filter(query) for query in queries)


def shares(operator: PaneAggregate) -> bool:
    """Whether its windows cover all time and answer only for rows: other operators must read every row by themselves.

    Synopses are left out: their error bound does not allow folding cells twice.
    """
    covers_time = not operator.answers_empty and operator.revisions is None and not operator.panes.has_gaps
    return covers_time and not operator.has_own_panes and not uses_synopses(operator.aggregates)


def _are_many(predicates: Iterable[object]) -> bool:
    distinct: set[object] = set()
    for predicate in predicates:
        distinct.add(predicate)
        if len(distinct) > MOST_SEPARATE_FILTERS:
            return True
    return False


def _are_indexed(queries: Sequence[PaneAggregate], row_layout_states: Collection[str]) -> bool:
    """Whether one index finds the rows of each of these queries, of any conditions.

    Of few conditions only where comparisons of columns decide them: costly ones are evaluated one after the other in an order
    that adapts. Nor where sparse groups are stored as rows, which is a scanner's own choice.
    """
    if _are_many(map(predicate_of, queries)):
        return True
    distinct = set(map(predicate_of, queries))
    return (
        len(distinct) >= LEAST_FOLDED_TOGETHER
        and all(map(reads_only_columns, distinct))
        and not any(state_name(query) in row_layout_states for query in queries)
    )


def _is_filtered(operator: PaneAggregate) -> bool:
    """Whether rows may as well be filtered after all joins: by one filter, or by some of which none can fail.

    A row that one filter drops does not reach the next, nor does one without a match in a join.
    """
    if len(operator.steps) < 2:
        return True
    return not any(can_fail(step.predicate) for step in operator.steps if isinstance(step, RowFilter))


def _keys(operator: PaneAggregate) -> tuple[object, ...]:
    return tuple(named.expression for named in operator.keys)


def _together(
    queries: Sequence[PaneAggregate], *, indexed: bool
) -> Iterator[tuple[SharingKind, Sequence[PaneAggregate]]]:
    if indexed:
        yield "conditions", queries
        return
    by_steps: dict[tuple[RowStep, ...], list[PaneAggregate]] = {}
    for query in queries:
        by_steps.setdefault(query.steps, []).append(query)
    for same in by_steps.values():
        yield "panes" if len(same) > 1 else "unshared", same
