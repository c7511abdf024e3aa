"""Bad input through the whole path: it is reported or counted, and what is right is still answered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.connectors.records.ingest_record import SourceChanged
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import DAY, HOUR, now
from tests.runtime.rig import (
    QUERIES,
    SCHEMA,
    Rig,
    answer,
    assert_as_the_reference,
    cut,
    expected,
    made_rows,
    rows_late_rejected,
)

FEW = {name: QUERIES[name] for name in ("tumble", "slide", "now", "some")}
ONE_FILE = {"maxFilesPerTrigger": "1"}
ROWS = made_rows(41, 40)
GOOD = [dict(row) for row in ROWS]


def refused(hub: Hub, of: str = "rejects:s") -> list[str]:
    """The reasons of all rejects of a stream, or failures of an operator."""
    entries = hub.home.entries(hub.home.latest(), of)
    return [
        reason
        for entry in entries
        for reason in pq.read_table(hub.path / entry["name"]).column("reason").to_pylist()
    ]


CSV = """k,v,at
a,1,1970-01-01 00:00:01
b,one,1970-01-01 00:00:02
c,3
d,4,1970-01-01 00:00:04,more
e,5,yesterday
f,6,
"g,7,1970-01-01 00:00:07
h,8,1970-01-01 00:00:08
"""


def test_malformed_lines_are_set_aside_with_a_reason_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text(CSV)
    (folder / "2.csv").write_text("k,v,at\nz,9,1970-01-01 00:00:09\n")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            f"CREATE STREAM s (k STRING, v INT, at TIMESTAMP) USING csv OPTIONS (path '{folder}', header 'true')"
            " TIMESTAMP BY at; CREATE QUERY q AS SELECT k, v FROM s"
        )
        hub.run_once()
        rows, late, rejected = rows_late_rejected(hub)
        answered = [row["k"] for row in hub.query("q").history().to_pylist()]
        assert answered[0] == "a"
        assert answered[-1] == "z"
        assert rows == len(answered)
        assert late == 0
        assert rejected == len(refused(hub)) >= 5
        assert any("INT" in reason and "one" in reason for reason in refused(hub))


def test_lines_that_are_no_json_cost_only_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = [json.dumps({"v": n, "at": f"1970-01-01T00:00:0{n}Z"}) for n in range(1, 5)]
    (folder / "1.json").write_text(
        "\n".join([good[0], "{", "[]", good[1], '{"v": {}, "at": 1}', "", *good[2:]]) + "\n"
    )
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            f"CREATE STREAM s (v INT, at TIMESTAMP) USING json OPTIONS (path '{folder}') TIMESTAMP BY at;"
            "CREATE QUERY q AS SELECT v FROM s"
        )
        hub.run_once()
        assert [row["v"] for row in hub.query("q").history().to_pylist()] == [1, 2, 3, 4]
        assert rows_late_rejected(hub) == (4, 0, 3)


def test_a_schema_that_changes_midway_costs_the_files_that_do_not_fit(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(GOOD[:20])
    whole = pq.read_table(rig.source / "000000.parquet").slice(0, 3)
    pq.write_table(whole.drop_columns(["g"]), rig.source / "000001.parquet")
    place = whole.column_names.index("x")
    pq.write_table(whole.set_column(place, "x", pa.array(["1", "2", "3"])), rig.source / "000002.parquet")
    (rig.source / "000003.parquet").write_bytes(b"PAR1 nonsense PAR1")
    rig.written = 4
    rig.drop(GOOD[20:])
    with rig.hub(2, FEW) as hub:
        assert_as_the_reference(hub, [GOOD[:20], [], [], [], GOOD[20:]])
        assert rows_late_rejected(hub) == (40, 0, 7)
        reasons = refused(hub)
        assert sum("column g is missing" in reason for reason in reasons) == 3
        assert sum("column x is" in reason for reason in reasons) == 3
        assert sum("not a readable Parquet file" in reason for reason in reasons) == 1


def test_each_record_of_a_csv_file_whose_header_lacks_a_column_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("k,v\n" + "".join(f"a,{n}\n" for n in range(100)))
    (folder / "2.csv").write_text("at,v,k\n1970-01-01T00:00:01Z,7,b\n")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        hub.execute(
            "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING csv"
            f" OPTIONS (path '{folder}', header 'true', order 'name') TIMESTAMP BY at;"
            "CREATE QUERY q AS SELECT v FROM s; CREATE QUERY no AS SELECT text, reason FROM s REJECTS"
        )
        hub.run_once()
        assert hub.query("q").history().to_pylist() == [{"v": 7}]
        assert rows_late_rejected(hub) == (1, 0, 100)
        rows = hub.query("no").history().to_pylist()
        assert sorted(row["text"] for row in rows) == sorted(f"a,{n}" for n in range(100))
        assert {row["reason"] for row in rows} == {
            f"{folder}/1.csv: schema changed: column at is missing in the header"
        }


def test_a_file_that_changes_after_it_was_listed_stops_the_stream_until_it_is_put_back(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*cut(GOOD, 10, 20))
    changed = rig.source / "000001.parquet"
    with rig.hub(2, FEW) as hub:
        hub.loop.step()
        before, kept = changed.stat(), changed.read_bytes()
        pq.write_table(pq.read_table(changed).slice(1), changed)
        for _ in range(2):
            with pytest.raises(
                SourceChanged, match=r"(?s)000001\.parquet' has changed since it was listed.*Put the old"
            ):
                hub.loop.step()
        changed.unlink()
        with pytest.raises(SourceChanged, match="found that it is gone"):
            hub.loop.step()
        changed.write_bytes(kept)
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert_as_the_reference(hub, cut(GOOD, 10, 20))
        assert rows_late_rejected(hub) == (40, 0, 0)


def test_null_and_absurd_event_times_are_rejected_and_old_ones_are_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    instants = [None, 2**62, -(2**62), 253402300799999999, now() + 2 * DAY, -62135596800000000, now() + HOUR]
    table = pa.Table.from_pylist([{**GOOD[0], "at": None} for _ in instants], SCHEMA)
    absurd = pa.array(instants, pa.int64()).cast(SCHEMA.field("at").type)
    pq.write_table(table.set_column(4, "at", absurd), rig.source / "000000.parquet")
    with rig.hub(2, {"ever": QUERIES["ever"]}) as hub:
        hub.run_once()
        assert rows_late_rejected(hub) == (2, 0, 5)
        assert hub.query("ever").invoke().to_pylist()[0]["n"] == 2


def test_a_row_on_which_one_query_fails_is_counted_there_and_no_other_query_notices(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*cut(GOOD, 15))
    with rig.hub(2, {**FEW, "odd": "SELECT k, 10 / x AS part FROM s"}) as hub:
        closing = hub.run_once()
        zeros = sum(row["x"] == 0 for row in GOOD)
        assert zeros > 0
        operator = hub.operator_and_query("odd")[0].id
        assert hub.status()["rejected"] == {"odd": zeros}
        assert len(refused(hub, f"failures:{operator}")) == zeros
        for name in FEW:
            assert answer(hub, name, closing) == expected(hub.operator_and_query(name)[1], cut(GOOD, 15)), (
                name
            )
