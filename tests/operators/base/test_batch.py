"""Batches whose event times are read only if they are asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.algebra.expressions.series import AT, POSITION
from headrace.operators.base.batch import Batch, EventTimes

INSTANTS = np.array([30, 10, 20, 40])


class Source:
    """Four instants that note how often they were read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> np.ndarray:
        self.reads += 1
        return INSTANTS


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def batch(source: Source) -> Batch:
    return Batch({"v": pa.array([1, 2, 3, 4])}, EventTimes(4, (10, 40), source), np.arange(4))


def test_times_are_read_once_and_when_they_are_asked_for(batch: Batch, source: Source) -> None:
    derived = [
        batch,
        batch.where(np.array([True, False, True, True])),
        batch.take(np.array([3, 3, 0])),
        batch.only(frozenset()),
        batch.with_columns({"w": pa.nulls(4)}),
        *batch.parts(3),
    ]
    assert [part.rows for part in derived] == [4, 3, 3, 4, 4, 3, 1]
    assert {part.times.bounds for part in derived} == {(10, 40)}
    assert list(batch.readable) == ["v", AT, POSITION]
    assert batch.readable["v"].to_pylist() == [1, 2, 3, 4]
    assert source.reads == 0
    assert [part.at.tolist() for part in derived] == [
        [30, 10, 20, 40],
        [30, 20, 40],
        [40, 40, 30],
        [30, 10, 20, 40],
        [30, 10, 20, 40],
        [30, 10, 20],
        [40],
    ]
    assert batch.readable[AT].to_pylist() == INSTANTS.tolist()
    assert batch.readable[POSITION].to_pylist() == [0, 1, 2, 3]
    assert source.reads == 1


def test_bounds_of_an_array_are_its_least_and_greatest() -> None:
    assert EventTimes.of(INSTANTS).bounds == (10, 40)
    assert EventTimes.of(INSTANTS, (0, 50)).bounds == (0, 50)


def test_times_of_several_batches_follow_each_other(source: Source) -> None:
    both = EventTimes.joined([EventTimes(4, (10, 40), source), EventTimes.of(np.array([5, 6]))])
    assert (both.rows, both.bounds, source.reads) == (6, (5, 40), 0)
    assert both.instants.tolist() == [30, 10, 20, 40, 5, 6]
