"""An answer reports when it lacks rows, is of part of the archive, or leaves out rows on which an expression failed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.delivery.output_files import Exporter
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.answer_caveats import AnswerCaveats
from headrace.runtime.invoke.home_reader import Reader
from headrace.time import BEGINNING, SECOND
from tests.cli.building import headrace
from tests.laws.test_materialize import MODES
from tests.runtime.rig import Rig, canonical, cut, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
FILES = cut(made_rows(12, 80), *range(8, 80, 8))
KINDS = {
    "sliding": "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "tumbling": "SELECT window_start, SUM(x) AS total FROM s [RANGE TUMBLING 5 SECONDS]",
    "landmark": "SELECT k, MAX(x) AS top FROM s [LANDMARK SLIDE 7 SECONDS] GROUP BY k",
    "recent": "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k",
    "ever": "SELECT COUNT(*) AS n, SUM(x) AS total FROM s",
    "rows": "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [ROWS 5 SLIDE 3]",
    "last": "SELECT k, MAX(y) AS top FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "visits": "SELECT g, COUNT(*) AS n FROM s GROUP BY session_window(at, '2 seconds'), g",
    "some": "SELECT k, x FROM s WHERE x > 3",
    "named": "SELECT names.name, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] JOIN names ON s.g = names.id GROUP BY names.name",
    "above": "SELECT SUM(t.n) AS n FROM (SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 2 SECONDS]) AS t [RANGE 8 SECONDS SLIDE 4 SECONDS]",
    "bounded": "SELECT COUNT(*) AS n, SUM(x) AS total FROM s BEGIN NOW - INTERVAL 20 SECONDS END NOW",
    "from_then": "SELECT COUNT(*) AS n FROM s BEGIN TIMESTAMP '1970-01-01 00:00:30' END NOW",
}


def invoked(hub: Hub, name: str) -> list:
    return canonical(hub.query(name).invoke().to_pylist())


def caveats(hub: Hub, name: str) -> AnswerCaveats:
    """The same from the writer and from a process that only looks."""
    of_writer = AnswerCaveats.of(hub.query(name).invoke())
    assert AnswerCaveats.of(Reader.at(hub.path).invoke(name)) == of_writer
    return of_writer


@pytest.mark.parametrize("first", [2, 5])
def test_an_answer_without_a_remark_is_that_of_a_query_that_saw_every_row(first: int, tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    flagged, whole = set(), set()
    with rig.hub(2, KINDS) as hub:
        rig.drop(*FILES[:first])
        hub.catch_up()
        for name, text in KINDS.items():
            for mode in MODES if "BEGIN" in text else ("",):
                options = f"OPTIONS (materialize '{mode}')" if mode else ""
                hub.execute(f"CREATE QUERY late_{name}{mode} FROM NOW {options} AS {text}")
        for file in FILES[first:]:
            rig.drop(file)
            hub.catch_up()
            for standing in hub.catalog.queries.values():
                late = standing.definition.name
                name = next((kind for kind in KINDS if late.startswith(f"late_{kind}")), None)
                answer = hub.query(late).invoke()
                if name is None:
                    assert answer.schema.metadata is None
                elif AnswerCaveats.of(answer).complete_since != BEGINNING:
                    flagged.add(late)
                else:
                    whole.add(late)
                    assert invoked(hub, late) == invoked(hub, name), late
        for late in sorted(flagged | whole):
            caveats(hub, late)
    names = {late_name.removeprefix("late_") for late_name in flagged}
    bound_to_lack = set(KINDS) - {"bounded", "from_then"}
    if first == 5:
        bound_to_lack -= {"tumbling", "named", "above"}  # the query came between two of their windows
    assert names >= bound_to_lack
    assert {f"bounded{mode}" for mode in MODES} <= names
    assert {"late_sliding", "late_tumbling", "late_recent", "late_named", "late_boundedpartial"} <= whole


def test_a_part_of_a_window_lacks_rows_for_as_long_as_it_reaches_back(tmp_path: Path) -> None:
    rig, text = Rig(tmp_path, ONE_FILE), "SELECT COUNT(*) AS n FROM s [RANGE 12 SECONDS SLIDE 2 SECONDS]"
    with rig.hub(2, {"first": text}) as hub:
        rig.drop(*FILES[:3])
        hub.catch_up()
        hub.execute(f"CREATE QUERY late FROM NOW AS {text}")
        whole = []
        for file in FILES[3:]:
            rig.drop(file)
            hub.catch_up()
            parts = [hub.query("late").invoke(length * SECOND) for length in (2, 12)]
            whole.append([AnswerCaveats.of(part) == AnswerCaveats() for part in parts])
            for seconds, answer in zip((2, 12), parts, strict=True):
                if AnswerCaveats.of(answer) == AnswerCaveats():
                    assert answer == hub.query("first").invoke(seconds * SECOND)
        assert [True, False] in whole
        assert whole[-1] == [True, True]
        assert all(short or not long for short, long in whole)


def test_an_answer_before_the_first_epoch_of_a_query_is_of_nothing_of_the_archive(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {"source": KINDS["tumbling"]}) as hub:
        hub.register("SELECT COUNT(*) AS n FROM s", "early")
        assert caveats(hub, "early") == AnswerCaveats(), "there is no past"
        rig.drop(FILES[0])
        hub.catch_up()
        for name in ("ever", "above", "last", "some"):
            hub.register(KINDS[name], name)
        hub.register("SELECT COUNT(*) AS n FROM source [RANGE 20 SECONDS]", "of_results")
        hub.register(KINDS["ever"], "from_here", from_now=True)
        for name in ("ever", "above", "last", "some", "of_results"):
            assert invoked(hub, name) == []
            assert caveats(hub, name) == AnswerCaveats(percent=0), name
        assert caveats(hub, "from_here") == AnswerCaveats()
        hub.catch_up()
        assert caveats(hub, "ever") == AnswerCaveats()


def test_an_answer_of_a_query_that_still_reads_the_past_says_how_much_of_it(tmp_path: Path) -> None:
    class OneEntry(ReplaySchedule):
        def turn(self, *, live_waits: bool) -> Chunk:
            return Chunk(1, 1)

    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(2, {"first": KINDS["sliding"]}) as hub:
        rig.drop(*FILES)
        hub.catch_up()
        hub.register(KINDS["sliding"], "late")
        hub.loop.engine.replay_schedule = OneEntry()
        seen = []
        while hub.loop.step(live_first=True) is not None:
            seen.append(caveats(hub, "late").percent)
            (outcome,) = hub.execute("INVOKE late")
            if seen[-1] < 100:
                assert f"late: {seen[-1]} % of the archive is read" in str(outcome.warning)
        assert seen == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
        assert outcome.warning is None
        assert invoked(hub, "late") == invoked(hub, "first")


FAILING = "SELECT k, 10 / x AS part FROM s WHERE g > 0 BEGIN NOW - INTERVAL 70 SECONDS END NOW"


def test_rows_on_which_the_select_list_fails_are_counted_and_shown_with_the_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    now = max(row["at"] for file in FILES for row in file)
    window = [
        row for file in FILES for row in file if row["at"] >= now - 70 * SECOND and row["g"] is not None
    ]
    failing = sum(row["x"] == 0 for row in window)
    assert failing
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {FAILING}")
        hub.catch_up()
        for mode in MODES[:2]:
            assert hub.query(mode).invoke().num_rows == len(window) - failing
            assert caveats(hub, mode).failed == failing
            (outcome,) = hub.execute(f"INVOKE {mode}")
            assert f"{mode}: its expressions failed on {failing} row" in str(outcome.warning)
            assert "zero" in str(outcome.warning)
        assert caveats(hub, "complete").failed == 0  # it has a reject folder of its own
        assert hub.status()["rejected"]["complete"] >= failing
        assert invoked(hub, "none") == invoked(hub, "partial") == invoked(hub, "complete")


def test_a_condition_that_fails_is_reported_where_nothing_is_kept_and_in_the_reject_folder_where_it_is_tested_once(
    tmp_path: Path,
) -> None:
    text = "SELECT k FROM s WHERE 10 / x > 2 BEGIN TIMESTAMP '1970-01-01' END NOW"
    failing = sum(row["x"] == 0 for file in FILES for row in file)
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with rig.hub(2, {}) as hub:
        for mode in MODES[:2]:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {text}")
        hub.catch_up()
        assert caveats(hub, "none").failed == failing
        assert caveats(hub, "partial").failed == 0
        assert hub.status()["rejected"] == {"partial": failing}


def test_remarks_reach_the_command_line_and_travel_in_parquet(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    script = tmp_path / "script.sql"
    script.write_text(rig.script({"odd": FAILING}))
    run = headrace("run", script, "--once", "--home", rig.home)
    assert "odd: its expressions failed on" in run.stderr
    asked = headrace("shell", "--home", rig.home, "-e", "INVOKE odd")
    assert "odd: its expressions failed on" in asked.stderr
    assert asked.stdout.removeprefix("# odd\n") == run.stdout
    with rig.hub(1) as hub:
        said = Exporter(hub, tmp_path / "out", "parquet").finish(hub.finish())
        assert said == list(caveats(hub, "odd").sentences("odd"))
        assert len(said) == 1
    assert AnswerCaveats.of(pq.read_table(tmp_path / "out" / "odd.parquet")).failed > 0


def test_remarks_are_read_back_as_they_were_written() -> None:
    table = pa.table({"a": [1]})
    assert AnswerCaveats().on(table) is table
    for written in (
        AnswerCaveats(5 * SECOND + 1),
        AnswerCaveats(percent=7),
        AnswerCaveats(-SECOND, 3, 2, "it failed"),
    ):
        assert AnswerCaveats.of(written.on(table)) == written
        assert written.on(table).equals(table)


LAST_TEN = (
    "[RANGE 10 SECONDS]",
    "[RANGE 10 SECONDS SLIDE 1 SECOND]",
    "BEGIN NOW - INTERVAL 10 SECONDS END NOW",
    "[RANGE 30 SECONDS] BEGIN NOW - INTERVAL 10 SECONDS END NOW",
    "[RANGE 10 SECONDS] BEGIN NOW - INTERVAL 30 SECONDS END NOW",
)


@pytest.mark.parametrize("window", LAST_TEN)
@pytest.mark.parametrize("missing", [SECOND, 1, 0, -1, -SECOND])
def test_an_answer_is_flagged_if_its_window_begins_a_microsecond_too_early(
    window: str, missing: int, tmp_path: Path
) -> None:
    """The window of ten seconds begins so much before the instant from which on the query has every row."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        since = 20 * SECOND
        hub.push("s", [{"x": 1, "at": since - 1}])
        hub.catch_up()
        options = "OPTIONS (materialize 'complete')" if "BEGIN" in window else ""
        hub.execute(f"CREATE QUERY late FROM NOW {options} AS SELECT COUNT(*) AS n FROM s {window}")
        begin = since - missing
        hub.push("s", [{"x": 2, "at": begin + 10 * SECOND}])
        hub.catch_up()
        if "SLIDE" in window:
            begin = begin // SECOND * SECOND
        assert caveats(hub, "late").complete_since == (since if begin < since else BEGINNING)
