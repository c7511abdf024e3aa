"""Panes that cannot be taken over: only the query that should have them is concerned, and it reads the archive instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.operators.families.cohort import Cohort
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.backfill import pane_backfill
from tests.runtime.rig import Rig, cut, expected, faults_once_tidy
from tests.runtime.statements.test_alter_window import (
    ONE_FILE,
    SLACK,
    TEXT,
    UNKEPT,
    WINDOWS,
    after,
    all_answers,
    comparable,
    disordered,
    kinds,
    place,
    punctuation,
)

QUERIES = {
    "q": TEXT.format(window=WINDOWS[0], where=""),
    "other": TEXT.format(window=WINDOWS[0], where="WHERE x > 0"),
}
REASON = "since the panes of q could not be taken over: ValueError: too wide"


@pytest.fixture(params=["scan", "state"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Handing panes over fails for the operator named by "operator", in scan tasks or as state takes them."""
    concerned: dict[str, str] = {}
    transferred, advance = pane_backfill.transferred, Cohort.advance

    def fails_in_scan(source: Any, new: PaneAggregate, *others: Any) -> Any:
        if new.id == concerned.get("operator"):
            raise ValueError("too wide")
        return transferred(source, new, *others)

    def fails_in_state(self: Cohort, *others: Any) -> Any:
        if any(query.id == concerned.get("operator") for query in self.queries) and "panes" not in concerned:
            raise ValueError("too wide")
        return advance(self, *others)

    if request.param == "scan":
        monkeypatch.setattr(pane_backfill, "transferred", fails_in_scan)
    else:
        monkeypatch.setattr(Cohort, "advance", fails_in_state)
    return concerned


@pytest.mark.parametrize("options", [ONE_FILE, UNKEPT])
def test_issue_18_a_pane_backfill_that_fails_concerns_its_query_alone(
    options: dict[str, str], tmp_path: Path, broken: dict[str, str]
) -> None:
    files = cut(disordered(3, 200), 60, 120)
    rig = Rig(tmp_path, options, SLACK)
    with rig.hub(2, QUERIES) as hub:
        rig.drop(*files[:2])
        hub.catch_up()
        seen, changed_at = kinds(hub), punctuation(hub)
        hub.execute(f"ALTER QUERY q SET WINDOW {WINDOWS[1]}; ALTER QUERY other SET WINDOW {WINDOWS[1]}")
        broken["operator"] = hub.catalog.require_query("q").operator_id
        assert hub.loop.step() is not None
        broken["panes"] = "handed over"
        hub.catch_up()
        kept = options is ONE_FILE
        assert seen[0] == "fill"
        assert ("replay" in seen) == kept
        assert place(hub, "other").backfilled_from == "the panes of other"
        assert REASON in place(hub, "q").backfilled_from
        assert place(hub, "q").backfilled_from.startswith("the archive, " if kept else "nothing, ")
        assert "taken over: ValueError: too wide" in hub.execute("EXPLAIN QUERY q")[0].message
        assert hub.status()["failed"] == {}
    with rig.hub(1) as hub:  # also after a restart
        rig.drop(files[2])
        found = all_answers(hub)
        of_q = files if kept else [[], [], files[2]]
        assert found["other"] == after(expected(hub.operator_and_query("other")[1], files, SLACK), changed_at)
        assert found["q"] == after(expected(hub.operator_and_query("q")[1], of_q, SLACK), changed_at)
        assert faults_once_tidy(hub) == []


def test_issue_18_what_fails_over_the_archive_too_is_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, ONE_FILE, SLACK)
    with rig.hub(2, QUERIES) as hub:
        files = cut(disordered(3, 200), 60, 120)
        rig.drop(*files)
        hub.catch_up()
        changed_at = punctuation(hub)
        hub.execute(f"ALTER QUERY q SET WINDOW {WINDOWS[1]}")
        broken, advance = hub.catalog.require_query("q").operator_id, Cohort.advance

        def fails(self: Cohort, *others: Any) -> Any:
            if any(query.id == broken for query in self.queries):
                raise ValueError("too wide")
            return advance(self, *others)

        monkeypatch.setattr(Cohort, "advance", fails)
        hub.catch_up()
        assert hub.status()["failed"] == {"q": "ValueError: too wide"}
        monkeypatch.undo()
        hub.execute("RESUME QUERY q")
        found = all_answers(hub)
        for name in ("q", "other"):
            whole = expected(hub.operator_and_query(name)[1], files, SLACK)
            assert found[name] == (after(whole, changed_at) if name == "q" else comparable(whole))
