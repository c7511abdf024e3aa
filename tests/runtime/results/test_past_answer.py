"""An answer as of an earlier instant is what INVOKE answered then; the timeline counts every result."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND

STREAM = "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
QUERIES = {
    "total": "SELECT COUNT(*) AS n, SUM(v) AS s FROM s",
    "expiring": "SELECT k, SUM(v) AS n FROM s [RANGE 5 SECONDS] GROUP BY k",
    "newest": "SELECT k, v FROM s [ROWS 3]",
    "windows": "SELECT k, MAX(v) AS top FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "rows": "SELECT k, v FROM s WHERE v > 3",
}


@pytest.fixture
def hub(tmp_path: Path):
    with open_hub(tmp_path / "home", local=True) as opened:
        opened.execute(STREAM)
        yield opened


def push(hub: Hub, *seconds: int) -> None:
    hub.push(
        "s", [{"k": "abc"[second % 3], "v": (7 * second) % 11, "at": second * SECOND} for second in seconds]
    )
    hub.loop.drain()


def bag(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("name", QUERIES)
def test_an_answer_as_of_an_instant_is_what_invoke_answered_then(hub: Hub, name: str) -> None:
    query = hub.register(QUERIES[name], name)
    answered = {}
    for start in range(1, 40, 3):
        push(hub, start, start + 1, start + 2)
        answered[(start + 2) * SECOND] = bag(query.invoke().to_pylist())
    push(hub, 50)
    assert {at: bag(query.as_of(at).to_pylist()) for at in answered} == answered
    assert len(set(map(str, answered.values()))) > 5


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE v > 7",
        "SELECT ISTREAM(k) FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]",
        "SELECT k, COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 6 SECONDS] GROUP BY k",
    ],
)
def test_a_window_without_results_is_an_answer_without_rows(hub: Hub, text: str, *, sealed: bool) -> None:
    """Not that of the window before it. Between 20 and 30 seconds there are no rows at all."""
    query = hub.register(text, "seldom")
    answered = {}
    for second in (*range(1, 20), *range(30, 40)):
        push(hub, second)
        answered[second * SECOND] = bag(query.invoke().to_pylist())
    if sealed:
        hub.finish(seal=True)
    assert {at: bag(query.as_of(at).to_pylist()) for at in answered} == answered
    assert [] in answered.values()
    assert query.as_of(26 * SECOND).to_pylist() == []


def test_an_instant_may_be_a_datetime_and_lie_before_or_between_results(hub: Hub) -> None:
    query = hub.register(QUERIES["windows"], "windows")
    for start in (1, 5, 9):
        push(hub, *range(start, start + 4))
    assert query.as_of(SECOND).to_pylist() == []
    at = datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert query.as_of(at) == query.as_of(6 * SECOND)
    assert query.as_of(8 * SECOND - 1) == query.as_of(6 * SECOND)
    assert query.as_of(8 * SECOND) != query.as_of(6 * SECOND)


def test_a_late_row_revises_the_window_that_was_answered_then_and_no_other(hub: Hub) -> None:
    query = hub.register(
        "SELECT COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] WITH REVISIONS FOR INTERVAL 20 SECONDS",
        "revised",
    )
    push(hub, *range(1, 14))
    before = [query.as_of(end * SECOND).to_pylist() for end in (4, 8, 12)]
    push(hub, 5, 14)  # 5 is late
    after = [query.as_of(end * SECOND).to_pylist() for end in (4, 8, 12)]
    assert (before[0], before[2]) == (after[0], after[2])
    assert (before[1], after[1]) == ([{"n": 4}], [{"n": 5}])
    assert query.as_of(13 * SECOND) == query.as_of(12 * SECOND)


def test_the_timeline_counts_every_result_between_its_ends(hub: Hub) -> None:
    query = hub.register(QUERIES["windows"], "windows")
    assert query.timeline() is None
    for start in range(1, 40, 4):
        push(hub, *range(start, start + 4))
    history = query.history()
    for buckets in (1, 7, 200):
        line = query.timeline(buckets)
        assert line is not None
        assert (line.first, line.last) == (2 * SECOND, 40 * SECOND)
        assert (len(line.rows), sum(line.rows)) == (buckets, history.num_rows)
    assert line.rows[-1] > 0
    assert sum(count > 0 for count in line.rows) == 20, "windows of one epoch count each at its end"


def test_results_that_retention_has_removed_are_not_guessed(hub: Hub) -> None:
    hub.execute("CREATE QUERY short OPTIONS (retain '5 SECONDS') AS SELECT COUNT(*) AS n FROM s")
    query = hub.query("short")
    answered = {}
    for start in range(1, 60, 3):
        push(hub, start, start + 1, start + 2)
        answered[start + 2] = query.invoke().to_pylist()
    assert query.as_of(57 * SECOND).to_pylist() == answered[57]
    with pytest.raises(UserError, match="are not retained"):
        query.as_of(3 * SECOND)


def test_a_query_that_stores_no_changes_has_no_past(hub: Hub) -> None:
    hub.execute(
        "CREATE QUERY asked OPTIONS (materialize 'none') AS SELECT k FROM s BEGIN NOW - INTERVAL 5 SECONDS END NOW"
    )
    push(hub, 1, 2)
    with pytest.raises(UserError, match="delivers no changes"):
        hub.query("asked").as_of(SECOND)
