"""Control of Python's garbage collector: disabled in a block that makes thousands of values without cycles; what lives long in a
worker or in a serving process excluded from it (`gc.freeze`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from headrace.dataclass import dataclass

MANY: Final = 300
"""From this number of queries on the collector is disabled while their values are made."""

_OFTEN: Final = (5_000, 5, 2)
"""How many more values are made than freed until the youngest are traversed, and how often that happens until older ones are.

With Python's own 700 most of the youngest would be freed soon after. A full collection has at most some 90,000 values to traverse.
"""
_FULL: Final = 2
"""The generation of a collection of all."""
_COUNTED: Final = 16
"""Full collections until the excluded values are counted."""
_GROWTH: Final = 2
"""By this factor excluded values may grow until all are traversed again."""


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


@contextmanager
def registering(many: bool) -> Iterator[None]:
    """As `collector_disabled`, for a block whose values live as long as the hub: after it all values of the process are old, as if they had
    survived every collection of younger ones.

    Python would traverse them three times until they are old, a tenth of the time to register thousands of queries. Young cycles are then found
    by the next full collection, which may be later than otherwise: Python counts neither these values nor the collections before. Does nothing
    more than `collector_disabled` while values are excluded from collection.
    """
    with collector_disabled(many):
        try:
            yield
        finally:
            if many and not gc.get_freeze_count():
                gc.freeze()  # all go to the excluded ones, and from there to the oldest generation, without a traversal
                gc.unfreeze()


@dataclass(slots=True)
class Survivors:
    """Values that have survived a full collection, which further ones leave out: the catalog, the plan and the modules of a process
    that stays.

    A full collection stops all threads. With ten thousand queries it took 0.3 to 0.7 s, ten times while these were registered. Cycles
    among excluded values are found when there are `_GROWTH` times as many as after the last traversal of all.
    """

    reviewed: int = 0
    """How many were left by the last traversal of all."""
    _collections: int = 0
    """Since they were counted, which takes a walk through all."""
    _reviews: bool = True

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Before and after a collection, see `gc.callbacks`."""
        if info["generation"] < _FULL:
            return
        if phase == "stop":
            gc.freeze()
            self._collections += 1
            if self._reviews:
                self.reviewed, self._reviews = gc.get_freeze_count(), False
        elif self._collections >= _COUNTED:
            self._collections = 0
            self._reviews = gc.get_freeze_count() > _GROWTH * self.reviewed
            if self._reviews:
                gc.unfreeze()


def exclude_survivors() -> Survivors:
    """From now on leave what survives a full collection out of later ones, for the rest of the process; called once, when it is set up."""
    survivors = Survivors()
    gc.callbacks.append(survivors)
    gc.set_threshold(*_OFTEN)
    gc.collect()
    return survivors


def exclude_survivors_of_tasks() -> None:
    """Exclude from collection what a worker has loaded; called as a task begins, when the cycles of the one before have been collected.

    PySpark has its worker collect all cycles after every task. Traversing its modules and ours took 60 ms, and the plan of ten thousand
    queries as much again, in which the next task waited.
    """
    if not any(isinstance(callback, Survivors) for callback in gc.callbacks):
        gc.callbacks.append(Survivors())
        gc.freeze()
