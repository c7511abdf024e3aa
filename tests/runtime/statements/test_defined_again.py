"""Queries and archives when a script is run again, a relation is read again, a stream made again or replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import StoreError, UserError
from headrace.runtime.hub.hub import Hub
from headrace.store.logs.record_log import RecordLog
from tests.runtime.rig import (
    QUERIES,
    Rig,
    answer,
    answers,
    assert_as_the_reference,
    cut,
    faults_once_tidy,
    made_rows,
)

ONE_FILE = {"maxFilesPerTrigger": "1"}
FEW = {name: QUERIES[name] for name in ("tumble", "slide", "rows", "now", "some")}


def test_a_relation_read_again_counts_for_rows_that_come_after(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(13, 60), 30)
    text = "SELECT names.name, COUNT(*) AS n FROM s [RANGE TUMBLING 1 DAY] JOIN names ON s.g = names.id GROUP BY names.name"
    rig.drop(files[0])
    with rig.hub(2, {"first": text}) as hub:
        hub.catch_up()
        table = pa.table({"id": pa.array([1], pa.int32()), "name": ["new"]})
        pq.write_table(table, tmp_path / "names.parquet")
        hub.execute("REFRESH RELATION names")
        rig.drop(files[1])
        hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {text}")
        closing = hub.run_once()
        counts = {row["name"]: row["n"] for _, row in answer(hub, "first", closing)}
        ones = [sum(row["g"] == 1 for row in file) for file in files]
        assert counts["one"] == counts["uno"] == ones[0]
        assert counts["new"] == ones[1]
        assert answer(hub, "late", closing) == answer(hub, "first", closing)


def test_a_script_run_again_on_its_home_changes_nothing_and_a_different_one_is_refused(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.drop(made_rows(18, 20))
    with rig.hub(2, FEW) as hub:
        before = answers(hub, hub.run_once())
        epoch = hub.status()["epoch"]
        hub.execute(rig.script(FEW))
        assert answers(hub, hub.run_once()) == before
        assert hub.status()["epoch"] == epoch
        with pytest.raises(UserError, match=r"query 'tumble' exists and differs in text"):
            hub.execute(rig.script({"tumble": QUERIES["slide"]}))


def test_a_stream_that_is_dropped_and_made_again_begins_anew(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(19, 30), 10, 20)
    rig.drop(*files[:2])
    with rig.hub(2, {"some": QUERIES["some"]}) as hub:
        hub.catch_up()
        hub.execute("DROP QUERY some; DROP STREAM s")
        if hub.loop.step():
            assert "s" not in hub.status()["streams"]
        # Other columns than the archive of the one before has.
        path = f"USING parquet OPTIONS (path '{rig.source}', order 'name', maxFilesPerTrigger '1')"
        hub.execute(f"CREATE STREAM s (x BIGINT, at TIMESTAMP) {path} TIMESTAMP BY at")
        hub.execute("CREATE QUERY other AS SELECT COUNT(*) AS n, SUM(x) AS total FROM s")
        hub.loop.step()
        assert hub.status()["streams"]["s"]["rows"] == 10
    rig.drop(files[2])
    with rig.hub(3) as hub:
        hub.run_once()
        rows = [row for file in files for row in file]
        assert hub.query("other").invoke().to_pylist() == [{"n": 30, "total": sum(row["x"] for row in rows)}]
        assert hub.status()["streams"]["s"]["rows"] == 30
        hub.execute("CREATE QUERY late AS SELECT COUNT(*) AS n FROM s")
        hub.run_once()
        assert hub.query("late").invoke().to_pylist() == [{"n": 30}]
    with rig.hub(1) as hub:
        hub.run_once()
        assert hub.status()["streams"]["s"]["rows"] == 30
        assert faults_once_tidy(hub) == []


def test_a_replaced_stream_or_relation_may_not_take_columns_away_from_queries(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(20, 30), 10, 20)
    rig.drop(*files[:2])
    other = f"CREATE OR REPLACE STREAM s (x BIGINT, at TIMESTAMP) USING parquet OPTIONS (path '{rig.source}', order 'name')"
    names = (
        f"CREATE OR REPLACE RELATION names (id INT) USING parquet OPTIONS (path '{tmp_path}/names.parquet')"
    )
    chosen = {"some": QUERIES["some"], "named": QUERIES["named"]}
    with rig.hub(2, chosen) as hub:
        hub.catch_up()
        with pytest.raises(
            UserError, match=r"stream 's' cannot get other columns while some, named reads it"
        ):
            hub.execute(f"{other} TIMESTAMP BY at")
        with pytest.raises(
            UserError, match=r"relation 'names' cannot get other columns while named reads it"
        ):
            hub.execute(names)
        with pytest.raises(UserError, match="there is no column 'nothing'"):
            hub.log({"do": "put_query", "query": {"name": "bad", "text": "SELECT nothing FROM s"}})
        hub.execute(
            rig.script({}).partition(";")[0].replace("CREATE", "CREATE OR REPLACE", 1)
            + " SLACK INTERVAL 9 SECONDS"
        )
    rig.drop(files[2])
    with rig.hub(3) as hub:
        assert_as_the_reference(hub, files)
        hub.execute("DROP QUERY some; DROP QUERY named")
        hub.execute(f"{other} TIMESTAMP BY at; {names}; CREATE QUERY sum AS SELECT SUM(x) AS total FROM s")
    with rig.hub(1) as hub:
        hub.run_once()
        assert hub.query("sum").invoke().to_pylist() == [
            {"total": sum(row["x"] for file in files for row in file)}
        ]


@pytest.mark.parametrize("reopened", [False, True])
def test_issue_18_a_replaced_stream_is_one_change_and_starts_from_scratch(
    tmp_path: Path, reopened: bool
) -> None:
    """Also one without rows, whose progress differs from the new one's by its creation alone."""
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {}) as hub:
        hub.execute("CREATE STREAM p (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.finish(seal=True)
        assert hub.status()["streams"]["p"]["punctuation"] is not None
        log = hub.home.query_log.length
        hub.execute("CREATE OR REPLACE STREAM p (w STRING, at TIMESTAMP) USING push TIMESTAMP BY at")
        appended = list(hub.home.query_log.chunks(log))
        assert [[entry["do"] for entry in chunk.records] for chunk in appended] == [["drop", "create_stream"]]
        if not reopened:
            assert_counts(hub)
    with rig.hub(1) as hub:
        if reopened:
            assert_counts(hub)
        hub.catch_up()
        assert hub.query("n").invoke().to_pylist() == [{"n": 2, "most": "b"}]
        with pytest.raises(UserError, match="reads it"):
            hub.execute("CREATE OR REPLACE STREAM p (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")


def assert_counts(hub: Hub) -> None:
    hub.execute("CREATE QUERY n AS SELECT COUNT(*) AS n, MAX(w) AS most FROM p")
    hub.push("p", [{"w": "a", "at": 1_000_000}, {"w": "b", "at": 2_000_000}])
    hub.catch_up()
    assert hub.query("n").invoke().to_pylist() == [{"n": 2, "most": "b"}]
    seen = hub.status()["streams"]["p"]
    assert (seen["rows"], seen["late"], seen["rejected"]) == (2, 0, 0)


def test_issue_18_a_stream_whose_new_source_is_refused_stays(tmp_path: Path) -> None:
    with Rig(tmp_path, ONE_FILE).hub(1, {}) as hub:
        hub.execute("CREATE STREAM p (v BIGINT) USING push")
        hub.push("p", [{"v": 1}])
        with pytest.raises(UserError):
            hub.execute("CREATE OR REPLACE STREAM p (v BIGINT, w BIGINT) USING nothing_there")
        hub.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM p")
        hub.catch_up()
        assert hub.query("n").invoke().to_pylist() == [{"n": 1}]


def test_issue_18_a_stream_is_replaced_once_where_the_outcome_was_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the old stream that were not read yet are not rows of the new one."""
    replaced = "CREATE OR REPLACE STREAM p (w STRING, at TIMESTAMP) USING push TIMESTAMP BY at"
    with Rig(tmp_path, ONE_FILE).hub(1, {}) as hub:
        hub.execute("CREATE STREAM p (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.push("p", [{"v": 1, "at": 0}])
        append = RecordLog.append

        def is_in_doubt(self: RecordLog, *entries: Any, **named: Any) -> int:
            append(self, *entries, **named)
            raise StoreError("the disk is gone", outcome="unknown")

        monkeypatch.setattr(RecordLog, "append", is_in_doubt)
        with pytest.raises(StoreError):
            hub.execute(replaced)
        monkeypatch.undo()
        hub.execute(replaced)
        assert_counts(hub)
