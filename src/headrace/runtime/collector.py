"""When does Python's collector of cycles only cost? While thousands of values are made that hold none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
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
