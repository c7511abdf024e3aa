"""EXPLAIN QUERY is for people: of no operator does it show how a value is spelled in Python."""

from __future__ import annotations

import re
from pathlib import Path

from tests.runtime.rig import QUERIES, Rig

_SPELLED = re.compile(r"\b[A-Z]\w*[a-z]\w*\(|\w+=[^ ]|<\w+[ .:]|\bNone\b|\{'")


def test_settings_are_shown_in_words(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(
        1, {**QUERIES, "joined": "SELECT s.k, names.name FROM s JOIN names ON s.g = names.id"}
    ) as hub:
        texts = {name: hub.execute(f"EXPLAIN QUERY {name}")[0].message for name in (*QUERIES, "joined")}
    assert not {name: spelled for name, text in texts.items() if (spelled := _SPELLED.findall(text))}
    assert "stored of each row: k, x, y" in texts["some"]
    assert "keep rows where (x > 3)" in texts["some"]
    assert "a row is valid for 10 SECONDS, both ends included" in texts["now"]
    assert "aggregates: count(*), sum(x)" in texts["ever"]
