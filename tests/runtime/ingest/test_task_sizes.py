"""How an epoch's splits are divided between tasks: even for the cores, in order, and each once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.ingest.admission import balanced, packed
from headrace.runtime.messages.task_messages import Split


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


def test_there_are_two_tasks_a_core_where_one_is_uneven() -> None:
    assert len(sizes([1_000_000] * 4 + [700_000] * 4, 4, 8)) == 8


def _ends(groups: list[int], cores: int) -> int:
    """When the last core has done its groups, each with its fixed cost: the core that is free first takes the next."""
    busy = [0] * cores
    for size in groups:
        first = busy.index(min(busy))
        busy[first] += 300_000 + size
    return max(busy)
