"""Sharing switched off and on again while queries run: the same answers, work and a state of one's own.

STREAM shares near-identical synopses by one store with a stub for each user, which "can be switched on and off at run time" (AQP-13).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.catalog.definition_json import from_json, to_json
from headrace.catalog.definitions import QueryDefinition
from headrace.language.statements.create_text import create_query_text
from headrace.operators.families.family import state_name
from headrace.operators.sharing import scan_sharing
from headrace.operators.sharing.scan_sharing import groups
from headrace.runtime.hub.hub import Hub
from tests.runtime.rig import Rig, answers, cut, expected, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
ALIKE = {
    f"q{low}": f"SELECT k, COUNT(*) AS n, AVG(x) AS m FROM s [RANGE 12 SECONDS SLIDE 4 SECONDS] WHERE x > {low} GROUP BY k"
    for low in range(4)
}
OTHERS = {
    "longer": "SELECT k, SUM(x) AS t FROM s [RANGE 40 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "grouped": "SELECT g, COUNT(*) AS n FROM s [RANGE TUMBLING 8 SECONDS] GROUP BY g",
    "rows": "SELECT SUM(x) AS t FROM s [ROWS 5 SLIDE 2]",
}
FILES = cut(made_rows(13, 80), *range(10, 80, 10))


def folded_with(hub: Hub, name: str) -> set[str]:
    """Whose rows are folded together with those of a query."""
    operators = [hub.operator_and_query(query)[0] for query in [*ALIKE, *OTHERS]]
    (together,) = [
        {operator.query for operator in members}
        for _, members in groups(operators)
        if name in {operator.query for operator in members}
    ]
    return together


def test_answers_stay_whoever_shares_and_whenever_that_changes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    names = [*ALIKE, *OTHERS]
    for index, file in enumerate(FILES):
        rig.drop(file)
        with rig.hub(1 + index % 3, None if index else ALIKE | OTHERS) as hub:
            hub.catch_up()
            hub.execute(f"ALTER QUERY {names[index % len(names)]} SET (sharing 'off')")
            if index > 2:
                hub.execute(f"ALTER QUERY {names[(index - 3) % len(names)]} SET (sharing 'on')")
            hub.loop.step()
    with rig.hub(2) as hub:
        assert {name for name in names if not hub.catalog.require_query(name).definition.sharing} == {
            names[index % len(names)] for index in range(len(FILES) - 3, len(FILES))
        }
        for name, rows in answers(hub, hub.run_once()).items():
            assert rows == expected(hub.operator_and_query(name)[1], FILES), name


def test_a_query_without_sharing_folds_and_keeps_by_itself_and_the_others_go_on_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_sharing, "MOST_SEPARATE_FILTERS", 0)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with rig.hub(2, ALIKE | OTHERS) as hub:
        hub.catch_up()
        assert folded_with(hub, "q1") >= set(ALIKE)
        family = hub.operator_and_query("q1")[0].family_key
        assert family is not None
        (said,) = hub.execute("ALTER QUERY q1 SET (sharing 'off')")
        assert said.message == "query q1 shares panes with no other query"
        hub.catch_up()
        alone = hub.operator_and_query("q1")[0]
        assert (folded_with(hub, "q1"), state_name(alone)) == ({"q1"}, alone.id)
        assert {hub.operator_and_query(name)[0].family_key for name in ALIKE if name != "q1"} == {family}
        message = hub.execute("EXPLAIN QUERY q1")[0].message
        assert "shares its panes with no query (sharing 'off')" in message
        assert "its own" in message
        hub.execute("ALTER QUERY q1 SET (sharing 'on')")
        assert folded_with(hub, "q1") >= set(ALIKE)
        assert hub.operator_and_query("q1")[0].family_key == family


@pytest.mark.parametrize("sharing", [True, False])
def test_the_log_and_the_text_keep_it(sharing: bool, tmp_path: Path) -> None:
    text = "SELECT k FROM s"
    definition = QueryDefinition("q", text, sharing=sharing)
    assert from_json(QueryDefinition, to_json(definition)) == definition
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(create_query_text(definition))
        assert hub.catalog.require_query("q").definition == definition
