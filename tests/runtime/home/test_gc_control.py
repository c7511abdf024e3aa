"""What is traversed for cycles: not what a worker has loaded, after every task of Spark, nor the definitions of a long script again and again."""

from __future__ import annotations

import datetime as dt
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.gc_control import MANY, registering
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@pytest.mark.spark
def test_after_a_task_of_ours_few_objects_are_walked_through(spark: SparkSession, tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", spark=spark, tasks=2) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at")
        select = "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECONDS] WHERE v >"
        hub.register_many({f"q{number}": f"{select} {number}" for number in range(1000)})
        for second in range(3):
            hub.push("s", [{"at": START + dt.timedelta(seconds=second), "v": 1}])
            hub.catch_up()

    def seen(_: int) -> tuple[int, int]:
        return gc.get_freeze_count(), len(gc.get_objects())

    for out_of_sight, sought in spark.sparkContext.parallelize(range(2), 2).map(seen).collect():
        assert out_of_sight > 50_000, "modules of PySpark, Arrow, pandas and ours, and the plan"
        assert sought < 2_000, (out_of_sight, sought)


@pytest.fixture
def nothing_excluded() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def young() -> set[int]:
    """What collections of the younger generations traverse."""
    return {id(one) for generation in (0, 1) for one in gc.get_objects(generation=generation)}


@pytest.mark.usefixtures("nothing_excluded")
def test_what_a_long_script_has_made_is_old_at_once() -> None:
    made: list[list[int]] = []
    with registering(many=True):
        made.extend([number] for number in range(5_000))
        assert not gc.isenabled()
    assert gc.isenabled()
    assert not young() & set(map(id, made))
    assert gc.get_freeze_count() == 0


def register_many(hub: Hub, queries: Mapping[str, str]) -> None:
    hub.register_many(queries)


def in_a_script(hub: Hub, queries: Mapping[str, str]) -> None:
    comment = 400 * "-"
    hub.execute("".join(f"{comment}\nCREATE QUERY {name} AS {select};\n" for name, select in queries.items()))


@pytest.mark.usefixtures("nothing_excluded")
@pytest.mark.parametrize("define", [register_many, in_a_script])
def test_so_are_the_definitions_of_many_queries(
    tmp_path: Path, define: Callable[[Hub, Mapping[str, str]], None]
) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at")
        select = "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECONDS] WHERE v >"
        define(hub, {f"q{number}": f"{select} {number}" for number in range(MANY)})
        definitions = {id(query.definition) for query in hub.home.catalog.queries.values()}
        assert len(definitions) == MANY
        assert not young() & definitions


class Node:
    """One end of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.mark.usefixtures("nothing_excluded")
def test_cycles_of_a_long_script_are_collected() -> None:
    with registering(many=True):
        first, second = Node(), Node()
        first.other, second.other = second, first
        gone = weakref.ref(first)
        del first, second
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("nothing_excluded")
def test_a_script_that_fails_leaves_the_collector_as_it_was() -> None:
    with pytest.raises(ValueError, match="mistake"), registering(many=True):
        raise ValueError("a mistake")
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("nothing_excluded")
def test_what_others_have_excluded_remains_so() -> None:
    gc.freeze()
    excluded = gc.get_freeze_count()
    with registering(many=True):
        made = [[number] for number in range(5_000)]
    assert gc.get_freeze_count() <= excluded
    assert gc.get_freeze_count() > excluded / 2
    del made


@pytest.mark.usefixtures("nothing_excluded")
def test_a_short_script_changes_nothing() -> None:
    with registering(many=False):
        assert gc.isenabled()
        made = [[] for _ in range(100)]
    assert young() & set(map(id, made))
