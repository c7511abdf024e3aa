"""Reading ahead: the order of batches, where errors are raised, and what is read before it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.runtime.tasks.scan.read_ahead import read_ahead

LARGE, SMALL = 1 << 16, 10
_SECONDS = 30


class Batches:
    """Batches of some sizes; notes which were read, and by which thread."""

    def __init__(self, sizes: list[int], fails_at: int = -1) -> None:
        self.sizes, self.fails_at = sizes, fails_at
        self.threads: list[str] = []
        self.read = [threading.Event() for _ in sizes]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for number, size in enumerate(self.sizes):
            self.threads.append(threading.current_thread().name)
            self.read[number].set()
            if number == self.fails_at:
                raise OSError("the disk is gone")
            yield number, size


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read_")]


def rows(batch: tuple[int, int]) -> int:
    return batch[1]


@pytest.mark.parametrize(
    "sizes", [[], [SMALL], [LARGE], [SMALL, LARGE, SMALL, 0, LARGE], [LARGE] * 5, [0, 0]]
)
def test_batches_come_in_their_order(sizes: list[int]) -> None:
    assert list(read_ahead(iter(Batches(sizes)), rows)) == list(enumerate(sizes))


def test_the_batch_after_the_callers_is_read_and_no_more() -> None:
    batches = Batches([LARGE] * 4)
    for number, _ in read_ahead(iter(batches), rows):
        if number + 1 < 4:
            assert batches.read[number + 1].wait(_SECONDS)
        assert not any(event.is_set() for event in batches.read[number + 2 :])


def test_small_batches_are_read_without_a_thread() -> None:
    batches = Batches([SMALL] * 3)
    assert len(list(read_ahead(iter(batches), rows))) == 3
    assert set(batches.threads) == {threading.current_thread().name}


def test_an_error_is_raised_after_the_batches_before_it() -> None:
    ahead = read_ahead(iter(Batches([LARGE, LARGE, LARGE], fails_at=2)), rows)
    assert [next(ahead), next(ahead)] == [(0, LARGE), (1, LARGE)]
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)


def test_a_caller_that_stops_leaves_no_thread() -> None:
    with closing(read_ahead(iter(Batches([LARGE] * 3)), rows)) as ahead:
        next(ahead)
        assert len(readers()) == 1
    assert readers() == []
