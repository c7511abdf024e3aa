"""Samples of one stream for several queries: each by its own shares, of live rows and of archived ones, and by value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.shedding_estimates import MORE, SPREAD, WEIGHT
from headrace.algebra.quality_of_service import Importance
from headrace.archive.blocks import hashes_of, seed_of
from headrace.operators.base.batch import Batch
from headrace.overload.nested_samples import NestedSamples
from headrace.overload.shedding import intervals_of, is_sampled
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.tasks.scan.shed_rows import BatchSamples, SampledRows, Samples, sampled_at
from headrace.runtime.tasks.timing import Timed

POSITIONS = np.arange(20_000)
VALUES = POSITIONS % 7
SEED = seed_of("s")
HASHES = hashes_of(POSITIONS, SEED)
IMPORTANCE = Importance("v", (2.0, 5.0), (0.1, 0.5, 1.0))
LIVE = Split("s", 0)


@dataclass
class Reader:
    """What it was given."""

    batches: list[Batch] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)

    @property
    def positions(self) -> list[int]:
        return [position for batch in self.batches for position in batch.position.tolist()]


def batch() -> Batch:
    return Batch({"v": pa.array(VALUES), "unread": pa.array(VALUES)}, POSITIONS, POSITIONS)


def sampled(operator: str, rate: float, *shares: float, split: Split = LIVE) -> tuple[Reader, SampledRows]:
    reader = Reader()
    importance = IMPORTANCE if len(shares) == 3 else None
    readers = [cast("Timed", reader)]
    part = SampledRows(readers, frozenset({"v"}), SEED, rate, operator, importance, shares or (1.0,))
    samples = Samples([part])
    samples.add(batch(), split)
    samples.flush()
    return reader, part


@pytest.mark.parametrize(
    ("rate", "share", "used"), [(1, 1, 1), (1, 0.25, 0.25), (0.25, 1, 0.25), (0.5, 0.25, 0.25)]
)
def test_the_lesser_of_the_stream_s_share_and_the_query_s_own_holds(
    rate: float, share: float, used: float
) -> None:
    reader, part = sampled("q", rate, share)
    assert reader.positions == POSITIONS[is_sampled(HASHES, used)].tolist()
    assert part.shed == len(POSITIONS) - len(reader.positions)
    assert reader.batches[0].columns[WEIGHT].to_pylist()[:1] == [1 / used]


@pytest.mark.parametrize(
    ("split", "used"),
    [
        (Split("s", 0, sample_rate=1.0, shares={"q": (0.5,), "other": (0.1,)}), 0.5),
        (Split("s", 0, sample_rate=0.25, shares={"q": (0.5,)}), 0.25),
        (Split("s", 0, sample_rate=1.0), 1.0),
        (LIVE, 0.125),
    ],
)
def test_archived_rows_have_the_shares_of_their_epoch_whatever_is_in_force(split: Split, used: float) -> None:
    reader, _ = sampled("q", 1.0, 0.125, split=split)
    assert reader.positions == POSITIONS[is_sampled(HASHES, used)].tolist()


def test_each_interval_has_its_own_share_and_weight() -> None:
    shares = (1 / 32, 0.5, 1.0)
    reader, part = sampled("q", 1.0, *shares)
    (got,) = reader.batches
    intervals = np.searchsorted([2, 5], VALUES, side="right")
    wanted = np.zeros(len(POSITIONS), bool)
    for interval, share in enumerate(shares):
        wanted |= (intervals == interval) & is_sampled(HASHES, share)
    assert got.position.tolist() == POSITIONS[wanted].tolist()
    weights = 1 / np.array(shares)[intervals[wanted]]
    assert got.columns[WEIGHT].to_pylist() == weights.tolist()
    assert got.columns[MORE].to_pylist() == (weights - 1).tolist()
    assert got.columns[SPREAD].to_pylist() == (weights * (weights - 1)).tolist()
    assert part.arrived.tolist() == np.bincount(intervals).tolist()
    assert set(got.columns) == {"v", WEIGHT, MORE, SPREAD}


def test_a_query_is_not_given_the_share_of_another() -> None:
    one, other = Reader(), Reader()
    samples = Samples(
        [
            SampledRows([cast("Timed", reader)], frozenset({"v"}), SEED, 1.0, name, None, (share,))
            for reader, name, share in ((one, "a", 0.25), (other, "b", 1.0))
        ]
    )
    samples.add(batch(), LIVE)
    samples.flush()
    assert len(one.positions) < 6000 < len(other.positions) == len(POSITIONS)
    assert samples.shed == len(POSITIONS) - len(one.positions)
    assert samples.arrived == {"a": (20_000,), "b": (20_000,)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, 2, 4, 5, None], pa.int32()), [0, 1, 1, 2, 2]),
        (pa.array([1.9, 2.0, float("nan"), -1e300, 1e300]), [0, 1, 2, 0, 2]),
        (pa.array([None, None], pa.float64()), [2, 2]),
        (pa.array(["1.99", "5.00"]).cast(pa.decimal128(10, 2)), [0, 2]),
    ],
)
def test_a_value_is_below_the_first_bound_that_is_greater(values: pa.Array, expected: list[Any]) -> None:
    assert intervals_of(values, IMPORTANCE).tolist() == expected


@given(
    st.lists(st.sampled_from((1.0, 0.9, 0.5, 0.3, 0.25, 0.1, 1 / 32, 1 / 33, 1e-4)), min_size=1, max_size=6)
)
def test_samples_of_a_batch_are_the_same_whatever_others_were_taken_before(rates: list[float]) -> None:
    samples = NestedSamples(lambda: HASHES)
    for rate in rates:
        assert samples.rows(rate).tolist() == np.flatnonzero(is_sampled(HASHES, rate)).tolist()
        around, hashes = samples.around(rate)
        assert set(samples.rows(rate).tolist()) <= set(around.tolist())
        assert (hashes == HASHES[around]).all()


def test_without_shedding_all_batches_and_queries_have_the_same_columns_of_weights() -> None:
    """A weight of 1 for each row, and the 0 that it lacks, are no memory of each batch of each query."""
    at = np.arange(1000)
    batches = [Batch({"v": pa.array(at[:size])}, at[:size], at[:size]) for size in (1000, 700)]
    shown = [sampled_at(batch, BatchSamples.of(batch, 7).nested, 1.0) for batch in batches]
    for name, weight in ((WEIGHT, 1.0), (MORE, 0.0), (SPREAD, 0.0)):
        assert [batch.columns[name].to_pylist() for batch in shown] == [[weight] * 1000, [weight] * 700]
        addresses = {batch.columns[name].buffers()[1].address for batch in shown}
        assert len(addresses) == 1
    shed = sampled_at(batches[0], BatchSamples.of(batches[0], 7).nested, 0.25)
    assert set(shed.columns[WEIGHT].to_pylist()) == {4.0}
    assert set(shed.columns[SPREAD].to_pylist()) == {12.0}
