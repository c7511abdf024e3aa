"""Two hundred kills at random moments: `make kills` runs them alone, shows its progress, and continues where it was cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.killing import Assassin
from tests.soak.ledger import Ledger

PLAN = (
    dict.fromkeys(range(1000, 1014), (10, "local"))
    | dict.fromkeys(range(2000, 2006), (5, "spark"))
    | dict.fromkeys(range(3000, 3006), (5, "standing"))
)
"""Seed → how many kills, and what runs the epochs."""
TOTAL = sum(kills for kills, _ in PLAN.values())


@pytest.fixture(scope="module")
def counted() -> Ledger:
    return Ledger(TOTAL)


def test_the_plan_is_two_hundred_kills() -> None:
    assert TOTAL == 200


@pytest.mark.soak
@pytest.mark.parametrize("seed", PLAN)
def test_kills_of_a_driver_change_no_answer(
    seed: int, tmp_path: Path, counted: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    kills, executor = PLAN[seed]
    if counted.is_finished(seed, kills):
        pytest.skip("it has passed with these very sources; remove .soak to run it again")
    with capsys.disabled():
        assassin = Assassin(tmp_path, seed, executor)
        for _ in range(kills):
            assassin.kill_one()
            counted.kill(seed, assassin.committed[-1])
        assassin.assert_nothing_happened()
        counted.passed(seed, kills)


def test_a_ledger_goes_on_where_a_run_with_the_same_sources_was_cut_short(tmp_path: Path) -> None:
    said: list[str] = []
    ticks = iter(range(0, 600, 60))
    first = Ledger(20, tmp_path / "soak" / "kills.jsonl", said.append, lambda: next(ticks))
    for _ in range(10):
        first.kill(1, 4)
    assert said[1] == "kill 2 of 20 (seed 1, after 4 epochs), about 18 min left"
    assert not Ledger(20, first.file).is_finished(1, 10)
    first.passed(1, 10)
    again = Ledger(20, first.file, said.append, lambda: 0.0)
    assert again.is_finished(1, 10)
    assert not again.is_finished(1, 11)
    assert not again.is_finished(2, 10)
    again.kill(2, 3)
    assert said[-1] == "kill 11 of 20 (seed 2, after 3 epochs)"
    first.file.write_text(first.file.read_text().replace('"sources": "', '"sources": "other'))
    assert not Ledger(20, first.file).is_finished(1, 10)
