"""Every format to the last byte."""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.formats.rendering import render, to_csv, to_text
from headrace.errors import UserError

STAMP = pa.timestamp("us", tz="UTC")
NAN, INFINITY = float("nan"), float("inf")
WINDOW = pa.struct([("start", STAMP), ("price", pa.decimal128(9, 2)), ("x", pa.float64())])


def one(values, kind=None) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("values", "kind", "cells"),
    [
        ([1_700_000_000_000_000, -1, 1_500_000], STAMP, ["2023-11-14T22:13:20Z", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:01.500000Z"]),
        ([1_700_000_000_000_000], pa.timestamp("us"), ["2023-11-14T22:13:20Z"]),
        ([1.0, 0.1, 1e20, 1e16, -0.0, 1e-7], None, ["1.0", "0.1", "1e+20", "1e+16", "-0.0", "1e-07"]),
        ([NAN, INFINITY, -INFINITY], None, ["NaN", "Infinity", "-Infinity"]),
        ([0.1, 16777216.0], pa.float32(), ["0.1", "16777216.0"]),
        ([Decimal("1.50"), Decimal("-0.00"), Decimal("1E+3")], pa.decimal128(9, 2), ["1.50", "0.00", "1000.00"]),
        ([True, False], None, ["true", "false"]),
        ([date(2024, 2, 29)], None, ["2024-02-29"]),
        ([61_000_000, -1], pa.duration("us"), ["INTERVAL '0 00:01:01' DAY TO SECOND", "INTERVAL '-0 00:00:00.000001' DAY TO SECOND"]),
        (["", "plain", 'a "b"', "x,y", "x\ny", "x\ry", " z "], None, ['""', "plain", '"a ""b"""', '"x,y"', '"x\ny"', '"x\ry"', " z "]),
        ([{"start": 0, "price": Decimal("2.50"), "x": NAN}], WINDOW, ['"{""start"":""1970-01-01T00:00:00Z"",""price"":2.50,""x"":""NaN""}"']),
        ([b"\x00\xff"], None, ["00ff"]),
    ],
)  # fmt: skip
def test_a_csv_cell_is_written_as_the_contract_says(values, kind, cells) -> None:
    assert to_csv(one(values, kind)) == "".join(f"{line}\n" for line in ["c", *cells])


def test_null_is_an_empty_cell_and_the_empty_string_a_quoted_one() -> None:
    table = pa.table({"a": [None, ""], "b": pa.array([None, 1], pa.int64())})
    assert render(table, "csv") == b'a,b\n,\n"",1\n'


def test_csv_has_its_header_without_rows_and_json_is_empty() -> None:
    table = pa.table({"a": pa.array([], pa.int64()), "b,c": pa.array([], pa.string())})
    assert render(table, "csv") == b'a,"b,c"\n'
    assert render(table, "json") == b""


def test_json_lines_keep_nulls_types_and_nested_values() -> None:
    table = pa.table(
        {
            "n": pa.array([1, None], pa.int64()),
            "x": pa.array([0.5, NAN]),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "t": pa.array([0, None], STAMP),
            "s": pa.array(['ü"', ""]),
            "w": pa.array([{"a": [1, None]}, None]),
        }
    )
    assert render(table, "json").decode().splitlines() == [
        '{"n":1,"x":0.5,"d":1.50,"t":"1970-01-01T00:00:00Z","s":"ü\\"","w":{"a":[1,null]}}',
        '{"n":null,"x":"NaN","d":null,"t":null,"s":"","w":null}',
    ]


def test_parquet_keeps_every_type() -> None:
    table = pa.table(
        {"t": pa.array([0, None], STAMP), "d": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))}
    )
    assert pq.read_table(pa.BufferReader(render(table, "parquet"))) == table


def test_a_table_for_people_aligns_numbers_and_cannot_move_the_cursor() -> None:
    table = pa.table({"name": ["a\nb", "\x1b[2J"], "n": pa.array([5, None], pa.int64())})
    assert to_text(table, limit=1) == "name     n\n────  ────\na\\nb     5\n(2 rows, 1 not shown)\n".replace(
        "────  ────", "────  ─"
    ).replace("name     n", "name  n").replace("a\\nb     5", "a\\nb  5")
    assert "\\x1b[2J" in to_text(table)
    assert "NULL" in to_text(table)


def test_issue_18_item_4_a_very_long_value_is_cut_in_a_table_and_nowhere_else() -> None:
    table = pa.table({"query": ["x" * 5_000, "short"]})
    assert to_text(table).splitlines()[2] == "x" * 4_000 + "… (1,000 characters more)"
    assert len(to_text(table)) < 2 * 5_000 + 100
    assert all("x" * 5_000 in render(table, style).decode() for style in ("csv", "json"))


def test_an_unknown_format_is_reported_with_those_there_are() -> None:
    with pytest.raises(UserError, match="there is no format 'cvs'") as raised:
        render(one([1]), "cvs")
    assert "csv" in str(raised.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.lists(st.tuples(st.none() | TEXTS, st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_csv_can_be_read_back_by_another_reader(rows) -> None:
    table = pa.table(
        {"s": pa.array([s for s, _ in rows], pa.string()), "n": pa.array([n for _, n in rows], pa.int64())}
    )
    read = list(csv.reader(io.StringIO(to_csv(table), newline="")))
    assert read == [["s", "n"], *([s or "", str(n)] for s, n in rows)]


@given(st.lists(st.none() | st.floats() | st.integers(-5, 5).map(float), max_size=20))
def test_json_can_be_read_back_by_another_reader(values) -> None:
    lines = render(one(values, pa.float64()), "json").decode().splitlines()
    read = [json.loads(line)["c"] for line in lines]
    assert [repr(v if v is None else float(v)) for v in read] == [repr(v) for v in values]
