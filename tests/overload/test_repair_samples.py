"""The rows that repair reads of an archived split: all of those of which some were shed, each standing for itself."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from headrace.algebra.expressions.shedding_estimates import MORE, WEIGHT
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.tasks.scan.shed_rows import SampledRows, Samples
from headrace.runtime.tasks.timing import Timed
from tests.overload.test_samples import IMPORTANCE, POSITIONS, SEED, VALUES, Reader, batch


def read(split: Split, *shares: float) -> Reader:
    """What a query that repairs is given of a split; `shares` are those in force now."""
    reader = Reader()
    importance = IMPORTANCE if len(shares) == 3 else None
    readers = [cast("Timed", reader)]
    part = SampledRows(readers, frozenset({"v"}), SEED, 1.0, "q", importance, shares, repairs=True)
    samples = Samples([part])
    samples.add(batch(), split)
    samples.flush()
    weights = [value for given in reader.batches for value in given.columns[WEIGHT].to_pylist()]
    assert set(weights) <= {1.0}
    assert all(value == 0 for given in reader.batches for value in given.columns[MORE].to_pylist())
    return reader


@pytest.mark.parametrize(
    ("shares", "shed"),
    [((0.25, 1.0, 0.5), (0, 2)), ((1.0, 1.0, 0.125), (2,)), ((0.5, 0.5, 0.5), (0, 1, 2))],
)
def test_only_intervals_of_which_rows_were_shed_are_read_again(
    shares: tuple[float, ...], shed: tuple[int, ...]
) -> None:
    split = Split("s", 0, archived="run", sample_rate=1.0, shares={"q": shares}, repairs=True)
    interval = np.searchsorted(np.array(IMPORTANCE.bounds), VALUES, side="right")
    assert read(split, 1.0, 1.0, 1.0).positions == POSITIONS[np.isin(interval, shed)].tolist()


def test_where_the_stream_kept_a_share_all_rows_are_read_again() -> None:
    split = Split("s", 0, archived="run", sample_rate=0.5, shares={"q": (0.25, 1.0, 1.0)}, repairs=True)
    assert read(split, 1.0, 1.0, 1.0).positions == POSITIONS.tolist()


def test_a_backfill_reads_all_rows_whatever_was_kept() -> None:
    split = Split("s", 0, archived="run", sample_rate=0.5, shares={"q": (0.25,)})
    assert read(split, 0.125).positions == POSITIONS.tolist()
