"""Which state runs to merge, size-tiered, so that a row is rewritten a logarithmic number of times; and how a state's are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import pyarrow as pa

from headrace.operators.base.operator import Advance, StateOwner
from headrace.operators.families.harvest import gathered
from headrace.runtime.messages.task_messages import RunRef

Owners: TypeAlias = Sequence[tuple[StateOwner, Advance]]
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


def due_for_review(runs: Sequence[RunRef], epoch: int) -> list[tuple[str, ...]]:
    """Names of runs of which it should be found out now how much of them is still needed, by ones and twos.

    A run is looked at each time it has grown twice as old, with the next one that is not below it, by which it may be superseded. So what
    nobody needs is there for no longer than it had been needed, and a run that stays alive is looked at a logarithmic
    number of times. Of runs that are younger, merging takes care.

    >>> runs = [RunRef("a", 0, 256, 1, 10, epoch=4), RunRef("b", 0, 256, 0, 10, 6), RunRef("c", 0, 256, 1, 10, 9)]
    >>> due_for_review(runs, 12), due_for_review(runs, 13), due_for_review(runs, 17)
    ([('a', 'c')], [], [('c',)])
    """
    found: list[tuple[str, ...]] = []
    for place, run in enumerate(runs):
        age = epoch - run.epoch
        if age > FAN_IN and age & (age - 1) == 0:
            next_run = next((each.name for each in runs[place + 1 :] if each.level >= run.level), None)
            found.append((run.name,) if next_run is None else (run.name, next_run))
    return found


def level_after(merged: Sequence[tuple[int, int]], rows: int) -> int:
    """The level of what runs of (level, rows) were merged into, when it holds `rows`.

    A run rises only if merging made it larger. Where most rows were dead, as with windows that close, it stays on its
    level, or falls to that of runs of its size: there it is merged again soon, instead of waiting among few large runs for ever longer.

    >>> level_after([(0, 100)] * 6, 600), level_after([(0, 100)] * 6, 120), level_after([(0, 9), (1, 100)], 90)
    (1, 0, 1)
    >>> level_after([(3, 6000)], 1000), level_after([(3, 6000)], 10), level_after([(1, 6000)], 0)
    (2, 0, 0)
    """
    top = max(level for level, _ in merged)
    largest = max(found for level, found in merged if level == top)
    if rows > 2 * largest:
        return top + 1
    falls = int(math.log(largest / max(rows, 1), FAN_IN) + 1e-9) if largest else 0
    return max(0, top - max(0, falls))


def before_merge(owners: Owners, found: Mapping[str, Sequence[pa.Table]]) -> dict[str, list[pa.Table]]:
    """The sections of a state, rearranged where its owners want that before they are merged one by one."""
    owner, _ = owners[0]
    ready = owner.before_merge(found, min((advance for _, advance in owners), key=attrgetter("emitted_to")))
    return {section: list(tables) for section, tables in ready.items()}


def compacted(owners: Owners, found: Mapping[str, Sequence[pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Every section as one table: what each owner still needs of its rows."""
    for section, tables in found.items():
        yield (
            section,
            gathered([owner.compact(section, owner.own_rows(tables), advance) for owner, advance in owners]),
        )
