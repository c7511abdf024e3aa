"""ORDER BY orders what is shown, whichever operator answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.time import SECOND
from tests.runtime.rig import Rig, cut, made_rows

APPROXIMATE = "APPROX_COUNT(*) WITHIN 20 PERCENT AS n"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, {APPROXIMATE} FROM s [RANGE 40 SECONDS SLIDE 1 SECOND] GROUP BY k ORDER BY k DESC",
        f"SELECT k, {APPROXIMATE} FROM s [RANGE 40 SECONDS] GROUP BY k ORDER BY k DESC",
    ],
)
def test_an_answer_is_in_the_order_of_its_query(tmp_path: Path, query: str) -> None:
    rig = Rig(tmp_path)
    rig.drop(*cut(made_rows(5, 300, disorder=2 * SECOND), 150))
    with rig.hub(queries={"q": query}) as hub:
        hub.run_once()
        keys = hub.query("q").invoke().column("k").to_pylist()
    known = [key for key in keys if key is not None]
    assert len(set(known)) > 1
    assert known == sorted(known, reverse=True)


def test_revised_sessions_are_shown_in_the_order_of_their_query(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(*cut(made_rows(5, 300, disorder=2 * SECOND), 150))
    query = "SELECT k, COUNT(*) AS n FROM s [SESSION 1 SECOND] GROUP BY k ORDER BY k DESC WITH REVISIONS"
    with rig.hub(queries={"q": query}) as hub:
        hub.run_once()
        changes = hub.query("q").history().to_pylist()
    shown: dict[tuple[object, ...], list[str]] = {}
    for row in changes:
        if row["k"] is not None:
            shown.setdefault((row["__at"], row["__change"]), []).append(row["k"])
    assert max(map(len, shown.values())) > 1
    for keys in shown.values():
        assert keys == sorted(keys, reverse=True)


ROWS = [
    [("b", 2, 1), ("a", 9, 1), (None, 1, 2), ("b", 5, 3)],
    [("c", 7, 3), ("b", 1, 4)],
    [("a", 0, 4), ("c", 3, 4), ("b", 8, 5)],
]
"""The key, the value and the second of the rows of three epochs."""


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT k FROM s GROUP BY k ORDER BY COUNT(*) DESC, k", ["b", "a", "c", None]),
        ("SELECT k FROM s GROUP BY k ORDER BY SUM(v) DESC LIMIT 3", ["b", "c", "a"]),
        ("SELECT COUNT(*) AS n FROM s GROUP BY k", [1, 2, 4, 2]),
        ("SELECT k FROM s [RANGE 2 SECONDS] ORDER BY v DESC", ["b", "c", "b", "c", "b", "a"]),
        ("SELECT k FROM s [ROWS 4] ORDER BY v", ["a", "b", "c", "b"]),
        ("SELECT x.k FROM s [ROWS 3] AS x, s [ROWS 1] AS y ORDER BY x.v + y.v DESC", ["b", "c", "a"]),
    ],
)
def test_a_relation_is_in_the_order_of_what_it_does_not_show(
    tmp_path: Path, query: str, answer: list[object]
) -> None:
    with hr.open(tmp_path, local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        asked = hub.register(query, name="q")
        for rows in ROWS:
            keys, values, seconds = zip(*rows, strict=True)
            at = [datetime.fromtimestamp(second, UTC) for second in seconds]
            hub.push("s", pa.table({"k": pa.array(keys, pa.string()), "v": values, "at": at}))
            hub.run_once()
        assert asked.invoke().column(0).to_pylist() == answer
        changes = [tuple(row.values()) for row in asked.history().to_pylist()]
    assert {sign for *_, sign, _ in changes} <= {1, -1}
    assert not {(value, at) for value, sign, at in changes if sign > 0} & {
        (value, at) for value, sign, at in changes if sign < 0
    }  # a row that only moves in the order is no change
