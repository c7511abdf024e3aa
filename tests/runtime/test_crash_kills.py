"""Real kills of a whole process group in the middle of epochs, with and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.killing import Assassin


@pytest.mark.parametrize("seed", [101, 102])
def test_a_driver_killed_four_times_answers_as_if_it_never_was(seed: int, tmp_path: Path) -> None:
    assassin = Assassin(tmp_path, seed)
    for _ in range(4):
        assassin.kill_one()
    assert min(assassin.committed) >= 3
    assassin.assert_nothing_happened()


@pytest.mark.spark
def test_a_driver_with_its_jvm_and_workers_killed_twice_answers_as_if_it_never_was(tmp_path: Path) -> None:
    assassin = Assassin(tmp_path, 103, "spark")
    for _ in range(2):
        assassin.kill_one()
    assassin.assert_nothing_happened()
