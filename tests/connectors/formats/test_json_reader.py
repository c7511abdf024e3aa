"""JSON lines: what is accepted, what is rejected and why, and that no cut of a file changes either."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.sources.listing import list_new
from headrace.errors import UserError
from headrace.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    Field,
    Schema,
    array,
    decimal,
    struct,
)
from tests.connectors.building import ARRIVAL, everything, rejected, stream

AT = datetime(2023, 1, 1, tzinfo=UTC)
GOOD = '{"k":1,"v":2,"s":"x","at":"2023-01-01T00:00:00Z","more":[1]}'

BAD = [
    ("{bad", "not JSON: Expecting property name"),
    ("[1]", "not a JSON object but list"),
    ("1", "not a JSON object but int"),
    ("null", "not a JSON object but null"),
    (GOOD + "null", "not JSON: Extra data"),
    ('{"at":"2023-01-01","k":"1"}', 'column k: "1" is not an INT'),
    ('{"at":"2023-01-01","k":1.0}', "column k: 1.0 is not an INT"),
    ('{"at":"2023-01-01","k":2147483648}', "column k: 2147483648 is not an INT"),
    ('{"at":"2023-01-01","k":true}', "column k: true is not an INT"),
    ('{"at":"2023-01-01","v":"1.5"}', 'column v: "1.5" is not a DOUBLE'),
    ('{"at":"never"}', 'column at: "never" is not a TIMESTAMP'),
    ('{"at":""}', 'column at: "" is not a TIMESTAMP'),
    ('{"at":1.5}', "column at: 1.5 is not a TIMESTAMP"),
    ('{"k":1}', "event time at is null"),
    ('{"at":"2030-01-01"}', "event time at is 2030-01-01T00:00:00Z, more than 1 DAY after its arrival"),
    (GOOD + GOOD, "not JSON: Extra data"),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_line_is_rejected_with_its_reason_and_text_and_its_block_is_kept(
    tmp_path: Path, line: str, reason: str
) -> None:
    (tmp_path / "a.json").write_text(f"{GOOD}\n{line}\n\n  \n{GOOD}")
    definition = stream(tmp_path, "json")
    rows, reasons = everything(definition)
    assert rows == [{"k": 1, "v": 2.0, "s": "x", "at": AT}] * 2
    assert [each[: len(reason)] for each in reasons] == [reason]
    assert [(row, text) for row, text, _ in rejected(definition)] == [(1, line)]


def test_a_first_line_that_is_null_is_rejected_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("null\n" + GOOD)
    rows, reasons = everything(stream(tmp_path, "json"))
    assert (len(rows), reasons) == (1, ["not a JSON object but null"])


def test_bad_lines_are_found_wherever_they_stand_in_a_long_block(tmp_path: Path) -> None:
    texts = [GOOD.replace('"k":1', f'"k":{k}') for k in range(1000)]
    texts[300], texts[999] = "{", '{"k":"x"}'
    (tmp_path / "a.json").write_text("\n".join(texts))
    definition = stream(tmp_path, "json")
    assert [row["k"] for row in everything(definition)[0]] == [k for k in range(999) if k != 300]
    assert [(row, text) for row, text, _ in rejected(definition)] == [(300, "{"), (999, '{"k":"x"}')]


def test_bytes_that_are_no_utf8_reject_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(GOOD.encode() + b'\n{"s":"\xff","at":"2023-01-01"}\n')
    assert everything(stream(tmp_path, "json"))[1] == ["not valid UTF-8 at byte 7 of the line"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (r'{"s":"\ud800","at":"2023-01-01"}', "column s: half of a surrogate pair is no text"),
        (r'{"s":{"a":["\udfff"]},"at":"2023-01-01"}', "column s: half of a surrogate pair is no text"),
        (r'{"k":"\ud800","at":"2023-01-01"}', 'column k: "?" is not an INT'),
    ],
)
def test_half_of_a_surrogate_pair_rejects_its_line(tmp_path: Path, line: str, reason: str) -> None:
    """JSON can write it, and no file of the home could hold it."""
    (tmp_path / "a.json").write_text(f"{GOOD}\n{line}\n" + r'{"s":"\ud83d\ude00","at":"2023-01-01"}')
    rows, reasons = everything(stream(tmp_path, "json"))
    assert reasons == [reason]
    assert rows[-1]["s"] == "\U0001f600"


def test_all_types_are_read_in_bulk_and_one_by_one_alike(tmp_path: Path) -> None:
    schema = Schema(
        (
            Field("b", BOOLEAN),
            Field("d", DATE),
            Field("x", decimal(5, 2)),
            Field("v", DOUBLE),
            Field("n", struct(Field("a", INT))),
            Field("l", array(INT)),
            Field("s", STRING),
        )
    )
    line = '{"b":true,"d":"2023-01-02","x":"1.25","v":1e3,"n":{"a":1},"l":[1,null],"s":"y"}\n{"b":null}\n'
    expected = [
        {
            "b": True,
            "d": date(2023, 1, 2),
            "x": Decimal("1.25"),
            "v": 1000.0,
            "n": {"a": 1},
            "l": [1, None],
            "s": "y",
        },
        dict.fromkeys(schema.names),
    ]
    for more, rows in (
        ("", []),
        ('{"s":{"t":1.50}}\n', [{**dict.fromkeys(schema.names), "s": '{"t":"1.50"}'}]),
    ):
        (tmp_path / "a.json").write_text(line + more)
        assert everything(stream(tmp_path / "a.json", "json", schema, None)) == (expected + rows, [])


def test_seconds_are_moments_and_special_numbers_have_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"at":1672531200,"v":"NaN","s":12.50}\n{"at":1672531200,"v":"-Infinity"}'
    )
    rows, reasons = everything(stream(tmp_path, "json"))
    assert [(row["at"], str(row["v"]), row["s"]) for row in rows] == [
        (AT, "nan", "12.50"),
        (AT, "-inf", None),
    ]
    assert reasons == []


def test_permissive_puts_null_for_a_value_of_another_type(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"at":"2023-01-01","k":"x"}\n{bad\n')
    rows, reasons = everything(stream(tmp_path, "json", mode="PERMISSIVE"))
    assert rows == [{"k": None, "v": None, "s": None, "at": AT}]
    assert len(reasons) == 1


def test_with_multi_line_a_file_is_one_value(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n{"k":1,\n"at":"2023-01-01"}, 5]')
    rows, reasons = everything(stream(tmp_path, "json", multiLine="true"))
    assert [row["k"] for row in rows] == [1]
    assert reasons == ["not a JSON object but int"]
    (tmp_path / "a.json").write_text("[")
    assert "not JSON: Expecting value" in everything(stream(tmp_path, "json", multiLine="true"))[1][0]


def test_a_type_that_json_cannot_hold_is_reported_when_the_stream_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="column 'i' is INTERVAL, and a json file cannot hold that"):
        stream(tmp_path, "json", Schema((Field("i", INTERVAL),)), None)


VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from(["2023-01-01", "1"]),
    st.lists(st.integers(), max_size=2),
)  # fmt: skip
OBJECT = st.fixed_dictionaries({}, optional={"k": VALUE, "v": VALUE, "s": VALUE, "at": VALUE})
LINE = st.one_of(OBJECT.map(json.dumps), st.just(GOOD), st.sampled_from(["", "  ", "{", "null", GOOD[:9]]))


@given(st.lists(LINE, max_size=10), st.data())
def test_any_cut_into_byte_ranges_gives_the_same_rows_and_rejects_in_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("cut") / "a.json"
    file.write_text("\n".join([*texts, GOOD]))
    definition = stream(file, "json")
    (record,) = list_new(definition, (), ARRIVAL)
    cuts = sorted(data.draw(st.lists(st.integers(0, record.size), max_size=6)))
    bounds = [0, *cuts, record.size]
    pieces = [replace(record, start=a, end=b) for a, b in pairwise(bounds) if b > a]
    assert repr(everything(definition, pieces)) == repr(everything(definition))
