"""Columns as DataRow messages, read back by a decoder of the test's own; tokens and parameters of statements."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server.postgres.protocol.parameters import literal
from headrace.server.postgres.protocol.rows import copied_rows, data_rows, row_description
from headrace.server.postgres.protocol.types import type_of
from headrace.server.postgres.tables.sql_text import for_reader, parameters, statements, with_values
from tests.server.postgres.wire import cells

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
INT64 = st.integers(-(2**63), 2**63 - 1)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), INT64),
    "float64": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "decimal": (pa.decimal128(38, 6), st.decimals(-(10**30), 10**30, places=6)),
}


def messages(data: memoryview) -> list[list[bytes | None]]:
    found, at = [], 0
    while at < len(data):
        assert data[at : at + 1] == b"D"
        length = struct.unpack_from("!i", data, at + 1)[0]
        found.append(cells(bytes(data[at + 5 : at + 1 + length])))
        at += 1 + length
    assert at == len(data)
    return found


def read_text(name: str, cell: bytes) -> Any:
    text = cell.decode()
    match name:
        case "bool":
            return {"t": True, "f": False}[text]
        case "float64":
            return float(text)
        case "text":
            return text
        case "bytes":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "date":
            return date.fromisoformat(text)
        case "time":
            return time.fromisoformat(text)
        case "instant":
            assert text.endswith("+00")
            return datetime.fromisoformat(f"{text}:00")
        case "decimal":
            return Decimal(text)
    return int(text)


def read_binary(name: str, cell: bytes) -> Any:
    match name:
        case "bool":
            return struct.unpack("!?", cell)[0]
        case "float64":
            return struct.unpack("!d", cell)[0]
        case "text":
            return cell.decode()
        case "bytes":
            return cell
        case "date":
            return date(2000, 1, 1) + timedelta(days=struct.unpack("!i", cell)[0])
        case "time":
            return (EPOCH + timedelta(microseconds=struct.unpack("!q", cell)[0])).time()
        case "instant":
            return EPOCH + timedelta(microseconds=struct.unpack("!q", cell)[0])
        case "decimal":
            count, weight, sign, scale = struct.unpack_from("!hhHh", cell)
            assert scale == 6
            digits = struct.unpack_from(f"!{count}h", cell, 8)
            assert all(0 <= digit < 10_000 for digit in digits)
            with localcontext(prec=38):
                total = sum(
                    (Decimal(digit).scaleb(4 * (weight - at)) for at, digit in enumerate(digits)), Decimal(0)
                )
            return total.copy_negate() if sign else total
    return int.from_bytes(cell, "big", signed=True)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    count = draw(st.integers(0, 5))
    columns = [
        pa.array(
            draw(st.lists(st.none() | COLUMNS[name][1], min_size=count, max_size=count)), COLUMNS[name][0]
        )
        for name in names
    ]
    start = draw(st.integers(0, count))
    return pa.table(columns, names=[f"{name}_{at}" for at, name in enumerate(names)]).slice(start)


@given(table=tables(), data=st.data())
def test_values_are_read_back_from_either_format(table: pa.Table, data: st.DataObject) -> None:
    formats = data.draw(
        st.lists(st.sampled_from([0, 1]), min_size=table.num_columns, max_size=table.num_columns)
    )
    found = messages(data_rows(table, formats))
    assert len(found) == table.num_rows
    for at, form in enumerate(formats):
        name = table.column_names[at].partition("_")[0]
        wanted = table.column(at).to_pylist()
        read = read_binary if form else read_text
        back = [None if row[at] is None else read(name, row[at]) for row in found]
        assert repr(back) == repr(wanted) if name == "float64" else back == wanted
        kind = type_of(table.schema.field(at).type)
        if form and kind.size > 0:
            assert {len(row[at]) for row in found if row[at] is not None} <= {kind.size}


def test_columns_are_described_with_their_types_and_formats() -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    body = bytes(row_description(schema, [0, 1]))[5:]
    assert body == b"\0\2" + b"k\0" + struct.pack("!ihIhih", 0, 0, 25, -1, -1, 0) + b"n\0" + struct.pack(
        "!ihIhih", 0, 0, 20, 8, -1, 1
    )


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float64(), "-Infinity"),
        (1.5, pa.float32(), "1.5"),
        (timedelta(hours=-30, microseconds=5), pa.duration("us"), "-29:59:59.999995"),
        ([1, None], pa.list_(pa.int64()), '{"1",NULL}'),
        (['a"b', "c\\"], pa.list_(pa.string()), '{"a\\"b","c\\\\"}'),
        ({"a": 1, "b": None}, pa.struct([("a", pa.int8()), ("b", pa.string())]), '{"a":1,"b":null}'),
        (datetime(1, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), "0001-01-01 00:00:00+00"),
        (1_704_067_200_000_120, pa.timestamp("us"), "2024-01-01 00:00:00.00012"),
        (253_402_300_800_000_000, pa.timestamp("us", "UTC"), "10000-01-01 00:00:00+00"),
        (3_093_527_894_400_500_000, pa.timestamp("us"), "99999-12-31 00:00:00.5"),
        (-63_517_824_000_000_000, pa.timestamp("us", "UTC"), "0044-03-15 00:00:00+00 BC"),
        ((1 << 63) - 1, pa.timestamp("us", "UTC"), "infinity"),
        (1 - (1 << 63), pa.timestamp("us"), "-infinity"),
        (-719_163, pa.date32(), "0001-12-31 BC"),
        (35_804_721, pa.date32(), "99999-12-31"),
        ((1 << 31) - 1, pa.date32(), "infinity"),
        (None, pa.null(), None),
    ],
)
def test_text_is_what_postgresql_would_write(value: object, kind: pa.DataType, text: str | None) -> None:
    ((cell,),) = messages(data_rows(pa.table({"x": pa.array([value], kind)}), [0]))
    assert (None if cell is None else cell.decode()) == text


@pytest.mark.parametrize(
    ("value", "kind", "form"),
    [
        ((1 << 63) - 1, pa.timestamp("us"), "!q"),
        (1 - (1 << 63), pa.timestamp("us"), "!q"),
        ((1 << 31) - 1, pa.date32(), "!i"),
        (1 - (1 << 31), pa.date32(), "!i"),
    ],
)
def test_an_infinite_time_in_binary_is_the_greatest_or_the_least(
    value: int, kind: pa.DataType, form: str
) -> None:
    ((cell,),) = messages(data_rows(pa.table({"x": pa.array([value], kind)}), [1]))
    assert cell == struct.pack(form, value if value > 0 else value - 1)


@pytest.mark.parametrize(("is_csv", "line"), [(False, b'a\\tb\t\\N\t\tx"y\n'), (True, b'a\tb,,"","x""y"\n')])
def test_copied_cells_are_escaped(is_csv: bool, line: bytes) -> None:
    table = pa.table({"a": ["a\tb"], "b": pa.array([None], pa.string()), "c": [""], "d": ['x"y']})
    sent = bytes(copied_rows(table, is_csv=is_csv))
    assert sent == b"d" + struct.pack("!i", len(line) + 4) + line


# -- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a; b", ["a", "b"]),
        (" ;;a;", ["a"]),
        ("'x;y' ; \"q;r\"", ["'x;y' ", '"q;r"']),
        ("a -- c;d\n;b", ["a -- c;d\n", "b"]),
        ("a /* ; /* ; */ ; */ ; b", ["a /* ; /* ; */ ; */ ", "b"]),
        ("E'it\\';s'; $tag$ a;b $tag$; `q;r`", ["E'it\\';s'", "$tag$ a;b $tag$", "`q;r`"]),
        ("'it''s;'; 'open ; x", ["'it''s;'", "'open ", "x"]),
        ("/* open ; a", []),
        ("", []),
    ],
)
def test_statements_end_at_semicolons_that_mean_it(text: str, pieces: list[str]) -> None:
    found = statements(text)
    assert [piece.text for piece in found] == pieces
    assert all(text[piece.start :].startswith(piece.text) for piece in found)


def test_many_comments_take_time_in_proportion() -> None:
    """A copy of the rest of the text for each comment would be a hundred gigabytes here."""
    text = "/**/ " * 200_000 + "SELECT 1"
    assert [found.text for found in statements(text)] == ["SELECT 1"]


def test_parameters_are_counted_and_replaced_outside_of_texts_alone() -> None:
    text = "SELECT $2, '$3', \"$4\", $1 -- $5"
    assert parameters(text) == 2
    assert with_values(text, ["one", "two"]) == "SELECT two, '$3', \"$4\", one -- $5"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT pg_catalog.version()", "SELECT version()"),
        ("a OPERATOR(pg_catalog.~) 'x' COLLATE pg_catalog.default", "a  ~  'x' "),
        ('a COLLATE "C"', "a "),
        ("FROM information_schema.tables", "FROM info_schema.tables"),
        ("'q'::regclass, 'q'::pg_catalog.regclass", "oid_of('q'), oid_of('q')"),
        ("x = ANY ('{1,2}')", "x = ANY([1, 2])"),
        ("x = ANY('{a,\"b c\",NULL}')", "x = ANY(['a', 'b c', NULL])"),
        ("at AT TIME ZONE 'UTC', s.at, \"at\"", '"at" AT TIME ZONE \'UTC\', s."at", "at"'),
        (
            "FROM string_to_array(f(x), ',') s, string_to_array(y, ',') AS t WHERE s[1] = t",
            "FROM (SELECT string_to_array(f(x), ',') AS s) s, (SELECT string_to_array(y, ',') AS t) t WHERE s[1] = t",
        ),
        ("SELECT a, string_to_array(x, ',') FROM t", "SELECT a, string_to_array(x, ',') FROM t"),
        ("'pg_catalog.at' -- at", "'pg_catalog.at' -- at"),
    ],
)
def test_what_the_reader_does_not_have_is_replaced(text: str, read: str) -> None:
    edited = for_reader(text)
    assert edited.text == read
    assert edited.place(len(read)) == len(text)


def test_places_of_a_replaced_text_are_those_of_the_original() -> None:
    text = "SELECT pg_catalog.f(at), nope"
    edited = for_reader(text)
    assert text[edited.place(edited.text.index("nope")) :] == "nope"
    assert text[edited.place(edited.text.index("f(")) :] == "f(at), nope"


@pytest.mark.parametrize(
    ("oid", "form", "value", "sql"),
    [
        (0, 0, b"it's", "'it''s'"),
        (25, 0, b"a\\", "'a\\'"),
        (20, 0, b"-5", "(-5)"),
        (20, 1, struct.pack("!q", -5), "(-5)"),
        (16, 1, b"\1", "(True)"),
        (1700, 1, struct.pack("!hhHhhh", 2, 0, 0x4000, 2, 12, 3400), "'-12.34'"),
        (1009, 0, b'{a,"b\\"c",NULL}', "['a','b\"c',NULL]"),
        (17, 0, b"\\xAB", "'\\xAB'::BLOB"),
        (1082, 1, struct.pack("!i", 1), "DATE '2000-01-02'"),
        (1184, 0, None, "NULL"),
    ],
)
def test_a_parameter_is_a_constant(oid: int, form: int, value: bytes | None, sql: str) -> None:
    assert literal(oid, form, value) == sql
