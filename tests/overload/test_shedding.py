"""What is kept of a stream, and what a thousand draws show of estimates: unbiased, and 95 % intervals that cover as often."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.blocks import blocks_of, hashes_of
from headrace.catalog.definitions import StreamDefinition
from headrace.language.binder.query_binder import bind_query
from headrace.operators.base.batch import Batch
from headrace.overload.shedding import is_sampled, weight_of
from headrace.planner.lowering.lower import lower
from headrace.runtime.tasks.scan.shed_rows import shown_of
from headrace.schema import BIGINT, DOUBLE, TIMESTAMP, Field, Schema
from headrace.time import SECOND
from tests.language.catalog import Catalog
from tests.operators.local_driver import drive

POSITIONS = np.arange(5000) + (3 << 32)
shares = st.floats(2.0**-40, 1.0)


@given(one=shares, other=shares, seed=st.integers(0, 2**32 - 1))
def test_what_is_kept_at_a_share_is_kept_at_every_greater_one(one: float, other: float, seed: int) -> None:
    hashes = hashes_of(POSITIONS, seed)
    low, high = sorted((one, other))
    assert not (is_sampled(hashes, low) & ~is_sampled(hashes, high)).any()
    assert is_sampled(hashes, 1.0).all()


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_a_share_keeps_the_first_blocks_of_the_archive(data: st.DataObject, seed: int) -> None:
    blocks = data.draw(st.sampled_from((2, 4, 16, 1024)))
    first = data.draw(st.integers(1, blocks))
    wanted = blocks_of(POSITIONS, seed, blocks) < first
    assert (is_sampled(hashes_of(POSITIONS, seed), first / blocks) == wanted).all()


@given(
    seed=st.integers(0, 2**32 - 1), keep=st.sampled_from((0.5, 0.25, 0.1)), cuts=st.sets(st.integers(1, 4999))
)
def test_the_same_rows_are_kept_however_a_batch_is_cut(seed: int, keep: float, cuts: set[int]) -> None:
    columns = {"v": pa.array(POSITIONS)}
    whole = shown_of(Batch(columns, POSITIONS, POSITIONS), seed, keep)
    parts = [
        shown_of(Batch({"v": pa.array(each)}, each, each), seed, keep)
        for each in np.split(POSITIONS, sorted(cuts))
    ]
    assert np.concatenate([part.position for part in parts]).tolist() == whole.position.tolist()
    assert whole.columns["v"].to_pylist() == whole.position.tolist()
    assert abs(whole.rows - keep * 5000) < 6 * sqrt(5000 * keep * (1 - keep))


@pytest.mark.parametrize("keep", [1.0, 0.5, 0.3, 2.0**-40])
def test_a_row_stands_for_as_many_as_its_share_says(keep: float) -> None:
    assert weight_of(keep) * keep == pytest.approx(1)


# ------------------------------------------------------------------------------------------------ a thousand draws

DRAWS, ROWS = 1000, 400
SHARES = (0.25, 0.5)
"""Of the first and of the second half of the rows."""
TEXT = (
    "SELECT draw, COUNT(*) AS n, COUNT(*) FILTER (WHERE v < 30) AS few, SUM(v) AS total, AVG(v) AS mean,"
    " AVG(v) FILTER (WHERE v > 20) AS high FROM s [RANGE TUMBLING 1 HOUR] GROUP BY draw WITH SHEDDING"
)


@dataclass(frozen=True)
class Drawn:
    """Estimates and errors of each draw, and what they estimate."""

    estimates: np.ndarray
    errors: np.ndarray
    truth: float

    @property
    def mean(self) -> float:
        """Of the estimates."""
        return float(self.estimates.mean())

    @property
    def standard_error(self) -> float:
        """Of that mean."""
        return float(self.estimates.std(ddof=1)) / sqrt(DRAWS)

    @property
    def covered(self) -> float:
        """How often the truth is in the interval."""
        return float((np.abs(self.estimates - self.truth) <= self.errors).mean())


@cache
def drawn() -> dict[str, Drawn]:
    """The rows of one window under a thousand seeds, each draw a group, in one go."""
    v = np.random.default_rng(7).gamma(2.0, 20.0, ROWS)
    position = np.arange(ROWS)
    catalog = Catalog("")
    schema = Schema((Field("draw", BIGINT), Field("v", DOUBLE), Field("at", TIMESTAMP)))
    catalog.streams["s"] = StreamDefinition("s", schema, "push", time="at")
    query = bind_query(TEXT, catalog)
    operator = lower("q", query, "q0")
    epochs = []
    for keep, half in zip(SHARES, np.split(position, 2), strict=True):
        batches = []
        for seed in range(DRAWS):
            columns = {"draw": pa.repeat(pa.scalar(seed), len(half)), "v": pa.array(v[half])}
            batches.append(shown_of(Batch(columns, half * SECOND, half), seed, keep))
        names = batches[0].columns
        together = {name: pa.concat_arrays([each.columns[name] for each in batches]) for name in names}
        at = np.concatenate([each.at for each in batches])
        epochs.append([Batch(together, at, np.concatenate([each.position for each in batches]))])
    results = drive(operator, epochs, [0, 0]).results
    assert results is not None
    assert results.num_rows == DRAWS
    truths = {
        "n": float(ROWS),
        "few": float((v < 30).sum()),
        "total": v.sum(),
        "mean": v.mean(),
        "high": v[v > 20].mean(),
    }
    return {
        name: Drawn(results.column(name).to_numpy(), results.column(f"{name}_error").to_numpy(), float(truth))
        for name, truth in truths.items()
    }


@pytest.mark.parametrize("name", ["n", "few", "total", "mean", "high"])
def test_the_mean_of_a_thousand_estimates_is_within_three_standard_errors(name: str) -> None:
    found = drawn()[name]
    assert abs(found.mean - found.truth) <= 3 * found.standard_error


@pytest.mark.parametrize("name", ["n", "few", "total", "mean", "high"])
def test_intervals_of_95_percent_cover_93_to_97_of_a_hundred(name: str) -> None:
    assert 0.93 <= drawn()[name].covered <= 0.97


@pytest.mark.parametrize("name", ["n", "few", "total", "mean", "high"])
def test_errors_are_as_large_as_estimates_are_spread(name: str) -> None:
    found = drawn()[name]
    spread = 1.96 * found.standard_error * sqrt(DRAWS)
    assert float(found.errors.mean()) == pytest.approx(spread, rel=0.1)
