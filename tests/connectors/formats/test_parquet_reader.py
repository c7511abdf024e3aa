"""Parquet and Arrow files: matched by name, cast safely, refused whole when they are something else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.connectors.formats import parquet_reader
from headrace.connectors.formats.typed_columns import fitted
from headrace.connectors.sources.listing import list_new
from headrace.connectors.sources.source_reader import read
from headrace.schema import DATE, INT, TIMESTAMP, Field, Schema, struct
from tests.connectors.building import ARRIVAL, everything, rejected, stream

AT = datetime(2023, 1, 1, tzinfo=UTC)


def table(rows: int = 3, **replaced: pa.Array | None) -> pa.Table:
    columns = {
        "s": pa.array(["x"] * rows).dictionary_encode(),
        "AT": pa.array([AT] * rows, pa.timestamp("ns", tz="UTC")),
        "k": pa.array(range(rows), pa.int64()),
        "extra": pa.array([None] * rows),
        "v": pa.array([1.5] * rows, pa.float32()),
        **replaced,
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})


def write(path: Path, content: pa.Table, using: str) -> None:
    if using == "parquet":
        pq.write_table(content, path, row_group_size=2)
    elif using == "arrow stream":
        with pa.ipc.new_stream(path, content.schema) as out:
            out.write_table(content, max_chunksize=2)
    else:
        with pa.ipc.new_file(path, content.schema) as out:
            out.write_table(content, max_chunksize=2)


FORMATS = ["parquet", "arrow", "arrow stream"]


@pytest.mark.parametrize("using", FORMATS)
def test_columns_are_found_by_name_and_cast_to_the_schema(tmp_path: Path, using: str) -> None:
    write(tmp_path / "a", table(), using)
    rows, reasons = everything(stream(tmp_path, using.split(maxsplit=1)[0]))
    assert rows == [{"k": k, "v": 1.5, "s": "x", "at": AT} for k in range(3)]
    assert reasons == []


@pytest.mark.parametrize("small", [0, 1 << 18])
def test_a_file_is_read_as_a_whole_or_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(parquet_reader, "_SMALL", small)
    write(tmp_path / "a", table(5), "parquet")
    rows, reasons = everything(stream(tmp_path, "parquet"))
    assert ([row["k"] for row in rows], reasons) == ([*range(5)], [])


@pytest.mark.parametrize("using", FORMATS)
@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"v": None}, "schema changed: column v is missing; there is s, AT, k, extra"),
        ({"v": pa.array(["1"] * 3)}, "schema changed: column v is string, expected DOUBLE"),
        ({"k": pa.array([1.0] * 3)}, "schema changed: column k is double, expected INT"),
        ({"AT": pa.array(["2023"] * 3)}, "schema changed: column at is string, expected TIMESTAMP"),
    ],
)
def test_a_file_of_another_schema_is_a_reject_a_row(
    tmp_path: Path, using: str, replaced: dict, reason: str
) -> None:
    write(tmp_path / "a", table(**replaced), using)
    assert rejected(stream(tmp_path, using.split(maxsplit=1)[0])) == [
        (row, str(tmp_path / "a"), f"{tmp_path / 'a'}: {reason}") for row in range(3)
    ]


@pytest.mark.parametrize("using", FORMATS)
def test_a_value_that_does_not_fit_rejects_its_row_alone(tmp_path: Path, using: str) -> None:
    write(tmp_path / "a", table(k=pa.array([1, 1 << 40, 3])), using)
    rows, reasons = everything(stream(tmp_path, using.split(maxsplit=1)[0]))
    assert [row["k"] for row in rows] == [1, 3]
    assert reasons == ["column k: 1099511627776 does not fit INT"]


@pytest.mark.parametrize("using", ["parquet", "arrow"])
def test_text_that_is_no_utf8_rejects_its_row_alone(tmp_path: Path, using: str) -> None:
    text = pa.array([b"a", b"\xff", None]).view(pa.string())
    write(tmp_path / "a", table(s=text), using)
    rows, reasons = everything(stream(tmp_path, using))
    assert [row["s"] for row in rows] == ["a", None]
    assert reasons == [r"column s: b'\xff' (not UTF-8) does not fit STRING"]


@pytest.mark.parametrize(
    ("using", "unit", "value"),
    [
        ("parquet", "ms", 1 << 62),
        ("arrow", "ms", -(1 << 62)),
        ("arrow", "s", 1 << 40),
        ("arrow", "s", 1 << 62),
    ],
)
def test_an_event_time_that_python_has_not_rejects_its_row_alone(
    tmp_path: Path, using: str, unit: str, value: int
) -> None:
    second = {"s": 1, "ms": 1000}[unit]
    times = pa.array([1_672_531_200 * second, value, 1_672_531_201 * second])
    write(tmp_path / "a", table(AT=times.cast(pa.timestamp(unit, tz="UTC"))), using)
    rows, reasons = everything(stream(tmp_path, using))
    assert [row["k"] for row in rows] == [0, 2]
    assert len(reasons) == 1


def test_a_reject_shows_values_that_python_has_not() -> None:
    time = pa.array([1 << 62]).cast(pa.timestamp("ms"))
    within = pa.StructArray.from_arrays([time.view(pa.timestamp("us"))], ["t"])
    fields = [Field("at", TIMESTAMP), Field("inner", struct(Field("t", TIMESTAMP))), Field("k", INT)]
    (refused,) = fitted([time, within, pa.array([1])], fields, 0).refused
    assert refused.reason == "column at: 4611686018427387904 (timestamp[ms]) does not fit TIMESTAMP"
    assert "inner: a struct<t: timestamp[us]> with a value beyond Python's range, k: 1" in refused.text


@pytest.mark.parametrize("using", FORMATS)
def test_event_times_that_cannot_be_reject_their_rows(tmp_path: Path, using: str) -> None:
    at = pa.array(
        [None, 1_672_531_200_000_000, ARRIVAL + 86_400_000_001, -(1 << 62)], pa.timestamp("us", tz="UTC")
    )
    write(tmp_path / "a", table(4, AT=at), using)
    rows, reasons = everything(stream(tmp_path, using.split(maxsplit=1)[0]))
    assert [row["k"] for row in rows] == [1]
    assert [reason[:32] for reason in reasons] == [
        "event time at is null",
        "event time at is 2027-01-16T08:0",
        "event time at is outside of the ",
    ]


def test_a_date_is_an_event_time_and_an_absurd_one_rejects_its_row(tmp_path: Path) -> None:
    schema = Schema((Field("d", DATE),))
    days = pa.array([19358, None, 2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32())
    with pa.ipc.new_file(tmp_path / "a", pa.schema({"d": pa.date32()})) as out:
        out.write_table(pa.table({"d": days}))
    definition = stream(tmp_path, "arrow", schema, "d")
    (record,) = list_new(definition, (), ARRIVAL)
    (batch,) = read(record, definition)
    assert batch.at.tolist() == [1_672_531_200_000_000]
    assert [reason.split("(")[0] for reason in batch.rejects["reason"].to_pylist()] == [
        "event time d is null",
        "event time d is outside of the years 1 to 9999 ",
        "event time d is outside of the years 1 to 9999 ",
    ]


@pytest.mark.parametrize("using", FORMATS)
@pytest.mark.parametrize("kept", [1, 40, -20])
def test_a_truncated_file_is_rejected_and_does_not_crash(tmp_path: Path, using: str, kept: int) -> None:
    write(tmp_path / "a", table(), using)
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:kept])
    _, reasons = everything(stream(tmp_path, using.split(maxsplit=1)[0]))
    assert len(reasons) == 1
    assert "not a readable" in reasons[0]


def test_ranges_of_row_groups_cover_the_file_once(tmp_path: Path) -> None:
    write(tmp_path / "a", table(5), "parquet")
    definition = stream(tmp_path, "parquet")
    (record,) = list_new(definition, (), ARRIVAL)
    pieces = [replace(record, start=0, end=1), replace(record, start=1, end=3)]
    assert everything(definition, pieces) == everything(definition)


def test_only_the_columns_asked_for_come_back_in_that_order(tmp_path: Path) -> None:
    write(tmp_path / "a", table(), "parquet")
    definition = stream(tmp_path, "parquet")
    (record,) = list_new(definition, (), ARRIVAL)
    (batch,) = read(record, definition, ("v", "k"))
    assert batch.table.schema.names == ["v", "k"]
    assert batch.at.tolist() == [1_672_531_200_000_000] * 3


@pytest.mark.parametrize("using", FORMATS)
def test_nanoseconds_are_rounded_down_to_microseconds(tmp_path: Path, using: str) -> None:
    """Also those before 1970: a row belongs to the window that its nanosecond is in."""
    nanos = [-2001, -2000, -1, 0, 999, 1000]
    at = pa.array(nanos, pa.int64()).cast(pa.timestamp("ns", tz="UTC"))
    write(tmp_path / "1.parquet", table(len(nanos), AT=at), using)
    source = stream(tmp_path, using.split(maxsplit=1)[0])
    (record,) = list_new(source, (), ARRIVAL)
    seen = [instant for batch in read(record, source) for instant in batch.times.instants.tolist()]
    assert seen == [nano // 1000 for nano in nanos]
