"""Windows of single groups that close before the stream's: what group-wise punctuation answers early, and once.

A promise for some groups (Li 2008, section 4.2) lets their windows be told as soon as it passes the windows' ends. The
stream's own punctuation, when it comes to these windows, tells the other groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions import Column
from headrace.operators.finish import HIDDEN
from headrace.operators.grouping import Ints, flat
from headrace.operators.operator import AT, Operator, Sections, Step, Turn
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.pane_store import between, block_key
from headrace.time import BEGINNING, Instant

_HIGHEST = 1 << 55


@dataclass(frozen=True, slots=True)
class GroupTurn:
    """How far the groups of some columns are, by name, and how far they go now; `named` names the rows of columns."""

    columns: tuple[str, ...]
    before: Mapping[str, Instant]
    now: Mapping[str, Instant]
    named: Callable[[Sequence[pa.Array]], pa.Array]


def by_itself(operator: Operator) -> Operator:
    """The operator with a state of its own: groups that are ahead are told query by query, not family by family."""
    return replace(operator, family=None) if isinstance(operator, PaneAggregate) else operator


def can_go_ahead(operator: object, columns: tuple[str, ...]) -> bool:
    """True for an operator whose groups are each of one value of the columns, and whose windows close group by group."""
    return (
        isinstance(operator, PaneAggregate)
        and operator.family is None
        and not operator.finish.needs_whole_window
        and not operator.emit_empty
        and operator.revisions is None
        and operator.panes.back is not None
        and bool(columns)
        and _places(operator, columns) is not None
    )


def advance_groups(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    turn: Turn,
    groups: GroupTurn,
) -> Step:
    """The operator's step, where groups that are ahead are told as far as their own punctuation, and not again."""
    step = operator.advance(runs, deltas, turn)
    tables = []
    if step.results is not None:
        done = _bounds(operator, step.results, groups, groups.before)
        tables.append(step.results.filter(pa.array(_at(step.results) > done)))
    early = None if turn.final else _early(operator, runs, deltas, turn, groups)
    if early is not None:
        tables.append(early)
    results = pa.concat_tables(tables) if tables else None
    return replace(step, results=results)


def _early(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    turn: Turn,
    groups: GroupTurn,
) -> pa.Table | None:
    """Windows that end above the stream's punctuation, of groups whose own has passed them in this turn."""
    moved = {
        name: at for name, at in groups.now.items() if at > max(turn.now, groups.before.get(name, BEGINNING))
    }
    if not moved:
        return None
    parts = _rows_of(operator, runs, deltas, turn, groups, moved)
    if not parts:
        return None
    step = operator.advance([], parts, Turn(BEGINNING, max(moved.values()), turn.greatest))
    if step.results is None:
        return None
    told, at = step.results, _at(step.results)
    done = np.maximum(_bounds(operator, told, groups, groups.before), turn.now)
    return told.filter(pa.array((at > done) & (at <= _bounds(operator, told, groups, moved))))


def _rows_of(
    operator: PaneAggregate,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    turn: Turn,
    groups: GroupTurn,
    moved: Mapping[str, Instant],
) -> list[Sections]:
    """Partials of the groups that moved, in panes that a window not told yet may hold, all as rows that just came."""
    panes = operator.panes
    begun = turn.closed != BEGINNING
    opened = block_key(0, panes.of_instant(turn.closed) if begun else -_HIGHEST)
    reached = min(max(turn.closed, groups.before.get(name, BEGINNING)) for name in moved)
    first = panes.first(panes.last_closed(reached) + 1) if reached != BEGINNING else -_HIGHEST
    assert first is not None
    low, high = block_key(0, first), block_key(0, _HIGHEST)
    wanted = pa.array(list(moved), pa.string())
    found: list[Sections] = []
    for place in range(len(operator.layouts)):
        held = [run[f"open{place}"] for run in runs if f"open{place}" in run]
        sealed = [run[f"sealed{place}"] for run in runs if f"sealed{place}" in run]
        arrived = [delta[f"open{place}"] for delta in deltas if f"open{place}" in delta]
        live = between(held, max(low, opened), high) + between([*sealed, *arrived], low, high)
        for table in live:
            mine = table.filter(pc.is_in(_names(operator, table, groups, "k"), value_set=wanted))
            if mine.num_rows:
                found.append({f"open{place}": mine})
    return found


def _bounds(
    operator: PaneAggregate, told: pa.Table, groups: GroupTurn, bounds: Mapping[str, Instant]
) -> Ints:
    """The bound of each result row's group; BEGINNING where it has none."""
    if not bounds:
        return np.full(told.num_rows, BEGINNING, np.int64)
    names = _names(operator, told, groups, HIDDEN)
    place = pc.fill_null(pc.index_in(names, pa.array(list(bounds), pa.string())), -1).to_numpy()
    values: Ints = np.array([*bounds.values(), BEGINNING], np.int64)
    return np.asarray(values[place])


def _names(operator: PaneAggregate, table: pa.Table, groups: GroupTurn, prefix: str) -> pa.Array:
    """Names of the rows' groups, from key columns at rest (`k0`) or from the hidden columns of results."""
    places = _places(operator, groups.columns)
    assert places is not None
    chosen = [rest if prefix == "k" else hidden for rest, hidden in places]
    return groups.named([flat(table.column(f"{prefix}{place}")) for place in chosen])


def _places(operator: PaneAggregate, columns: tuple[str, ...]) -> list[tuple[int, int]] | None:
    """Where each column stands among the group's keys and among the hidden columns of results; None if one is missing."""
    ordered = [key.expression for key in operator.finish.sort]
    found = []
    for column in columns:
        for place, key in enumerate(operator.keys):
            if isinstance(key.expression, Column) and key.expression.name == column:
                hidden = Column(key.name, key.expression.type)
                if hidden in ordered:
                    found.append((place, ordered.index(hidden)))
                    break
        else:
            return None
    return found


def _at(table: pa.Table) -> Ints:
    return np.asarray(flat(table.column(AT)).to_numpy(), np.int64)
