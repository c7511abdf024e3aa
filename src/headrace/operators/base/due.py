"""The next punctuation at which waiting rows have an effect: one microsecond after the least of their instants that the
present punctuation has not passed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import Sections
from headrace.time import FOREVER, Instant


def settles(instants: Ints, punctuation: Instant) -> Instant:
    """One microsecond after the least of the instants that are not below the punctuation; the end of time without one.

    >>> settles(np.array([7, 3, 5]), 4), settles(np.array([3]), 4)
    (6, 9223372036854775807)
    """
    least = int(np.min(instants, where=instants >= punctuation, initial=FOREVER))
    return min(least + 1, FOREVER)


def first_settles(ascending: Ints, punctuation: Instant) -> Instant:
    """The same, of instants in order."""
    index = int(np.searchsorted(ascending, punctuation))
    return FOREVER if index == len(ascending) else min(int(ascending[index]) + 1, FOREVER)


def waiting_settle(runs: Sequence[Sections], section: str, instants: str, punctuation: Instant) -> Instant:
    """When the first of a section's rows settles that waits for punctuation; `instants` is their column of instants."""
    tables = (run[section] for run in runs if section in run)
    return min((settles(ints(table, instants), punctuation) for table in tables), default=FOREVER)
