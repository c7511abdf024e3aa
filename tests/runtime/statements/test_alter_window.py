"""Windows that change while the stream runs: what they are filled from, what they answer, and what they report of it (PAT-5, PAT-6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.store.logs.committed import OperatorProgress
from headrace.time import BEGINNING, SECOND
from tests.examples import examples
from tests.laws.comparing import canonical as comparable
from tests.runtime.rig import Rig, Row, answers, cut, expected, faults_once_tidy, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
UNKEPT = {**ONE_FILE, "archive": "none"}
SLACK = 3 * SECOND
TEXT = (
    "SELECT k, COUNT(*) AS n, SUM(x) AS total, COUNT(DISTINCT g) AS gs, CORR(x, g) AS r, LAST(y) AS newest "
    "FROM s {window} {where} GROUP BY k"
)
WIDE = "SELECT k, g, COUNT(*) AS n, SUM(x) AS total, AVG(y) AS mean FROM s [RANGE 24 SECONDS SLIDE 2 SECONDS] GROUP BY k, g"
WINDOWS = (
    "[RANGE 12 SECONDS SLIDE 3 SECONDS]",
    "[RANGE 6 SECONDS SLIDE 3 SECONDS]",
    "[RANGE 24 SECONDS SLIDE 6 SECONDS]",
    "[RANGE 7 SECONDS SLIDE 3 SECONDS]",
    "[RANGE 2 SECONDS SLIDE 6 SECONDS]",
    "[RANGE TUMBLING 5 SECONDS]",
    "[RANGE 12 SECONDS SLIDE 3 SECONDS ORIGIN TIMESTAMP '1970-01-01 00:00:01']",
    "[LANDMARK SLIDE 4 SECONDS]",
)


def disordered(seed: int, count: int) -> list[Row]:
    """Rows of which none is late, however they are cut."""
    return made_rows(seed, count, disorder=SLACK)


def place(hub: Hub, name: str) -> OperatorProgress:
    """The progress of a query, in the manifest."""
    return hub.home.latest().operator(hub.catalog.require_query(name).operator_id)


def punctuation(hub: Hub) -> int:
    """How far the stream is."""
    return hub.home.latest().stream("s").punctuation


def kinds(hub: Hub) -> list[str]:
    """What epochs are from now on."""
    seen_kinds: list[str] = []
    hub.on_epoch(lambda seen: seen_kinds.append(seen.kind))
    return seen_kinds


def after(rows: list[Any], instant: int) -> list[Any]:
    """Answers of windows that ended after an instant, to be compared."""
    return comparable(row for row in rows if row[0] > instant)


def all_answers(hub: Hub) -> dict[str, list[Any]]:
    """All answers as if the stream ended, to be compared."""
    return {name: comparable(rows) for name, rows in answers(hub, hub.run_once()).items()}


@examples(25, shares_fixtures=True)
@given(data=st.data())
def test_a_window_that_was_changed_answers_as_if_it_had_been_so_from_the_start(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = cut(disordered(data.draw(st.integers(0, 10**6)), 60), 10, 25, 40, 50)
    rig = Rig(tmp_path_factory.mktemp("home"), ONE_FILE, SLACK)
    where = data.draw(st.sampled_from(("", "WHERE x > 0")))
    old, new = (data.draw(st.sampled_from(WINDOWS)) for _ in range(2))
    same = data.draw(st.booleans())
    texts = {"q": TEXT.format(window=old, where=where), "other": TEXT.format(window=WINDOWS[0], where="")}
    change = data.draw(st.integers(0, 4))
    with rig.hub(data.draw(st.integers(1, 3)), texts) as hub:
        for number, file in enumerate(files):
            if number == change:
                hub.catch_up()
                changed_at = punctuation(hub)
                hub.execute(f"ALTER QUERY q SET WINDOW {old if same else new}")
                if data.draw(st.booleans()):
                    break  # the home is opened again before the change has come into force
            rig.drop(file)
        else:
            number = len(files)
    with rig.hub(data.draw(st.integers(1, 3))) as hub:
        for file in files[number:]:
            rig.drop(file)
            hub.catch_up()
        answered = all_answers(hub)
        whole = {name: expected(hub.operator_and_query(name)[1], files, SLACK) for name in answered}
        assert answered["q"] == after(whole["q"], changed_at)
        assert answered["other"] == comparable(whole["other"])
        assert faults_once_tidy(hub) == []


def test_a_shorter_window_is_filled_from_the_panes_of_the_longer_one_and_nothing_is_read_again(
    tmp_path: Path,
) -> None:
    files = cut(disordered(3, 200), 120)
    rig = Rig(tmp_path, ONE_FILE, SLACK)
    with rig.hub(2, {"q": TEXT.format(window=WINDOWS[0], where="")}) as hub:
        rig.drop(files[0])
        hub.catch_up()
        seen, changed_at = kinds(hub), punctuation(hub)
        hub.execute(f"ALTER QUERY q SET WINDOW {WINDOWS[1]}")
        hub.catch_up()
        assert seen == ["fill"]
        assert place(hub, "q").backfilled_from == "the panes of q"
        assert place(hub, "q").complete_since == BEGINNING
        plan = hub.execute("EXPLAIN QUERY q")[0].message
        assert "filled from the panes of q when its window was set" in plan
        rig.drop(files[1])
        answered = all_answers(hub)["q"]
        assert answered == after(expected(hub.operator_and_query("q")[1], files, SLACK), changed_at)
        assert "replay" not in seen


def test_a_window_is_filled_from_panes_of_another_query_by_more_keys(tmp_path: Path) -> None:
    files = cut(disordered(4, 200), 120)
    rig = Rig(tmp_path, UNKEPT, SLACK)
    queries = {"wide": WIDE, "q": "SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY k"}
    with rig.hub(2, queries) as hub:
        rig.drop(files[0])
        hub.catch_up()
        changed_at = punctuation(hub)
        narrow = "SELECT k, SUM(x) AS total FROM s [RANGE 8 SECONDS SLIDE 4 SECONDS] GROUP BY k"
        hub.execute(
            f"CREATE QUERY inserted AS {narrow}; ALTER QUERY q SET WINDOW [RANGE 20 SECONDS SLIDE 2 SECONDS]"
        )
        hub.catch_up()
        for name in ("inserted", "q"):
            assert place(hub, name).backfilled_from == "the panes of wide"
            assert place(hub, name).complete_since == BEGINNING
        rig.drop(files[1])
        answered = all_answers(hub)
        for name in ("inserted", "q"):
            whole = expected(hub.operator_and_query(name)[1], files, SLACK)
            assert answered[name] == after(whole, changed_at)


def test_a_window_that_panes_cannot_fill_is_filled_from_the_archive(tmp_path: Path) -> None:
    files = cut(disordered(5, 300), 100, 200)
    rig = Rig(tmp_path, ONE_FILE, SLACK)
    with rig.hub(2, {"q": TEXT.format(window=WINDOWS[1], where="")}) as hub:
        rig.drop(*files[:2])
        hub.catch_up()
        seen, changed_at = kinds(hub), punctuation(hub)
        hub.execute("ALTER QUERY q SET WINDOW [RANGE 40 SECONDS SLIDE 3 SECONDS]")
        hub.catch_up()
        assert seen == ["replay"]
        assert place(hub, "q").backfilled_from == "the archive"
        assert place(hub, "q").since == 1  # the first file is before all that is needed
        rig.drop(files[2])
        answered = all_answers(hub)["q"]
        assert answered == after(expected(hub.operator_and_query("q")[1], files, SLACK), changed_at)


def test_twice_the_window_from_panes_alone_starts_half_complete_and_says_since_when(tmp_path: Path) -> None:
    files = cut(disordered(6, 200), 120)
    rig = Rig(tmp_path, UNKEPT, SLACK)
    with rig.hub(2, {"q": TEXT.format(window=WINDOWS[0], where="")}) as hub:
        rig.drop(files[0])
        hub.catch_up()
        changed_at = punctuation(hub)
        hub.execute("ALTER QUERY q SET WINDOW [RANGE 24 SECONDS SLIDE 3 SECONDS]")
        hub.catch_up()
        since = place(hub, "q").complete_since
        end = (changed_at // (3 * SECOND) + 1) * 3 * SECOND
        assert since == end - 12 * SECOND  # half of the first window that is emitted
        listed = hub.execute("SHOW QUERIES")[0].table.to_pylist()[0]
        assert listed["complete_since"] is not None
        assert f"complete since {listed['complete_since']}: windows that start earlier lack rows" in (
            hub.execute("EXPLAIN QUERY q")[0].message
        )
        described = hub.execute("DESCRIBE EXTENDED q")[0].table.to_pylist()
        assert {"property": "complete since", "value": listed["complete_since"]} in described
        rig.drop(files[1])
        answered = all_answers(hub)["q"]
        seen = [[row for row in file if row["at"] >= since] for file in files]
        assert answered == after(expected(hub.operator_and_query("q")[1], seen, SLACK), changed_at)


def test_without_panes_and_archive_a_window_starts_with_what_comes(tmp_path: Path) -> None:
    files = cut(disordered(7, 200), 120)
    rig = Rig(tmp_path, UNKEPT, SLACK)
    with rig.hub(2, {"q": TEXT.format(window=WINDOWS[0], where="")}) as hub:
        rig.drop(files[0])
        hub.catch_up()
        changed_at = punctuation(hub)
        hub.execute(
            "ALTER QUERY q SET WINDOW [RANGE 10 SECONDS SLIDE 5 SECONDS]"
        )  # its edges are not among the panes'
        hub.catch_up()
        assert place(hub, "q").backfilled_from == "nothing"
        assert place(hub, "q").complete_since == max(row["at"] for row in files[0]) + 1
        rig.drop(files[1])
        answered = all_answers(hub)["q"]
        assert answered == after(expected(hub.operator_and_query("q")[1], [[], files[1]], SLACK), changed_at)


def test_a_filter_keeps_panes_from_being_shared_unless_it_is_the_same(tmp_path: Path) -> None:
    files = cut(disordered(8, 120), 80)
    rig = Rig(tmp_path, UNKEPT, SLACK)
    positive = TEXT.format(window=WINDOWS[0], where="WHERE x > 0")
    with rig.hub(2, {"positive": positive}) as hub:
        rig.drop(files[0])
        hub.catch_up()
        hub.execute(f"CREATE QUERY every AS {TEXT.format(window=WINDOWS[1], where='')}")
        hub.execute(f"CREATE QUERY same AS {TEXT.format(window=WINDOWS[1], where='WHERE x > 0')}")
        hub.catch_up()
        assert place(hub, "every").backfilled_from == ""
        assert place(hub, "every").complete_since == max(row["at"] for row in files[0]) + 1
        assert place(hub, "same").backfilled_from == "the panes of positive"


def test_dropping_the_longest_window_leaves_the_state_of_the_longest_that_remains(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    text = "SELECT k, COUNT(*) AS n FROM s {} GROUP BY k"
    queries = {"long": text.format("[RANGE 300 SECONDS SLIDE 3 SECONDS]"), "short": text.format(WINDOWS[1])}
    with rig.hub(2, queries) as hub:
        rows = made_rows(9, 400)
        for file in cut(rows, *range(20, 400, 20)):
            rig.drop(file)
        hub.catch_up()
        before = hub.status()["state_bytes"]
        hub.execute("DROP QUERY long")
        rig.drop([{**rows[-1], "at": rows[-1]["at"] + SECOND}])
        hub.catch_up()
        assert hub.status()["state_bytes"] < before / 4


def test_from_now_says_since_when_it_is_complete_and_a_query_over_all_of_the_archive_says_nothing(
    tmp_path: Path,
) -> None:
    rows = made_rows(10, 40)
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {}) as hub:
        rig.drop(rows)
        hub.execute("CREATE QUERY early AS SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS]")
        hub.catch_up()
        hub.execute(
            "CREATE QUERY late FROM NOW AS SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS]"
        )
        hub.execute("CREATE QUERY all_of_it AS SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS]")
        hub.catch_up()
        assert place(hub, "late").complete_since == max(row["at"] for row in rows) + 1
        assert place(hub, "early").complete_since == BEGINNING
        assert place(hub, "all_of_it").complete_since == BEGINNING


@pytest.mark.parametrize(
    ("query", "window", "message"),
    [
        (
            "SELECT COUNT(*) AS n FROM s [ROWS 5 SLIDE 5]",
            "[ROWS 9 SLIDE 9]",
            "the window of 'q' cannot be changed by itself: it is no aggregate over a window of time of a stream",
        ),
        (
            "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS]",
            "[ROWS 9 SLIDE 9]",
            "the window of 'q' cannot be changed by itself: it is no aggregate over a window of time of a stream",
        ),
        (
            "SELECT COUNT(*) AS n FROM s GROUP BY window(at, '5 seconds')",
            "[RANGE 9 SECONDS SLIDE 9 SECONDS]",
            "the window of 'q' is not in brackets",
        ),
    ],
)
def test_other_windows_are_refused_with_what_to_do(
    tmp_path: Path, query: str, window: str, message: str
) -> None:
    with Rig(tmp_path).hub(1, {"q": query}) as hub:
        with pytest.raises(UserError) as refused:
            hub.execute(f"ALTER QUERY q SET WINDOW {window}")
        assert refused.value.message == message
        assert (
            refused.value.remedy
            == "Use ALTER QUERY … AS with a whole SELECT, which is computed again over the archive."
        )
        assert hub.catalog.require_query("q").definition.text == query


def test_what_a_donor_lacks_the_query_filled_from_it_lacks_too(tmp_path: Path) -> None:
    """The source query was registered after the first rows; of its panes none shows so."""
    files = cut(disordered(11, 200), 120, 123)
    rig = Rig(tmp_path, UNKEPT, SLACK)
    with rig.hub(2, {"first": "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"}) as hub:
        rig.drop(files[0])
        hub.catch_up()
        hub.execute(f"CREATE QUERY donor AS {TEXT.format(window=WINDOWS[0], where='')}")
        rig.drop(files[1])
        hub.catch_up()
        lacks = place(hub, "donor").complete_since
        assert punctuation(hub) - 6 * SECOND < lacks  # in every window that is still to be emitted
        hub.execute(f"CREATE QUERY q AS {TEXT.format(window=WINDOWS[1], where='')}")
        hub.catch_up()
        assert place(hub, "q").backfilled_from == "the panes of donor"
        assert place(hub, "q").complete_since == lacks
        rig.drop(files[2])
        whole = lacks + 6 * SECOND  # windows that end then or later begin with the bound or after it
        answered = [row for row in all_answers(hub)["q"] if row[0] >= whole]
        assert answered == after(expected(hub.operator_and_query("q")[1], files, SLACK), whole - 1)


@pytest.mark.parametrize(
    "behind", [{}, {"replayed": -1}, {"emitted_to": -SECOND}, {"group_punctuations": {"a": 1}}]
)
def test_panes_are_taken_only_from_a_query_that_has_come_as_far_as_the_stream(
    behind: dict[str, Any], tmp_path: Path
) -> None:
    """One that still reads the archive, has windows left to emit, or is ahead for some groups: each is refused alone."""
    rig = Rig(tmp_path, UNKEPT, SLACK)
    with rig.hub(2, {"donor": TEXT.format(window=WINDOWS[0], where="")}) as hub:
        rig.drop(disordered(12, 60))
        hub.catch_up()
        engine, donor = hub.loop.engine, hub.catalog.require_query("donor").operator_id
        progress = engine.published.operator(donor)
        moved = {
            name: getattr(progress, name) + by if isinstance(by, int) else by for name, by in behind.items()
        }
        operators = engine.published.operators.changed({donor: replace(progress, **moved)})
        engine.published = replace(engine.published, operators=operators)
        hub.execute(f"CREATE QUERY q AS {TEXT.format(window=WINDOWS[1], where='')}")
        q = hub.catalog.require_query("q").operator_id
        engine.replan()
        assert engine.manifest.operator(q).backfilled_from == ("" if behind else "the panes of donor")
        assert bool(engine.backfill_planner.due) == (not behind)
