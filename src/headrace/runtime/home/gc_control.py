"""Control of Python's garbage collector: disabled in a block that makes thousands of values without cycles, and the
imported modules of a process excluded from it (`gc.freeze`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

MANY: Final = 300
"""From this number of queries on the collector is disabled while their values are made."""


@contextmanager
def collector_disabled(when: bool) -> Iterator[None]:
    """The collector is disabled in the block, where `when` is true.

    It would traverse thousands of syntax trees, operators or tables repeatedly: a third of the time to register ten thousand
    queries, and of an epoch that they take part in. What is left after the block is traversed once.
    """
    disabled = when and gc.isenabled()
    if disabled:
        gc.disable()
    try:
        yield
    finally:
        if disabled:
            gc.enable()


def freeze_modules() -> None:
    """Exclude the modules of a worker from collection, once and again after it has imported more.

    PySpark has its worker collect cycles after every task. Traversing the modules of PySpark, Arrow, pandas and Headrace took
    60 ms, in which the next task waited: longer than the rest of a small epoch. Called as a task begins, when the cycles of the
    previous task have just been collected, so that none is retained.
    """
    _frozen(len(sys.modules))


@lru_cache(maxsize=1)
def _frozen(modules: int) -> int:
    """Freeze once for a number of modules."""
    gc.freeze()
    return modules
