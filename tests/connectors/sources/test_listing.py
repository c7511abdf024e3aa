"""Listing: which files are new, in which order, cut where, and the errors when they cannot be read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.catalog.definitions import RelationDefinition, StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord, SourceChanged
from headrace.connectors.records.options import settle
from headrace.connectors.sources import splits
from headrace.connectors.sources.listing import list_changed, list_new, not_there_yet, require_place
from headrace.connectors.sources.source_reader import read, read_all
from headrace.errors import UserError
from headrace.runtime.ingest.admission import Admission, Pending
from headrace.time import SECOND
from tests.connectors.building import ARRIVAL, SCHEMA, everything, stream

LINE = "1,1.5,x,2023-01-01\n"


def put(path: Path, content: str = LINE, mtime: int = 1_600_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (mtime, mtime))
    return path


def names(definition: StreamDefinition, known: set[str] | None = None) -> list[str]:
    return [Path(record.uri).name for record in list_new(definition, known or set(), ARRIVAL)]


def test_files_come_by_modification_time_then_name_or_by_name_when_asked(tmp_path: Path) -> None:
    for name, mtime in (("b.csv", 3), ("c.csv", 1), ("a.csv", 3), ("d.csv", 2)):
        put(tmp_path / name, mtime=mtime)
    assert names(stream(tmp_path, "csv")) == ["c.csv", "d.csv", "a.csv", "b.csv"]
    assert names(stream(tmp_path, "csv", order="name")) == ["a.csv", "b.csv", "c.csv", "d.csv"]


def test_hidden_unfinished_and_empty_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    for name in ("a.csv", ".b.csv", "_SUCCESS", "c.csv.tmp", "sub/d.csv", "e.csv._COPYING_"):
        put(tmp_path / name)
    put(tmp_path / "empty.csv", "")
    assert names(stream(tmp_path, "csv")) == ["a.csv"]


def test_a_path_is_a_file_a_folder_or_a_glob_with_alternatives(tmp_path: Path) -> None:
    for name in ("x/a.csv", "x/b.txt", "y/a.csv", "z/a.csv"):
        put(tmp_path / name)
    assert names(stream(tmp_path / "x" / "a.csv", "csv")) == ["a.csv"]
    assert names(stream(tmp_path / "x" / "*.csv", "csv")) == ["a.csv"]
    assert len(names(stream(tmp_path / "{x,y}", "csv"))) == 3
    assert len(names(stream(tmp_path / "*" / "a.*", "csv"))) == 3
    assert names(stream(tmp_path / "x", "csv", pathGlobFilter="*.txt")) == ["b.txt"]


def test_folders_within_are_searched_when_asked(tmp_path: Path) -> None:
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "_z/d.csv"):
        put(tmp_path / name)
    definition = stream(tmp_path, "csv", recursiveFileLookup="true")
    assert sorted(names(definition)) == ["a.csv", "b.csv", "c.csv"]
    assert list_changed(definition, (), ARRIVAL * 2).position is None


def test_known_files_are_not_listed_again_and_a_late_file_is(tmp_path: Path) -> None:
    first = put(tmp_path / "a.csv")
    definition = stream(tmp_path, "csv")
    known = {record.uri for record in list_new(definition, (), ARRIVAL)}
    assert known == {str(first)}
    put(tmp_path / "b.csv", mtime=1)
    assert names(definition, known) == ["b.csv"]


def test_an_idle_folder_is_not_listed_again_but_never_misses_a_file(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    definition = stream(tmp_path, "csv")
    changed = tmp_path.stat().st_mtime_ns // 1000
    soon = list_changed(definition, (), changed + SECOND)
    assert soon.position is None, "so soon after a change another one could hide behind the same time"
    later = list_changed(definition, (), changed + 10 * SECOND)
    assert (len(later.records), later.position is not None) == (1, True)
    assert list_changed(definition, (), changed + 20 * SECOND, later.position).records == []
    put(tmp_path / "b.csv")
    os.utime(tmp_path, ns=(0, (changed + 30 * SECOND) * 1000))
    again = list_changed(definition, {str(tmp_path / "a.csv")}, changed + 40 * SECOND, later.position)
    assert [Path(record.uri).name for record in again.records] == ["b.csv"]


def test_an_empty_file_keeps_its_folder_from_being_called_idle(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "")
    late = tmp_path.stat().st_mtime_ns // 1000 + 10 * SECOND
    assert list_changed(stream(tmp_path, "csv"), (), late).position is None


def test_a_folder_that_is_still_empty_or_to_be_made_is_waited_for(tmp_path: Path) -> None:
    assert names(stream(tmp_path, "csv")) == []
    assert names(stream(tmp_path / "soon", "csv")) == []
    assert names(stream(tmp_path / "*.csv", "csv")) == []


@pytest.mark.parametrize("path", ["no/such", "no/*.csv", "no/{a,b}.csv"])
def test_a_stream_in_no_folder_is_not_made_but_waits_when_the_folder_goes_later(
    tmp_path: Path, path: str
) -> None:
    files = stream(tmp_path / path, "csv")
    with pytest.raises(UserError, match=r"there is no '.*/no/.*', nor the folder '.*/no' it would be in"):
        require_place(files)
    assert names(files) == []
    assert "yet; the stream waits for it" in str(not_there_yet(files))
    (tmp_path / "no").mkdir()
    require_place(files)


def test_a_glob_that_matches_nothing_says_so_and_one_in_a_folder_nobody_may_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = stream(tmp_path / "*.csv", "csv")
    assert f"nothing matches '{tmp_path}/*.csv' yet" in str(not_there_yet(files))
    put(tmp_path / "a.csv")
    assert not_there_yet(files) is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match=f"'{tmp_path}' cannot be read: permission denied"):
        names(files)


def test_a_file_or_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.csv").chmod(0)
    # Root reads everything, so the system's answer for another user is put in its place.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(
        UserError, match=r"'.*/a\.csv' cannot be read: permission denied\n  Give user \d+ the permission"
    ):
        names(stream(tmp_path, "csv"))

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"' cannot be read: permission denied"):
        names(stream(tmp_path, "csv"))


def test_a_folder_in_the_place_of_a_recorded_file_is_reported(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv")
    definition = stream(tmp_path, "csv")
    (record,) = list_new(definition, (), ARRIVAL)
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match=r"a\.csv' cannot be read: is a directory"):
        list(read(record, definition))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda file: put(file, LINE + LINE), "found that it has 38 bytes, modified 2020-09-13T12:26:40Z"),
        (
            lambda file: put(file, mtime=1_600_000_001),
            "found that it has 19 bytes, modified 2020-09-13T12:26:41Z",
        ),
        (lambda file: file.unlink(), "found that it is gone"),
    ],
)
@pytest.mark.parametrize("using", ["csv", "json", "parquet", "arrow"])
def test_a_file_that_changed_since_it_was_listed_is_never_read_again_in_silence(
    tmp_path: Path, using: str, change, found: str
) -> None:
    file = put(tmp_path / "a")
    definition = stream(tmp_path, using)
    (record,) = list_new(definition, (), ARRIVAL)
    change(file)
    with pytest.raises(SourceChanged) as raised:
        list(read(record, definition))
    assert "expected 19 bytes, modified 2020-09-13T12:26:40Z" in str(raised.value)
    assert found in str(raised.value)


def test_a_file_that_changes_while_it_is_read_is_reported_too(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv")
    definition = stream(tmp_path, "csv")
    (record,) = list_new(definition, (), ARRIVAL)
    batches = read(record, definition)
    next(batches)
    put(file, LINE + LINE)
    with pytest.raises(SourceChanged):
        next(batches)


@pytest.mark.parametrize("using", ["csv", "json", "parquet", "arrow"])
def test_large_files_are_cut_by_themselves_alone_and_nothing_is_lost(
    tmp_path: Path, using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table(
        {
            "k": pa.array(range(5000), pa.int32()),
            "v": [0.5] * 5000,
            "s": [f"{k:x}" * 3 for k in range(5000)],
            "at": pa.array([ARRIVAL] * 5000).cast(pa.timestamp("us", tz="UTC")),
        }
    )
    file = tmp_path / "a"
    if using == "parquet":
        pq.write_table(table, file, row_group_size=700)
    elif using == "arrow":
        with pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table, max_chunksize=700)
    else:
        rows = table.set_column(3, "at", table["at"].cast(pa.string())).to_pylist()
        lines = (
            [",".join(map(str, row.values())) for row in rows]
            if using == "csv"
            else [repr(r).replace("'", '"') for r in rows]
        )
        file.write_text("\n".join(lines))
    definition = stream(file, using)
    (whole,) = list_new(definition, (), ARRIVAL)
    monkeypatch.setattr(splits, "PIECE", file.stat().st_size // 5)
    records = list_new(definition, (), ARRIVAL + 1)
    assert len(records) > 2
    assert [record.start for record in records[1:]] == [record.end for record in records[:-1]]
    rows, reasons = everything(definition, records)
    assert reasons == []
    assert [row["k"] for row in rows] == list(range(5000))
    assert rows == everything(definition, [replace(whole, arrival=ARRIVAL + 1)])[0]


def test_records_survive_the_ingest_log(tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    (record,) = list_new(stream(tmp_path, "csv"), (), ARRIVAL)
    assert IngestRecord.from_json(record.to_json()) == record


def test_a_relation_is_read_whole(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", LINE, 1)
    put(tmp_path / "b.csv", LINE + "x\n", 2)
    relation = settle(RelationDefinition("r", SCHEMA, "csv", {"path": "."}), tmp_path)
    table, rejects = read_all(relation, ARRIVAL)
    assert (table.num_rows, table.schema) == (2, SCHEMA.arrow())
    assert rejects.to_pylist() == [{"row": (1 << 32) + 1, "text": "x", "reason": "1 cell, expected 4"}]


@pytest.mark.parametrize(
    ("using", "options", "message"),
    [
        ("csv", {}, "'s': a csv source needs the option path"),
        (
            "csv",
            {"path": "a", "headr": "true"},
            "a csv source has no option 'headr'\n  Did you mean 'header'",
        ),
        ("csv", {"path": "a", "header": "yes"}, "option header is 'yes'\n  Write 'true' or 'false'."),
        ("csv", {"path": "a", "sep": "||"}, "option sep is '||'"),
        ("csv", {"path": "a", "encoding": "klingon"}, "option encoding is 'klingon', which is not known"),
        (
            "csv",
            {"path": "a", "comment": "#", "multiLine": "true"},
            "the options comment and multiLine cannot both",
        ),
        ("csv", {"path": "a", "mode": "FAILFAST"}, "option mode is 'FAILFAST'"),
        (
            "csv",
            {"path": "a", "timestampFormat": "EEE, d MMM"},
            "option timestampFormat is 'EEE, d MMM', and this version",
        ),
        ("csv", {"path": "a", "lineSep": ";"}, "option lineSep is neither a line feed nor CR LF"),
        ("csv", {"path": "s3://bucket/a"}, "path 's3://bucket/a' is not on a local file system"),
        ("csv", {"path": "a", "order": "size"}, "option order is 'size'"),
        ("json", {"path": "a", "header": "true"}, "a json source has no option 'header'"),
        ("parquet", {"path": "a", "maxFilesPerTrigger": "0"}, "option maxFilesPerTrigger is '0'"),
        ("json", {"path": "a", "maxBytesPerTrigger": "1g"}, "option maxBytesPerTrigger is '1g'"),
        ("csv", {"path": "a", "latestFirst": "true"}, "a csv source has no option 'latestFirst'"),
        ("csv", {"path": "a", "emptyValue": "-"}, "a csv source has no option 'emptyValue'"),
        ("rate", {"rowsPerSecond": "many"}, "option rowsPerSecond is 'many'"),
    ],
)
def test_a_wrong_option_is_reported_when_the_stream_is_made(
    using: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError) as raised:
        settle(StreamDefinition("s", SCHEMA, using, options), Path("/"))
    assert message in str(raised.value)


def test_an_epoch_takes_no_more_bytes_than_a_stream_allows_but_for_one_file() -> None:
    def taken(limit: str) -> int:
        stream = StreamDefinition("s", SCHEMA, "parquet", {"path": "a", "maxBytesPerTrigger": limit})
        waiting = [Pending(n, "s", None, 100, {"uri": f"{n}"}) for n in range(5)]
        return len(Admission().take(waiting, stream))

    assert [taken(limit) for limit in ("1", "100", "299", "300", "10000")] == [1, 1, 2, 3, 5]


def test_a_relative_path_starts_where_the_stream_is_made() -> None:
    definition = settle(StreamDefinition("s", SCHEMA, "csv", {"PATH": "data/*.csv"}), Path("/here"))
    assert definition.options == {"path": "/here/data/*.csv"}
    assert settle(StreamDefinition("s", SCHEMA, "csv", {"path": "file:///a"}), Path("/")).options == {
        "path": "/a"
    }


def test_symbolic_links_that_lead_in_a_circle_are_passed_over(tmp_path: Path) -> None:
    """Of a file and of a folder; they stopped the hub with the advice to give a permission, or gave each file forty times."""
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/a.csv").write_text("1\n")
    (tmp_path / "in/b.csv").symlink_to(tmp_path / "in/c.csv")
    (tmp_path / "in/c.csv").symlink_to(tmp_path / "in/b.csv")
    (tmp_path / "in/deep/up").symlink_to(tmp_path / "in")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/d.csv").write_text("1\n")
    (tmp_path / "in/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    deep = stream(tmp_path / "in", "csv", recursiveFileLookup="true")
    assert [Path(record.uri).name for record in list_new(deep, (), ARRIVAL)] == ["a.csv", "d.csv"]
    assert list_new(stream(tmp_path / "in", "csv"), (), ARRIVAL) == []
    assert list_new(stream(tmp_path / "self", "csv"), (), ARRIVAL) == []
    assert list_new(stream(tmp_path / "s*", "csv"), (), ARRIVAL) == []
