"""Compaction of state runs: which runs are merged, which are reviewed for obsolete rows, the level of a merged run, and the
merge of a state's sections.

The choice is size-tiered, so that a row is rewritten a logarithmic number of times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Advance, StateOwner
from headrace.operators.families.scan_output import gathered
from headrace.runtime.messages.task_messages import RunRef
from headrace.runtime.tasks.timing import Ledger

Owners: TypeAlias = Sequence[tuple[StateOwner, Advance]]
"""The owners of one state, each with the advance by which its rows expire."""

FAN_IN: Final = 6
"""Runs of one level that are merged into one of the next."""
_LEFT_TO_MERGING: Final = 1 << 14
"""Bytes of one or two files up to which a review costs more than what it could free."""
_SMALL: Final = 1 << 16
"""Bytes of runs that are merged whatever the others."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The sections of a merged run, named `state/section`, its level, and the names of the runs that it replaces."""

    sections: Mapping[str, pa.Table]
    level: int
    replaced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergedAhead:
    """What was merged after an epoch, for the next one to write, and the time of each state; it may replace nothing.

    The merged run has all that the epoch has stored, and nothing of the next one.
    """

    epoch: int
    merged: Merged
    ledger: Ledger


def due_for_merge(runs: Sequence[RunRef]) -> tuple[str, ...]:
    """Names of the runs to merge now: a full level, and every lower level with it, but for runs that dwarf the others.

    Among ten thousand states few get rows: the run that has them all waits until the others are a sixth of it together.

    >>> due_for_merge([RunRef(str(n), 0, 256, 0, 10) for n in range(5)])
    ()
    >>> due_for_merge([RunRef(str(n), 0, 256, 0, 1 << (n + 16)) for n in (9, 0, 0, 1, 1, 2)])
    ('0', '0', '1', '1', '2')
    """
    levels = Counter(run.level for run in runs)
    full = [level for level, count in levels.items() if count >= FAN_IN]
    if not full:
        return ()
    chosen = sorted((run for run in runs if run.level <= max(full)), key=attrgetter("bytes"))
    while len(chosen) > 1 and chosen[-1].bytes > FAN_IN * max(_SMALL, sum(run.bytes for run in chosen[:-1])):
        chosen.pop()
    names = {run.name for run in chosen}
    return tuple(run.name for run in runs if run.name in names) if len(chosen) > 1 else ()


def due_for_review(runs: Sequence[RunRef], epoch: int) -> list[tuple[str, ...]]:
    """Names of runs to review, one or two at a time: how much of them is still needed.

    A run is reviewed each time its age has doubled, with the next one of at least its level, which may supersede it. So
    obsolete rows are stored no longer than they were needed, and a long-lived run is reviewed a logarithmic number of times.
    Younger and smaller runs are left to merging.

    >>> size = 1 << 20
    >>> runs = [RunRef("a", 0, 256, 1, size, epoch=4), RunRef("b", 0, 256, 0, size, 6), RunRef("c", 0, 256, 1, size, 9)]
    >>> due_for_review(runs, 12), due_for_review(runs, 13), due_for_review(runs, 17)
    ([('a', 'c')], [], [('c',)])
    """
    reviews: list[tuple[str, ...]] = []
    for index, run in enumerate(runs):
        age = epoch - run.epoch
        if age > FAN_IN and age & (age - 1) == 0:
            next_run = next((later for later in runs[index + 1 :] if later.level >= run.level), None)
            pair = (run,) if next_run is None else (run, next_run)
            if sum(merged.bytes for merged in pair) > _LEFT_TO_MERGING:
                reviews.append(tuple(merged.name for merged in pair))
    return reviews


def reviewed_at(runs: Sequence[RunRef], epoch: int) -> int | None:
    """The epoch of the review before this one of the same runs, the first of which is due; None if this is the first.

    >>> runs = [RunRef("a", 0, 256, 1, 10, epoch=4), RunRef("b", 0, 256, 1, 10, 12)]
    >>> reviewed_at(runs, 20), reviewed_at(runs, 12), reviewed_at(runs[:1], 20)
    (12, None, 12)
    """
    former = epoch - (epoch - runs[0].epoch) // 2
    was_due, were_there = former - runs[0].epoch > FAN_IN, all(run.epoch <= former for run in runs)
    return former if was_due and were_there else None


def level_after(merged: Sequence[tuple[int, int]], rows: int) -> int:
    """The level of the merged run of runs of (level, rows), when it holds `rows`.

    A run rises only if merging made it larger. Where most rows were dead, as with windows that close, it stays on its level, or
    falls to that of runs of its size: there it is merged again soon, instead of waiting ever longer among few large runs.

    >>> level_after([(0, 100)] * 6, 600), level_after([(0, 100)] * 6, 120), level_after([(0, 9), (1, 100)], 90)
    (1, 0, 1)
    >>> level_after([(3, 6000)], 1000), level_after([(3, 6000)], 10), level_after([(1, 6000)], 0)
    (2, 0, 0)
    """
    top = max(level for level, _ in merged)
    largest = max(size for level, size in merged if level == top)
    if rows > 2 * largest:
        return top + 1
    falls = int(math.log(largest / max(rows, 1), FAN_IN) + 1e-9) if largest else 0
    return max(0, top - max(0, falls))


def before_merge(owners: Owners, sections: Mapping[str, Sequence[pa.Table]]) -> dict[str, list[pa.Table]]:
    """The sections of a state, rearranged by its owners before they are merged one by one."""
    ready: dict[str, list[pa.Table]] = {}
    for owner, advance in owners:
        rows_of = sections
        if len(owners) > 1:  # each by its own windows and progress
            rows_of = {name: owner.own_rows(tables) for name, tables in sections.items()}
        for name, tables in owner.before_merge(rows_of, advance).items():
            ready.setdefault(name, []).extend(tables)
    return ready


def compacted(owners: Owners, sections: Mapping[str, Sequence[pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Every section as one table, with the rows that its owners still need."""
    for name, tables in sections.items():
        yield (
            name,
            gathered([owner.compact(name, owner.own_rows(tables), advance) for owner, advance in owners]),
        )
