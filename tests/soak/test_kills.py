"""Two hundred kills at random moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.killing import Assassin


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1018))
def test_ten_kills_of_a_driver_change_no_answer(seed: int, tmp_path: Path) -> None:
    assassin = Assassin(tmp_path, seed)
    for _ in range(10):
        assassin.kill_one()
    assassin.assert_nothing_happened()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000, 2004))
def test_five_kills_of_a_driver_on_spark_change_no_answer(seed: int, tmp_path: Path) -> None:
    assassin = Assassin(tmp_path, seed, "spark")
    for _ in range(5):
        assassin.kill_one()
    assassin.assert_nothing_happened()
