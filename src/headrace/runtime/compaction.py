"""Which state runs to merge, size-tiered, so that a row is rewritten a logarithmic number of times; and how a state's are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import pyarrow as pa

from headrace.operators.family import Census, Cohort, gathered
from headrace.operators.operator import Operator, Turn
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.revising_sessions import RevisingSessions
from headrace.operators.selection import SelectionFamily
from headrace.runtime.messages import RunRef

Owners: TypeAlias = Sequence[tuple[Operator | Cohort | SelectionFamily, Turn]]
"""Whose one state is, each with the turn by which it may forget."""

FAN_IN: Final = 6
"""Runs of one level that are merged into one of the next."""


def due_for_merge(runs: Sequence[RunRef]) -> tuple[str, ...]:
    """Names of the runs to merge now: a full level, and every lower level with it.

    >>> due_for_merge([RunRef(str(n), 0, 256, 0, 10) for n in range(5)])
    ()
    """
    levels: dict[int, list[str]] = {}
    for run in runs:
        levels.setdefault(run.level, []).append(run.name)
    full = [level for level, found in levels.items() if len(found) >= FAN_IN]
    if not full:
        return ()
    return tuple(name for level, found in sorted(levels.items()) if level <= max(full) for name in found)


def level_after(merged: Sequence[tuple[int, int]], rows: int) -> int:
    """The level of what runs of (level, rows) were merged into, when it holds `rows`.

    A run rises only if merging made it larger. Where most rows were dead, as with windows that close, it stays on its
    level: there it is merged again soon, instead of waiting among few large runs for ever longer.

    >>> level_after([(0, 100)] * 6, 600), level_after([(0, 100)] * 6, 120), level_after([(0, 9), (1, 100)], 90)
    (1, 0, 1)
    """
    top = max(level for level, _ in merged)
    largest = max(found for level, found in merged if level == top)
    return top + (rows > 2 * largest)


def before_merge(owners: Owners, found: Mapping[str, Sequence[pa.Table]]) -> dict[str, list[pa.Table]]:
    """The sections of a state, rearranged where its owners want that before they are merged one by one."""
    owner, _ = owners[0]
    if isinstance(owner, Cohort | PaneAggregate | RevisingSessions):
        found = owner.before_merge(found, min((turn for _, turn in owners), key=attrgetter("closed")))
    return {section: list(tables) for section, tables in found.items()}


def compacted(owners: Owners, found: Mapping[str, Sequence[pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Every section as one table: what each owner still needs of its rows."""
    for section, tables in found.items():
        yield (
            section,
            gathered([owner.compact(section, _rows_of(owner, tables), turn) for owner, turn in owners]),
        )


def _rows_of(owner: Operator | Cohort | SelectionFamily, tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The owner's part of state tables."""
    if not isinstance(owner, Cohort):
        return list(tables)
    return [owner.only(table, Census.of(table)) for table in tables]
