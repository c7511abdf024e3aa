"""When does Python's collector of cycles only cost? While thousands of values are made that hold none."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

MANY: Final = 300
"""Queries whose values are more than the collector should walk through."""


@contextmanager
def no_cycles_sought(wanted: bool) -> Iterator[None]:
    """The collector sleeps for the length of the block: it would walk through thousands of syntax trees, operators or
    tables, again and again, for cycles that are not there; a third of the time of registering ten thousand queries, and of
    an epoch that they take part in. What the block leaves behind is looked at once, after it.
    """
    sleeps = wanted and gc.isenabled()
    if sleeps:
        gc.disable()
    try:
        yield
    finally:
        if sleeps:
            gc.enable()


def modules_not_sought() -> None:
    """What a worker has loaded leaves the collector's sight, whenever it has loaded more.

    After every task PySpark has its worker look for cycles. Walking through the modules of PySpark, Arrow, pandas and ours
    took 60 ms, in which the next task waited: longer than all else in a small epoch. Called as a task begins, when cycles of
    the one before have just been collected, so that none is kept for good.
    """
    _out_of_sight(len(sys.modules))


@lru_cache(maxsize=1)
def _out_of_sight(modules: int) -> int:
    """Once for so many modules."""
    gc.freeze()
    return modules
