"""INVOKE of a relation is R(NOW) also where punctuation has passed NOW: a heartbeat or PUNCTUATE expires no row of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.reference.evaluate import invoke
from headrace.reference.history import History, record
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.laws.comparing import canonical
from tests.runtime import rig as rigs
from tests.runtime.rig import Rig, cut, made_rows

RELATIONS = {
    "last": "SELECT k, x FROM s [RANGE 3 SECONDS]",
    "here": "SELECT k, x FROM s [NOW]",
    "all_of_them": "SELECT COUNT(*) AS n, MAX(x) AS top FROM s [RANGE 2 SECONDS]",
    "each": "SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS] GROUP BY k",
    "bounds": "SELECT k, x FROM s BEGIN NOW - INTERVAL 3 SECONDS END NOW",
    "rows": "SELECT k, x FROM s [ROWS 3]",
    "met": "SELECT a.k, a.x, b.x AS other FROM s a [RANGE 3 SECONDS], s b [RANGE 5 SECONDS] WHERE a.k = b.k",
    "left": "SELECT a.k, b.x FROM s a [RANGE 3 SECONDS] LEFT JOIN s b [NOW] ON a.k = b.k",
    "others": "SELECT k FROM s [RANGE 6 SECONDS] EXCEPT SELECT k FROM s [RANGE 2 SECONDS]",
    "nested": "SELECT n, COUNT(*) AS many FROM (SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS] GROUP BY k) AS c GROUP BY n",
    "named": "SELECT names.name, s.x FROM s [RANGE 3 SECONDS] JOIN names ON s.g = names.id",
}
ROWS = made_rows(5, 40)
FILES = cut(ROWS, 12, 13, 30)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("materialize", ["", "OPTIONS (materialize 'complete')"])
def test_rows_that_punctuation_has_passed_are_in_the_answer_until_now_passes_them(
    tmp_path: Path, tasks: int, materialize: str
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(tasks) as hub:
        hub.execute(rig.script({}))
        for name, text in RELATIONS.items():
            options = materialize if "BEGIN" in text else ""
            hub.execute(f"CREATE QUERY {name} {options} AS {text}")
        for number in range(len(FILES)):
            rig.drop(FILES[number])
            hub.catch_up()
            assert_now(hub, number + 1)
            last = max(row["at"] for row in FILES[number])
            gap = (
                min([row["at"] for file in FILES[number + 1 :] for row in file], default=last + 99 * SECOND)
                - last
            )
            for ahead in sorted({gap // 2, gap}):
                hub.execute(punctuate(last + ahead))
                hub.catch_up()
                assert_now(hub, number + 1)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_late_row_is_in_no_answer_and_does_not_move_now(tmp_path: Path, tasks: int) -> None:
    """Its event time is above those of all accepted rows, and below the punctuation."""
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(tasks) as hub:
        hub.execute(rig.script({}))
        for name, text in RELATIONS.items():
            hub.execute(f"CREATE QUERY {name} AS {text}")
        rig.drop(FILES[0])
        hub.catch_up()
        last = max(row["at"] for row in FILES[0])
        hub.execute(punctuate(last + 100 * SECOND))
        hub.catch_up()
        rig.drop([{**FILES[0][0], "at": last + 50 * SECOND}])
        hub.catch_up()
        assert hub.status()["streams"]["s"]["late"] == 1
        assert_now(hub, 1)


def punctuate(instant: int) -> str:
    seconds, micros = divmod(instant, SECOND)
    return f"PUNCTUATE s AT TIMESTAMP '1970-01-01 00:{seconds // 60:02d}:{seconds % 60:02d}.{micros:06d}'"


def assert_now(hub: Hub, files: int) -> None:
    """Every answer is the reference's at NOW."""
    history = History({"s": record([list(file) for file in FILES[:files]], "at", 0)}, {"names": rigs.NAMES})
    for name in RELATIONS:
        query = hub.operator_and_query(name)[1]
        meant = invoke(query, history, history.punctuation(query))
        assert canonical(hub.query(name).invoke().to_pylist()) == canonical(meant), (name, files)
