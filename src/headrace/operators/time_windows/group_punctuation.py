"""Group punctuation: windows of single groups that an aggregate over panes emits before the stream's punctuation passes
them, by promises on key columns; and removal of groups from state when they get no more rows.

A promise for some groups (Li 2008, section 4.2) lets their windows be emitted as soon as it passes the windows' ends.
The stream's own punctuation, when it passes these windows, emits the other groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column
from headrace.dataclass import dataclass
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
"""For rows of these columns, the instant below which promises guarantee that none of their groups follow."""


@dataclass(frozen=True, slots=True)
class GroupAdvance:
    """The punctuation of groups by promises on some columns, before and now, by the promises' names."""

    columns: tuple[str, ...]
    before: Mapping[str, Instant]
    punctuations: Mapping[str, Instant]
    bounds_of: BoundsOf


def grouping_columns(operator: PaneAggregate, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the columns that are keys of an operator whose windows can close group by group; none for others."""
    closes_by_group = (
        operator.family is None
        and not operator.finish.needs_whole_window
        and not operator.emit_empty
        and operator.revisions is None
        and operator.panes.back is not None
    )
    return (
        tuple(name for name in columns if _key_indices(operator, name) is not None) if closes_by_group else ()
    )


def without_done(operator: PaneAggregate, section: str, table: pa.Table, groups: GroupAdvance) -> pa.Table:
    """Rows about to be merged, without groups that were emitted completely and get no more rows."""
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
    """The operator's step, where groups beyond the stream's punctuation are emitted up to their own, once."""
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
    """Windows that end above the stream's punctuation, of groups whose own has passed them in this step."""
    advanced = {
        name: at
        for name, at in groups.punctuations.items()
        if at > max(advance.punctuation, groups.before.get(name, BEGINNING))
    }
    if not advanced:
        return None
    parts = _rows_of(operator, runs, deltas, advance, groups, advanced)
    if not parts:
        return None
    step = operator.advance([], parts, Advance(BEGINNING, max(advanced.values()), advance.max_event_time))
    if step.results is None:
        return None
    results, at = step.results, _at(step.results)
    done = np.maximum(_bounds(operator, results, groups, groups.before, HIDDEN), advance.punctuation)
    return results.filter(
        pa.array((at > done) & (at <= _bounds(operator, results, groups, advanced, HIDDEN)))
    )


def _rows_of(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    advance: Advance,
    groups: GroupAdvance,
    advanced: Mapping[str, Instant],
) -> list[Sections]:
    """Partials of the groups that advanced, in panes that a window not emitted yet may hold, as if their rows were new."""
    panes = operator.panes
    has_emitted = advance.emitted_to != BEGINNING
    opened = block_key(0, panes.of_instant(advance.emitted_to) if has_emitted else -HIGHEST)
    emitted_to = min(max(advance.emitted_to, groups.before.get(name, BEGINNING)) for name in advanced)
    first = panes.first(panes.last_closed(emitted_to) + 1) if emitted_to != BEGINNING else -HIGHEST
    assert first is not None
    low, high = block_key(0, first), block_key(0, HIGHEST)
    sections: list[Sections] = []
    for store in range(len(operator.layouts)):
        held = [run[f"open{store}"] for run in runs if f"open{store}" in run]
        sealed = [run[f"sealed{store}"] for run in runs if f"sealed{store}" in run]
        arrived = [delta[f"open{store}"] for delta in deltas if f"open{store}" in delta]
        live = between(held, max(low, opened), high) + between([*sealed, *arrived], low, high)
        for table in live:
            rows = table.filter(pa.array(_bounds(operator, table, groups, advanced, "k") > BEGINNING))
            if rows.num_rows:
                sections.append({f"open{store}": rows})
    return sections


def _bounds(
    operator: PaneAggregate, table: pa.Table, groups: GroupAdvance, bounds: Mapping[str, Instant], prefix: str
) -> Ints:
    """The bound of each row's group; its keys are those of state (`k0`) or the hidden columns of results."""
    if not bounds:
        return np.full(table.num_rows, BEGINNING, np.int64)
    columns = {}
    for name in groups.columns:
        indices = _key_indices(operator, name)
        assert indices is not None
        key, hidden = indices
        columns[name] = flat(table.column(f"{prefix}{key if prefix == 'k' else hidden}"))
    return groups.bounds_of(columns, table.num_rows, bounds)


def _key_indices(operator: PaneAggregate, column: str) -> tuple[int, int] | None:
    """The index of a column in the group's keys and in the hidden columns of results; None if it is missing."""
    ordered = [key.expression for key in operator.finish.sort]
    for index, key in enumerate(operator.keys):
        if isinstance(key.expression, Column) and key.expression.name == column:
            hidden = Column(key.name, key.expression.type)
            return (index, ordered.index(hidden)) if hidden in ordered else None
    return None


def _at(table: pa.Table) -> Ints:
    return np.asarray(ints(table, AT), np.int64)
