"""A hot key of a join, of two streams and of three sides, on Spark itself: state tasks measure it in processes of their own, its rows are divided between them, and answers are the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from headrace.runtime.hub.hub import Hub
from headrace.runtime.spark import spark_executor
from headrace.runtime.spark.given_session import GivenSession
from headrace.runtime.spark.spark_executor import SparkExecutor
from headrace.runtime.spark.standing import standing_tasks
from headrace.runtime.spark.standing.standing_tasks import Use
from headrace.time import SECOND
from tests.laws.two_streams import Row, expected, script, table
from tests.runtime.queries.test_hot_key_joins import keys
from tests.runtime.rig import answer

pytestmark = pytest.mark.spark

EPOCHS = 8
HOT = "hot"
FROM = "a x [RANGE 2 SECONDS SLIDE 1 SECOND], b y [RANGE 2 SECONDS SLIDE 1 SECOND]"
OF_TWO = {
    "by_key": f"SELECT x.k, COUNT(*) AS n, MAX(x.v - y.v) AS top FROM {FROM} WHERE x.k = y.k AND x.v < y.v GROUP BY x.k",
    "rows": f"SELECT x.v, y.v AS w FROM {FROM} WHERE x.k = y.k AND y.v - x.v BETWEEN 0 AND 3",
}
OF_THREE = {
    "three": "SELECT x.v, y.v AS w, z.v AS u FROM a x [RANGE 1 SECOND SLIDE 1 SECOND], b y [RANGE 1 SECOND SLIDE 1 SECOND],"
    " a z [RANGE 1 SECOND SLIDE 1 SECOND] WHERE x.k = y.k AND y.k = z.k AND x.v < y.v AND y.v < z.v"
}


def part(side: int, epoch: int, rows: int) -> list[Row]:
    """So many rows of a side in a second, half a second out of order: three quarters of them have the hot key, some have none."""
    rng = np.random.default_rng((81, side, epoch))
    others = [None, *"abcdefghij"]
    at = epoch * SECOND + np.sort(rng.integers(0, SECOND, rows)) - rng.integers(0, SECOND // 2, rows)
    return [
        {
            "k": HOT if rng.random() < 0.75 else others[rng.integers(len(others))],
            "v": int(rng.integers(0, 400)) or None,
            "d": None,
            "at": int(instant),
        }
        for instant in at
    ]


def take(hub: Hub, epochs: Sequence[tuple[list[Row], list[Row]]]) -> list[list[int]]:
    """The work of each task in each epoch, of one of the joins."""
    loads = []
    for parts in epochs:
        for name, rows in zip("ab", parts, strict=True):
            hub.push(name, table(rows))
        hub.catch_up()
        loads += list(hub.status()["last_epoch"].get("loads", {}).values())[:1]
    return loads


def uneven(loads: Sequence[int]) -> float:
    """How uneven the work of tasks is: 0 if all have as much, 1 if one has everything."""
    return float((max(loads) / np.mean(loads) - 1) / (len(loads) - 1))


@pytest.mark.parametrize(
    ("use", "before", "after", "queries", "rows"),
    [("never", 4, 3, OF_TWO, 80), ("always", 2, 2, OF_TWO, 80), ("never", 4, 3, OF_THREE, 24)],
)
def test_a_hot_key_is_divided_between_tasks_and_every_answer_is_that_of_the_reference(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: Use,
    before: int,
    after: int,
    queries: dict[str, str],
    rows: int,
) -> None:
    """As jobs, where the driver ends in between and the next one has another number of tasks, and in standing tasks."""
    monkeypatch.setattr(standing_tasks, "tasks_for", lambda *_: before)
    monkeypatch.setattr(SparkExecutor, "few_rows", 0)
    monkeypatch.setattr(spark_executor, "_LEVELS_ROWS", 0)
    epochs = [(part(0, epoch, rows), part(1, epoch, rows)) for epoch in range(EPOCHS)]
    slacks, cut = (SECOND, SECOND), EPOCHS - 2
    with Hub(tmp_path / "home", SparkExecutor(GivenSession(spark), standing=use), tasks=before) as hub:
        hub.execute(script(str(tmp_path), slacks))
        hub.execute(
            "".join(
                f"CREATE QUERY {name} OPTIONS (sharing 'off') AS {query};" for name, query in queries.items()
            )
        )
        loads, divided = take(hub, epochs[:cut]), keys(hub)
    with Hub(tmp_path / "home", SparkExecutor(GivenSession(spark), standing=use), tasks=after) as hub:
        assert keys(hub) == divided
        take(hub, epochs[cut:])
        hub.finish(seal=True)
        answers = {name: answer(hub, name, {}) for name in queries}
        bound = {name: hub.operator_and_query(name)[1] for name in queries}
    assert [key.current.parts for key in divided] == [before] * len(queries)
    assert uneven(loads[0]) > 0.75
    assert uneven(loads[-1]) < 0.25
    for name, query in bound.items():
        assert len(answers[name]) > EPOCHS
        assert repr(answers[name]) == repr(expected(query, epochs, slacks)), name
