"""Windows of single groups that close before the stream's: what group-wise punctuation answers early, and once.

A promise for some groups (Li 2008, section 4.2) lets their windows be told as soon as it passes the windows' ends. The
stream's own punctuation, when it comes to these windows, tells the other groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column
from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import AT, Advance, Sections, Step
from headrace.operators.output.output_stage import HIDDEN
from headrace.operators.panes.pane_keys import between, block_key
from headrace.operators.panes.panes import HIGHEST
from headrace.operators.window_assembly.pane_extent import SEEN
from headrace.time import BEGINNING, FOREVER, Instant

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate

BoundsOf: TypeAlias = Callable[[Mapping[str, pa.Array], int, Mapping[str, Instant]], Ints]
"""For so many rows of these columns the instant below which promises say that none of their groups follow."""


@dataclass(frozen=True, slots=True)
class GroupAdvance:
    """How far groups are by promises on some columns, by the promises' names, and how far they go now."""

    columns: tuple[str, ...]
    before: Mapping[str, Instant]
    punctuations: Mapping[str, Instant]
    bounds_of: BoundsOf


def grouping_columns(operator: PaneAggregate, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the columns are keys of an operator whose windows can close group by group; of others none."""
    closes_by_group = (
        operator.family is None
        and not operator.finish.needs_whole_window
        and not operator.emit_empty
        and operator.revisions is None
        and operator.panes.back is not None
    )
    return tuple(name for name in columns if _place(operator, name) is not None) if closes_by_group else ()


def without_done(operator: PaneAggregate, section: str, table: pa.Table, groups: GroupAdvance) -> pa.Table:
    """Rows of its state about to be merged, but those of groups of which no row will ever follow and all has been told."""
    whole = {name: at for name, at in groups.punctuations.items() if at == FOREVER}
    if not whole or KEY not in table.column_names or section == SEEN or not table.num_rows:
        return table
    return table.filter(pa.array(_bounds(operator, table, groups, whole, "k") < FOREVER))


def advance_groups(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    advance: Advance,
    groups: GroupAdvance,
) -> Step:
    """The operator's step, where groups that are ahead are told as far as their own punctuation, and not again."""
    step = operator.advance(runs, deltas, advance)
    tables = []
    if step.results is not None:
        done = _bounds(operator, step.results, groups, groups.before, HIDDEN)
        tables.append(step.results.filter(pa.array(_at(step.results) > done)))
    early = None if advance.final else _early(operator, runs, deltas, advance, groups)
    if early is not None:
        tables.append(early)
    results = pa.concat_tables(tables) if tables else None
    return replace(step, results=results)


def _early(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    advance: Advance,
    groups: GroupAdvance,
) -> pa.Table | None:
    """Windows that end above the stream's punctuation, of groups whose own has passed them in this turn."""
    moved = {
        name: at
        for name, at in groups.punctuations.items()
        if at > max(advance.punctuation, groups.before.get(name, BEGINNING))
    }
    if not moved:
        return None
    parts = _rows_of(operator, runs, deltas, advance, groups, moved)
    if not parts:
        return None
    step = operator.advance([], parts, Advance(BEGINNING, max(moved.values()), advance.max_event_time))
    if step.results is None:
        return None
    told, at = step.results, _at(step.results)
    done = np.maximum(_bounds(operator, told, groups, groups.before, HIDDEN), advance.punctuation)
    return told.filter(pa.array((at > done) & (at <= _bounds(operator, told, groups, moved, HIDDEN))))


def _rows_of(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    advance: Advance,
    groups: GroupAdvance,
    moved: Mapping[str, Instant],
) -> list[Sections]:
    """Partials of the groups that moved, in panes that a window not told yet may hold, all as rows that just came."""
    panes = operator.panes
    begun = advance.emitted_to != BEGINNING
    opened = block_key(0, panes.of_instant(advance.emitted_to) if begun else -HIGHEST)
    reached = min(max(advance.emitted_to, groups.before.get(name, BEGINNING)) for name in moved)
    first = panes.first(panes.last_closed(reached) + 1) if reached != BEGINNING else -HIGHEST
    assert first is not None
    low, high = block_key(0, first), block_key(0, HIGHEST)
    found: list[Sections] = []
    for place in range(len(operator.layouts)):
        held = [run[f"open{place}"] for run in runs if f"open{place}" in run]
        sealed = [run[f"sealed{place}"] for run in runs if f"sealed{place}" in run]
        arrived = [delta[f"open{place}"] for delta in deltas if f"open{place}" in delta]
        live = between(held, max(low, opened), high) + between([*sealed, *arrived], low, high)
        for table in live:
            mine = table.filter(pa.array(_bounds(operator, table, groups, moved, "k") > BEGINNING))
            if mine.num_rows:
                found.append({f"open{place}": mine})
    return found


def _bounds(
    operator: PaneAggregate, table: pa.Table, groups: GroupAdvance, bounds: Mapping[str, Instant], prefix: str
) -> Ints:
    """The bound of each row's group; its keys are at rest (`k0`) or the hidden columns of results."""
    if not bounds:
        return np.full(table.num_rows, BEGINNING, np.int64)
    columns = {}
    for name in groups.columns:
        places = _place(operator, name)
        assert places is not None
        rest, hidden = places
        columns[name] = flat(table.column(f"{prefix}{rest if prefix == 'k' else hidden}"))
    return groups.bounds_of(columns, table.num_rows, bounds)


def _place(operator: PaneAggregate, column: str) -> tuple[int, int] | None:
    """Where a column stands among the group's keys and among the hidden columns of results; None if it is missing."""
    ordered = [key.expression for key in operator.finish.sort]
    for place, key in enumerate(operator.keys):
        if isinstance(key.expression, Column) and key.expression.name == column:
            hidden = Column(key.name, key.expression.type)
            return (place, ordered.index(hidden)) if hidden in ordered else None
    return None


def _at(table: pa.Table) -> Ints:
    return np.asarray(ints(table, AT), np.int64)
