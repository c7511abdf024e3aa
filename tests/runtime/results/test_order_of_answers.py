"""ORDER BY orders what is shown, whichever operator answers."""

from __future__ import annotations

from pathlib import Path

import pytest

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
