"""Real kills of a driver and all it has started in the middle of epochs, with and without Spark."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.runtime.killing import Assassin


def assert_killed(assassin: Assassin, times: int) -> None:
    """Several epochs were committed before each kill, and every life, the last one too, had another number of tasks."""
    assert len(assassin.committed) == times
    assert min(assassin.committed) >= 3
    assert len(assassin.tasks) == times + 1
    assert all(before != after for before, after in itertools.pairwise(assassin.tasks))


@pytest.mark.parametrize("seed", [101, 102])
def test_a_driver_killed_three_times_answers_as_if_it_never_was(seed: int, tmp_path: Path) -> None:
    assassin = Assassin(tmp_path, seed)
    for _ in range(3):
        assassin.kill_one()
    assassin.assert_nothing_happened()
    assert_killed(assassin, 3)


@pytest.mark.spark
@pytest.mark.timeout(1200)  # each life starts a JVM: half a minute in all on a machine at rest
def test_a_driver_with_its_jvm_and_workers_killed_four_times_answers_as_if_it_never_was(
    tmp_path: Path,
) -> None:
    assassin = Assassin(tmp_path, 103)
    for executor in ("spark", "standing", "standing", "spark"):
        assassin.executor = executor
        assassin.kill_one()
    assert min(assassin.workers) >= 2  # the daemon, and a worker at least: they died with the driver
    assert max(assassin.tasks[1:3]) >= 2
    assert max(assassin.workers[1:3]) >= 3  # two standing tasks
    assassin.assert_nothing_happened()
    assert_killed(assassin, 4)
