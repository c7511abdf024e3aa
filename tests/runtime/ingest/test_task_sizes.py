"""How an epoch's splits are divided between tasks: even for the cores, in order, and each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.admission import TaskSize, balanced, in_parts, packed
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import (
    ScanMessage,
    ScanReceipt,
    Split,
    StateMessage,
    StateReceipt,
)


def splits(weights: list[int]) -> list[tuple[Split, int]]:
    return [(Split("s", ordinal), weight) for ordinal, weight in enumerate(weights)]


def sizes(weights: list[int], cores: int, tasks: int) -> list[int]:
    return [
        sum(weights[split.ordinal] for split in group) for group in balanced(splits(weights), cores, tasks)
    ]


@given(st.lists(st.integers(1, 5_000_000), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 16))
def test_every_split_is_in_one_task_in_order(weights: list[int], cores: int, tasks: int) -> None:
    groups = balanced(splits(weights), cores, tasks)
    assert [split.ordinal for group in groups for split in group] == list(range(len(weights)))
    assert len(groups) <= tasks


@pytest.mark.parametrize(
    ("files", "cores", "expected"),
    [
        (20, 4, [5, 5, 5, 5]),  # eight tasks of three and two files would take as long as six files
        (21, 4, [3, 3, 3, 3, 3, 3, 3]),  # four would have six at most: two groups of three are no more
        (16, 4, [4, 4, 4, 4]),
        (4, 4, [1, 1, 1, 1]),
        (3, 4, [1, 1, 1]),
    ],
)
def test_large_files_are_even_on_the_cores(files: int, cores: int, expected: list[int]) -> None:
    million = 1_000_000
    made = sizes([million] * files, cores, min(2 * cores, files))
    assert _ends(made, cores) <= _ends([size * million for size in expected], cores)


def test_a_large_file_has_a_task_of_its_own_beside_small_ones() -> None:
    weights = [4_000_000, *[500_000] * 8]
    made = sizes(weights, 2, 4)
    assert made[0] == 4_000_000
    assert _ends(made, 2) < 5_000_000


@given(st.lists(st.integers(1, 5_000_000), min_size=1, max_size=40), st.integers(1, 8))
def test_neither_one_nor_two_tasks_a_core_end_earlier(weights: list[int], cores: int) -> None:
    most = min(2 * cores, len(weights))
    made = _ends(sizes(weights, cores, most), cores)
    for number in (min(cores, most), most):
        groups = packed(splits(weights), number)
        other = [sum(weights[split.ordinal] for split in group) for group in groups]
        assert made <= _ends(other, cores)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 5))
@example([1, 1], 2)
@example([1, 1], 5)
@example([1, 1, 2, 1], 3)
def test_no_other_division_has_a_lighter_heaviest_task(weights: list[int], tasks: int) -> None:
    made = [sum(weights[split.ordinal] for split in group) for group in packed(splits(weights), tasks)]
    assert len(made) <= tasks
    assert all(made)
    assert sum(made) == sum(weights)
    edges = [
        (0, *cuts, len(weights))
        for number in range(min(tasks, len(weights)))
        for cuts in combinations(range(1, len(weights)), number)
    ]
    assert max(made) == min(max(sum(weights[low:high]) for low, high in pairwise(cut)) for cut in edges)


def test_groups_are_even_since_weights_may_be_wrong() -> None:
    assert [len(group) for group in packed(splits([10, *[1] * 9]), 8)] == [1, 1, 1, 1, 1, 1, 2, 2]
    assert [len(group) for group in packed(splits([1] * 9), 4)] == [2, 2, 2, 3]


def test_a_last_file_of_a_few_rows_leaves_large_files_even() -> None:
    assert sizes([500_000] * 16 + [16], 2, 2) == [4_000_000, 4_000_016]


def test_there_are_two_tasks_a_core_where_one_is_uneven() -> None:
    assert len(sizes([1_000_000] * 4 + [700_000] * 4, 4, 8)) == 8


def _ends(groups: list[int], cores: int) -> int:
    """When the last core has done its groups, each with its fixed cost: the core that is free first takes the next."""
    busy = [0] * cores
    for size in groups:
        first = busy.index(min(busy))
        busy[first] += 300_000 + size
    return max(busy)


def test_rows_that_take_long_are_enough_for_a_task_in_smaller_numbers() -> None:
    size = TaskSize()
    assert size.rows(replay=False) is None
    size.saw(replay=False, rows=100_000, seconds=1.0)
    assert size.rows(replay=False) == 5_000
    assert size.rows(replay=True) is None
    size.saw(replay=True, rows=100_000, seconds=0.1)
    assert size.rows(replay=True) == 50_000
    size.saw(replay=False, rows=100_000, seconds=2.0)
    assert 2_500 < (size.rows(replay=False) or 0) < 5_000


def test_an_epoch_of_few_rows_shows_nothing_and_no_task_has_few() -> None:
    size = TaskSize()
    size.saw(replay=False, rows=10, seconds=1.0)
    assert size.rows(replay=False) is None
    size.saw(replay=False, rows=2_000, seconds=60.0)
    assert size.rows(replay=False) == 2_000


@pytest.mark.parametrize(
    ("dear_rows", "tasks"), [(None, 1), (200_000, 1), (50_000, 1), (30_000, 2), (10_000, 4), (1, 4)]
)
def test_dear_rows_have_more_tasks_up_to_two_a_core(dear_rows: int | None, tasks: int) -> None:
    work = EpochWork("epoch", tuple(splits([10_000] * 6)))
    assert work.tasks(2, dear_rows) == tasks
    assert EpochWork("epoch", tuple(splits([60_000]))).tasks(2, dear_rows) == 1


@pytest.mark.parametrize(
    ("weights", "enough", "cores", "parts"),
    [
        ([999], 1_000, 4, [1]),
        ([1_999], 1_000, 4, [1]),
        ([2_000], 1_000, 4, [2]),
        ([9_001], 1_000, 4, [4]),
        ([9_000, 9_000, 9_000, 9_000], 1_000, 2, [1, 1, 1, 1]),  # as many as it takes already
        ([65_536, 18_380], 4_000, 2, [2, 1]),
        ([0], 1, 2, [1]),
    ],
)
def test_a_run_of_the_archive_with_more_than_the_share_of_a_core_has_parts(
    weights: list[int], enough: int, cores: int, parts: list[int]
) -> None:
    of_runs = [(Split("s", number, archived="run"), weight) for number, weight in enumerate(weights)]
    divided = in_parts(of_runs, enough, cores)
    assert [(split.ordinal, split.part) for split, _ in divided] == [
        (run, (part, of)) for run, of in enumerate(parts) for part in range(of)
    ]
    assert [weight for _, weight in divided] == [
        weight // of for weight, of in zip(weights, parts, strict=True) for _ in range(of)
    ]
    records = splits(weights)
    assert in_parts(records, enough, cores) == records


class Timed(LocalExecutor):
    """Notes how many scan tasks each epoch has, and reports that a row took so many seconds."""

    def __init__(self, cores: int, of_a_row: float) -> None:
        self.cores, self.of_a_row, self.tasks = cores, of_a_row, list[int]()

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        self.tasks.append(len(scans))
        first, *others = super().run(scans, states)
        return [replace(first, scans=tuple(map(self._timed, first.scans))), *others]

    def _timed(self, scan: ScanReceipt) -> ScanReceipt:
        rows = sum(stream.rows for stream in scan.streams.values())
        return replace(scan, seconds={"scan": self.of_a_row * rows, "fold": 0.0})


@pytest.mark.parametrize(("cores", "of_a_row", "tasks"), [(2, 1e-5, 2), (2, 1e-8, 1), (1, 1e-5, 1)])
def test_the_tasks_of_an_epoch_follow_what_the_epochs_before_took(
    tmp_path: Path, cores: int, of_a_row: float, tasks: int
) -> None:
    executor = Timed(cores, of_a_row)
    with Hub(tmp_path / "home", executor, tasks=1) as hub:
        hub.execute("CREATE STREAM s (v BIGINT) USING push; CREATE QUERY q AS SELECT COUNT(*) AS n FROM s")
        for _ in range(2):
            for _ in range(2):
                hub.push("s", pa.table({"v": range(6_000)}))
            hub.catch_up()
        live = [number for number in executor.tasks if number]
        assert live == [1, tasks]
        assert hub.query("q").invoke().to_pylist() == [{"n": 24_000}]
        hub.execute("CREATE QUERY later AS SELECT v FROM s WHERE v < 10")
        hub.catch_up()
        assert hub.query("later").history().num_rows == 40
        assert max(executor.tasks[len(live) :]) == 1  # no backfill was measured yet
        before = len(executor.tasks)
        hub.execute("CREATE QUERY last AS SELECT v FROM s WHERE v < 20")
        hub.catch_up()
        assert hub.query("last").history().num_rows == 80
        assert max(executor.tasks[before:]) == tasks


def test_one_entry_of_the_archive_is_read_by_several_tasks_where_rows_take_long(tmp_path: Path) -> None:
    executor = Timed(2, 1e-5)
    with Hub(tmp_path / "home", executor, tasks=1) as hub:
        hub.execute("CREATE STREAM s (v BIGINT) USING push")
        hub.push("s", pa.table({"v": range(12_001)}))
        hub.catch_up()
        for name in ("first", "second"):
            before = len(executor.tasks)
            hub.execute(f"CREATE QUERY {name} AS SELECT v FROM s")
            hub.catch_up()
            found = hub.query(name).history().column("v").to_pylist()
            assert found == list(range(12_001))
        assert max(executor.tasks[before:]) == 2
