"""A review of state runs merges none of their rows, or a sample: what it finds is near to what a merge of all would keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.operator import SLOT
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import RunRef
from headrace.runtime.tasks.state import run_reviews
from headrace.runtime.tasks.state.run_reviews import MOST_ROWS, RunReviews, bytes_but_spilled, sample_of
from headrace.runtime.tasks.state.state_runs import TaskRun
from headrace.store.files.filesystem import LocalStore
from headrace.time import SECOND

GROUPS = 1500
EPOCHS = 70


def push(hub: Hub, second: int, groups: Sequence[int]) -> None:
    at = np.full(len(groups), second * SECOND) + np.arange(len(groups))
    keys = pa.array(groups, pa.int64())
    hub.push("s", pa.table({"k": keys, "at": pa.array(at).cast(pa.timestamp("us", "UTC"))}))
    hub.loop.drain()


@pytest.mark.parametrize("merges", [False, True])
def test_what_a_review_estimates_is_near_to_what_a_merge_of_all_rows_shows(
    merges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a merge, of rows of windows that have expired; or by a merge of a sample, as of states of all other kinds."""
    reviewed, estimate = list[tuple[float, float, int]](), RunReviews._obsolete_bytes

    def both(self: RunReviews, state: str, runs: Sequence[TaskRun]) -> float:
        by_merge = replace(self, unexpired=lambda *_: {})
        estimated = estimate(by_merge if merges else self, state, runs)
        with monkeypatch.context() as patch:
            patch.setattr(run_reviews, "MOST_ROWS", 1 << 40)
            of_all = estimate(by_merge, state, runs)
        reviewed.append((estimated, of_all, sum(run.bytes_of(state) for run in runs)))
        return estimated

    monkeypatch.setattr(RunReviews, "_obsolete_bytes", both)
    with Hub(tmp_path, LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (k BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 0 SECONDS;")
        hub.register("SELECT k, COUNT(*) AS n FROM s [RANGE 20 SECONDS SLIDE 1 SECOND] GROUP BY k", "q")
        random = np.random.default_rng(3)
        for second in range(EPOCHS):
            push(hub, second, random.integers(0, 2 * GROUPS, GROUPS).tolist())
    shares = [(estimated / stored, of_all / stored) for estimated, of_all, stored in reviewed]
    assert len(shares) > EPOCHS // 5
    assert sum(estimated != of_all for estimated, of_all in shares) > 3, (
        "it reads not all rows of large states"
    )
    assert max(of_all for _, of_all in shares) > 0.3
    assert min(of_all for _, of_all in shares) < 0.1
    for estimated, of_all in shares:
        assert estimated == pytest.approx(of_all, abs=0.05)


@pytest.mark.parametrize("turn", [0, 5, 300])
def test_a_sample_has_all_rows_of_some_slots(turn: int) -> None:
    slots = np.random.default_rng(1).integers(0, 256, 5 * MOST_ROWS).astype(np.int16)
    table = pa.table({SLOT: slots, "x": np.arange(len(slots))})
    sections = {"open0": [table.slice(0, 7000), table.slice(7000, 6000)], "sealed0": [table.slice(13_000)]}
    sample = sample_of(sections, turn)
    rows = pa.concat_tables([part for tables in sample.values() for part in tables])
    assert MOST_ROWS <= rows.num_rows <= 1.1 * MOST_ROWS
    chosen = np.isin(slots, rows.column(SLOT).to_numpy())
    assert np.array_equal(rows.column("x").to_numpy(), np.flatnonzero(chosen))
    assert [len(tables) for tables in sample.values()] == [2, 1]


def test_other_turns_read_other_rows_and_few_rows_are_all_read() -> None:
    table = pa.table({SLOT: (np.arange(2 * MOST_ROWS) % 256).astype(np.int16)})
    first, second = (sample_of({"rows": [table]}, turn)["rows"][0] for turn in (0, 200))
    assert set(first.column(SLOT).to_pylist()) != set(second.column(SLOT).to_pylist())
    few = {"rows": [table.slice(0, MOST_ROWS)]}
    assert sample_of(few, 3) is few


def test_rows_that_joins_have_spilled_do_not_count(tmp_path: Path) -> None:
    """Else a run whose rows a merge would move to disk had as many bytes after it as before."""
    rows = pa.table({SLOT: pa.array([0, 1], pa.int16()), "v": pa.array([1, 2])})
    sections = {"q/left": rows, "q/left_spilled": pa.concat_tables([rows] * 3), "q/left_spilled_keys": rows}
    run = TaskRun(LocalStore(tmp_path), RunRef("r", 0, 256, 0, 10), sections, False)
    assert run.bytes == 5 * rows.nbytes
    assert run.bytes_but_spilled == 2 * rows.nbytes
    assert bytes_but_spilled((name, [table]) for name, table in sections.items()) == 2 * rows.nbytes
