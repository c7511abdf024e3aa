"""Which state runs to merge: size-tiered, so that a row is rewritten a logarithmic number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.runtime.messages import RunRef

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
