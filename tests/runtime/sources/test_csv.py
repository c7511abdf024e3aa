"""CSV: what is accepted, what is rejected and why, and that no cut of a file changes either."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import itertools

from building import ARRIVAL, SCHEMA, everything, rejected, stream

from headrace.runtime.sources import lines
from headrace.runtime.sources.listing import list_new

GOOD = b"1,1.5,x,2023-01-01 00:00:00"
AT = datetime(2023, 1, 1, tzinfo=UTC)


def test_a_header_is_matched_by_name_whatever_its_case_order_and_further_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfAT,extra,S,K,v\r\n2023-01-01,?,x,1,1.5\r\n")
    assert everything(stream(tmp_path, "csv", header="true")) == (
        [{"k": 1, "v": 1.5, "s": "x", "at": AT}],
        [],
    )


def test_an_empty_cell_is_null_and_a_quoted_one_is_the_empty_string(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b',,"",2023-01-01\n"","",,2023-01-01')
    rows, reasons = everything(stream(tmp_path, "csv"))
    assert [(row["k"], row["v"], row["s"]) for row in rows] == [(None, None, ""), (None, None, None)]
    assert reasons == []


BAD = [
    (b"x,1.5,x,2023-01-01", "column k: 'x' is not an INT"),
    (b"1.0,1.5,x,2023-01-01", "column k: '1.0' is not an INT"),
    (b" 1,1.5,x,2023-01-01", "column k: ' 1' is not an INT"),
    (b"0x10,1.5,x,2023-01-01", "column k: '0x10' is not an INT"),
    (b"2147483648,1.5,x,2023-01-01", "column k: '2147483648' is not an INT"),
    (b"99999999999999999999999,1.5,x,2023-01-01", "column k: '99999999999999999999999' is not an INT"),
    (b"1,1.5.5,x,2023-01-01", "column v: '1.5.5' is not a DOUBLE"),
    (b"1,0x1p3,x,2023-01-01", "column v: '0x1p3' is not a DOUBLE"),
    (b"1,1_0,x,2023-01-01", "column v: '1_0' is not a DOUBLE"),
    (b"1,1.5,x,2023-13-01", "column at: '2023-13-01' is not a TIMESTAMP"),
    (b"1,1.5,x,2023-02-29 00:00:00", "column at: '2023-02-29 00:00:00' is not a TIMESTAMP"),
    (b"1,1.5,x,yesterday", "column at: 'yesterday' is not a TIMESTAMP"),
    (b"1,1.5,x,2023-01-01T00:00:00+99:00", "column at: '2023-01-01T00:00:00+99:00' is not a TIMESTAMP"),
    (b"1,1.5,x,", "event time at is null"),
    (b"1,1.5,x", "3 cells, expected 4"),
    (b"1", "1 cell, expected 4"),
    (b"1,1.5,x,2023-01-01,5", "5 cells, expected 4"),
    (b'1,1.5,"x,2023-01-01', "a quote is not closed on its line"),
    (b'1,1.5,x,"2023-01-01', "a quote is not closed on its line"),
    (b"1,1.5,\xff,2023-01-01", "not valid UTF-8 at byte 7 of the line"),
    (
        b"1,1.5,x,2027-01-17",
        "event time at is 2027-01-17T00:00:00Z, more than 1 DAY after its arrival at 2027-01-15T08:00:00Z",
    ),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_record_is_rejected_with_its_reason_and_text_and_its_block_is_kept(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    (tmp_path / "a.csv").write_bytes(
        GOOD + b"\n" + line + b"\n" + GOOD + b'\n2,2,"a ""b""",2023-01-01T00:00:00Z\n'
    )
    definition = stream(tmp_path, "csv")
    rows, reasons = everything(definition)
    assert [row["s"] for row in rows] == ["x", "x", 'a "b"']
    assert reasons == [reason]
    assert rejected(definition) == [(1, line.decode("utf-8", "replace"), reason)]


def test_of_two_bad_cells_the_first_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y,z,w\n")
    assert everything(stream(tmp_path, "csv")) == ([], ["column k: 'x' is not an INT"])


def test_permissive_puts_null_for_what_it_cannot_read_but_an_event_time_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'x,1.5,a,2023-01-01\n1,y\n1,2,b,2023-01-01,9\n1,2,c,never\n2,3,"d,""e",2023-01-01,9,9\n'
    )
    rows, reasons = everything(stream(tmp_path, "csv", mode="PERMISSIVE"))
    assert [(row["k"], row["v"], row["s"]) for row in rows] == [
        (None, 1.5, "a"),
        (1, 2.0, "b"),
        (2, 3.0, 'd,"e'),
    ]
    assert reasons == ["event time at is null", "event time at is null"]


def test_a_quoted_line_feed_belongs_to_a_cell_only_with_multi_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'1,1,"a\nb",2023-01-01\nx,1,"c\nd",2023-01-01\n')
    rows, reasons = everything(stream(tmp_path, "csv", multiLine="true"))
    assert [row["s"] for row in rows] == ["a\nb"]
    assert reasons == ["column k: 'x' is not an INT"]
    assert rejected(stream(tmp_path, "csv", multiLine="true"))[0][1] == 'x,1,"c\nd",2023-01-01'
    assert everything(stream(tmp_path, "csv"))[0] == []
    assert len(everything(stream(tmp_path, "csv"))[1]) == 4


def test_a_column_missing_in_the_header_rejects_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"k,v,at\n1,1,2023-01-01\n")
    rows, reasons = everything(stream(tmp_path, "csv", header="true"))
    assert (rows, len(reasons)) == ([], 1)
    assert "schema changed: column s is missing in the header" in reasons[0]


CELL = st.sampled_from(
    [
        "1",
        "+1",
        "-7",
        "",
        '""',
        "x",
        "1.5",
        "nan",
        "Inf",
        "true",
        "2023-01-01",
        "2023-01-31 05:06:07.1234567Z",
    ]
)
LINE = st.one_of(
    st.tuples(
        CELL, CELL, st.sampled_from(["a", '"b,b"', '""', '"q""q"', 'in"ner', '"open', "é", ""]), CELL
    ).map(",".join),
    st.sampled_from(["", "  ", "1,2", "1,2,3,4,5", '"'] * 1),
    st.just("1,2,z,2023-01-01 00:00:00"),
)


@given(st.lists(LINE, max_size=12), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_any_cut_into_byte_ranges_gives_the_same_rows_and_rejects_in_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], ending: str, header: bool, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("cut") / "a.csv"
    head = ["k,v,s,at"] if header else []
    file.write_bytes(ending.join([*head, *texts, GOOD.decode()]).encode())
    definition = stream(file, "csv", header=str(header).lower())
    (record,) = list_new(definition, (), ARRIVAL)
    cuts = sorted(data.draw(st.lists(st.integers(0, record.size), max_size=6)))
    bounds = [0, *cuts, record.size]
    pieces = [replace(record, start=a, end=b) for a, b in itertools.pairwise(bounds) if b > a]
    assert repr(everything(definition, pieces)) == repr(everything(definition))


@given(st.lists(LINE, min_size=1, max_size=12), st.integers(20, 60))
def test_the_size_of_blocks_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block: int
) -> None:
    file = tmp_path_factory.mktemp("block") / "a.csv"
    file.write_text("\n".join([*texts, GOOD.decode()]) + "\n")
    definition = stream(file, "csv")
    whole = everything(definition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        assert repr(everything(definition)) == repr(whole)


def test_the_schema_of_these_tests_has_an_event_time() -> None:
    assert SCHEMA.find("at") is not None
