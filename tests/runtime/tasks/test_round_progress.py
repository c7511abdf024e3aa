"""The advances of a round: one for all operators that follow a stream, and one for each whose progress is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.operators.panes.damage import Damage
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import StateMessage
from headrace.runtime.progress.plan_index import PlanIndex, index_of
from headrace.runtime.tasks.state.round_progress import RoundProgress

SCRIPT = "CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at"
QUERIES = dict.fromkeys(("a", "b"), "SELECT SUM(v) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]")
NOW = 90


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PlanIndex:
    path: Path = tmp_path_factory.mktemp("home")
    with Hub(path, LocalExecutor()) as hub:
        hub.execute(SCRIPT)
        hub.register_many(QUERIES)
        return index_of(hub.plan)


def advances(index: PlanIndex, **facts: Any) -> list[Any]:
    """Of both queries, in an epoch that moves their stream from 50 to 90."""
    before, after = StreamProgress(50, 60), StreamProgress(NOW, NOW)
    facts = {"emitted_to": {}, "followers": True, **facts}
    message = StateMessage("", "", 1, 0, 0, 256, (), {"s": before}, **facts)
    progress = RoundProgress.of(index, message, {"s": after})
    return [progress.advance(operator) for operator in index.readers["s"]]


def test_operators_that_follow_their_stream_have_one_advance(index: PlanIndex) -> None:
    one, other = advances(index)
    assert one is other
    assert (one.emitted_to, one.punctuation) == (50, NOW)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"emitted_to": 7}, (7, NOW)),
        ({"punctuation": 70}, (50, 70)),
        ({"emitted_to": 7, "punctuation": 30}, (7, 30)),
        ({"resting": 8}, (8, NOW)),
    ],
)
def test_an_operator_with_its_own_progress_has_its_own_advance(
    index: PlanIndex, which: int, facts: dict[str, int], expected: tuple[int, int]
) -> None:
    name = index.readers["s"][which].id
    own = advances(index, **{fact: {name: at} for fact, at in facts.items()})
    assert (own[which].emitted_to, own[which].punctuation) == expected
    assert (own[1 - which].emitted_to, own[1 - which].punctuation) == (50, NOW)


@pytest.mark.parametrize("which", [0, 1])
def test_damage_is_that_of_its_operator(index: PlanIndex, which: int) -> None:
    damage = Damage.__new__(Damage)
    found = advances(index, damage={index.readers["s"][which].id: damage})
    assert [one.damage is damage for one in found] == [number == which for number in (0, 1)]
