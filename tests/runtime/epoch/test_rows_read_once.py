"""The last epochs of a home that is deleted: rows that no query reads again are not archived, and answers are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.overload.memory import Limits
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import QUERIES, SEVERAL, Rig, answers, cut, made_rows

SAMPLED = {
    "sampled": "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k WITH SHEDDING (repair)",
    "asked": "SELECT k, x FROM s [RANGE 10 SECONDS]",
    "over": "SELECT COUNT(*) AS n FROM tumble [ROWS 3]",
}
READS_AGAIN = {"mended", *SEVERAL, *SAMPLED}
"""Asked for later, corrected, joined, of several inputs, from samples, over the results of another one."""


def archived(hub: Hub) -> list[Path]:
    return [path for path in (hub.path / "archive").rglob("*") if path.is_file()]


def rig_of(folder: Path) -> Rig:
    rig = Rig(folder, {"maxFilesPerTrigger": "1"}, slack=SECOND)
    rig.drop(*cut(made_rows(7, 90, disorder=20 * SECOND), 30, 60))
    return rig


@pytest.mark.parametrize("name", [*QUERIES, *SEVERAL, *SAMPLED])
def test_answers_without_an_archive_are_those_with_one(tmp_path: Path, name: str) -> None:
    options = " OPTIONS (materialize 'partial')" if name == "asked" else ""
    text = (QUERIES | SEVERAL | SAMPLED)[name]
    queries = {"tumble": QUERIES["tumble"], name: text} if name == "over" else {name + options: text}
    seen = []
    for last in (False, True):
        with rig_of(tmp_path / f"{last}").hub(queries=queries) as hub:
            assert hub.catch_up(last=last)
            found = answers(hub, hub.finish())
            seen.append((found, hub.status()["streams"]["s"]["late"]))
            assert bool(archived(hub)) == (not last or name in READS_AGAIN)
    assert seen[0] == seen[1]
    assert seen[0][1] > 0


def test_an_archive_with_blocks_is_written(tmp_path: Path) -> None:
    """They are made to be asked in parts, and to be reduced."""
    rig = rig_of(tmp_path)
    rig.options = {**rig.options, "blocks": "4"}
    with rig.hub(queries={"q": QUERIES["tumble"]}) as hub:
        hub.catch_up(last=True)
        assert archived(hub)


def test_an_archive_is_written_while_a_limit_of_memory_may_change_the_plan(tmp_path: Path) -> None:
    with rig_of(tmp_path).hub(queries={"q": QUERIES["tumble"]}) as hub:
        hub.loop.engine.rounds.memory.limits = Limits(1 << 30)
        hub.catch_up(last=True)
        assert archived(hub)


def test_an_archive_is_written_while_a_query_reads_what_was_archived_before(tmp_path: Path) -> None:
    """Such a query reads the rows of the epochs after its registration from the archive, too."""
    rig = rig_of(tmp_path)
    with rig.hub(queries={"first": QUERIES["tumble"]}) as hub:
        hub.catch_up()
        before = len(archived(hub))
        hub.execute(f"CREATE QUERY later AS {QUERIES['slide']}")
        rig.drop(made_rows(8, 30))
        hub.catch_up(last=True)
        seen = answers(hub, hub.finish())
        assert before
    with rig.hub(queries=None) as hub:
        assert answers(hub, hub.finish()) == seen


def test_rows_that_were_not_archived_are_never_read_as_if_there_were_none(tmp_path: Path) -> None:
    with rig_of(tmp_path).hub(queries={"q": QUERIES["tumble"]}) as hub:
        hub.catch_up(last=True)
        hub.execute(f"CREATE QUERY later AS {QUERIES['slide']}")
        with pytest.raises(AssertionError, match="were not archived"):
            hub.catch_up()
