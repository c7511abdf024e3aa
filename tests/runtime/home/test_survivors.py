"""What survives a full collection is left out of later ones, and cycles in it are found once there are twice as many values."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from headrace.runtime.home import gc_control
from headrace.runtime.home.gc_control import Survivors, exclude_survivors


class Cycle:
    """A value that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def survivors() -> Iterator[Survivors]:
    threshold = gc.get_threshold()
    made = exclude_survivors()
    yield made
    gc.callbacks.remove(made)
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.collect()


def test_survivors_are_traversed_once(survivors: Survivors) -> None:
    assert gc.get_freeze_count() > 30_000, "the modules of the tests"
    lasting = [[] for _ in range(50_000)]
    assert len(gc.get_objects()) > 50_000
    gc.collect()
    assert len(gc.get_objects()) < 10_000
    assert len(lasting) == 50_000


def test_cycles_that_die_young_are_found_by_the_next_collection(survivors: Survivors) -> None:
    gc.collect()
    dead = weakref.ref(Cycle())
    assert dead() is not None
    gc.collect()
    assert dead() is None


def test_cycles_among_survivors_are_found_when_there_are_twice_as_many(survivors: Survivors) -> None:
    long_lived = Cycle()
    seen = weakref.ref(long_lived)
    gc.collect()
    del long_lived
    collected_often()
    assert seen() is not None
    reviewed = survivors.reviewed
    lasting = [[] for _ in range(2 * reviewed)]
    collected_often()
    assert seen() is None
    assert survivors.reviewed > len(lasting)
    reviewed = survivors.reviewed
    lasting.append([])
    collected_often()
    assert survivors.reviewed == reviewed, "not before they are twice as many again"


def collected_often() -> None:
    for _ in range(gc_control._COUNTED + 1):
        gc.collect()
