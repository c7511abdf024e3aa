"""CSV: what is accepted, what is rejected and why, and that no cut of a file changes either."""

from __future__ import annotations

import csv
import gzip
import itertools
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.formats import text_lines
from headrace.connectors.sources.listing import list_new
from headrace.schema import STRING, Field, Schema
from tests.connectors.building import ARRIVAL, everything, rejected, stream

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


def test_a_line_of_separators_that_look_like_blanks_is_a_record(tmp_path: Path) -> None:
    schema = Schema((Field("a", STRING), Field("b", STRING)))
    (tmp_path / "a.csv").write_bytes(b"\t\n   \n\t\t\n")
    rows, reasons = everything(stream(tmp_path, "csv", schema, None, sep="\\t"))
    assert (rows, reasons) == ([{"a": None, "b": None}], ["3 cells, expected 2"])


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


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_in_quotes_stay_as_they_are(tmp_path: Path, end: str) -> None:
    lines = [
        '1,1,"a\rb",2023-01-01',
        '1,1,"c\r\nd",2023-01-01',
        '2,2,5" disk,2023-01-01',
        '3,3,"\r",2023-01-01',
        "",
    ]
    (tmp_path / "a.csv").write_bytes(end.join(lines).encode())
    rows, reasons = everything(stream(tmp_path, "csv", multiLine="true"))
    assert [row["s"] for row in rows] == ["a\rb", "c\r\nd", '5" disk', "\r"]
    assert reasons == []
    for escape in ("\\", "!"):
        escaped = end.join([f'1,1,"a{escape}"\rb",2023-01-01', "2,2,c,2023-01-01"])
        (tmp_path / "a.csv").write_bytes(escaped.encode())
        rows, _ = everything(stream(tmp_path, "csv", multiLine="true", escape=escape))
        assert [row["s"] for row in rows] == ['a"\rb', "c"]


def test_a_column_missing_in_the_header_rejects_each_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"k,v,at\n1,1,2023-01-01\n\n2,\xff,x\n3\n")
    records = rejected(stream(tmp_path, "csv", header="true"))
    assert [text for _, text, _ in records] == ["1,1,2023-01-01", "2,\ufffd,x", "3"]
    assert len({place for place, _, _ in records}) == 3
    reason = f"{tmp_path / 'a.csv'}: schema changed: column s is missing in the header"
    assert {why for _, _, why in records} == {reason}
    assert everything(stream(tmp_path, "csv", header="true"))[0] == []


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
    st.sampled_from(["", "  ", "1,2", "1,2,3,4,5", '"']),
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
        patch.setattr(text_lines, "BLOCK", block)
        assert repr(everything(definition)) == repr(whole)


CELLS = st.one_of(
    st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=6)
)
SPREAD = st.one_of(st.none(), st.text('ab ,;"\r\n', max_size=6))
TEXTS = Schema((Field("a", STRING), Field("b", STRING)))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8), st.sampled_from([",", ";", "\t", "|"]))
def test_what_pythons_csv_module_writes_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, str | None]], separator: str
) -> None:
    file = tmp_path_factory.mktemp("round") / "a.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, delimiter=separator).writerows([("a", "b"), *rows])
    parsed, reasons = everything(stream(file, "csv", TEXTS, None, header="true", sep=separator))
    # Python writes None and '' the same way, as nothing; here that is NULL.
    assert [(row["a"], row["b"]) for row in parsed] == [tuple(cell or None for cell in row) for row in rows]
    assert reasons == []


@given(st.lists(st.tuples(SPREAD, SPREAD), min_size=1, max_size=8), st.integers(8, 64))
def test_with_multi_line_any_text_comes_back_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, str | None]], block: int
) -> None:
    file = tmp_path_factory.mktemp("round") / "a.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        for row in rows:
            quoted = ["" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in row]
            out.write(",".join(quoted) + "\r\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "BLOCK", block)
        parsed, reasons = everything(stream(file, "csv", TEXTS, None, multiLine="true"))
    assert [(row["a"], row["b"]) for row in parsed] == rows
    assert reasons == []


def test_compressed_files_and_other_encodings_read_alike(tmp_path: Path) -> None:
    text = "k,v,s,at\n1,1.5,é,2023-01-01\n1,x,ü,2023-01-01\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.csv").write_bytes(text.encode("latin-1"))
    (tmp_path / "c.csv").write_bytes(text.encode("utf-16"))
    for name, encoding in (("a.csv.gz", "UTF-8"), ("b.csv", "ISO-8859-1"), ("c.csv", "UTF-16")):
        definition = stream(tmp_path / name, "csv", header="true", encoding=encoding)
        rows, reasons = everything(definition)
        assert [row["s"] for row in rows] == ["é"]
        assert reasons == ["column v: 'x' is not a DOUBLE"]
        assert rejected(definition)[0][1] == "1,x,ü,2023-01-01"


def test_a_compressed_file_that_ends_too_soon_is_a_reject(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(GOOD * 10)[:-9])
    rows, reasons = everything(stream(tmp_path, "csv"))
    assert rows == []
    assert [reason.split(": ", 1)[1][:30] for reason in reasons] == ["not a readable compressed file"]


@pytest.mark.parametrize(
    ("options", "text", "values"),
    [
        (
            {"nullValue": "NA"},
            'NA,NA,NA,2023-01-01\n,,"NA",2023-01-01',
            [(None, None, None), (None, None, None)],
        ),
        ({"sep": ";", "quote": "'"}, "1;2.5;'a;b';2023-01-01", [(1, 2.5, "a;b")]),
        ({"escape": "\\"}, '1,2.5,"a\\"b",2023-01-01', [(1, 2.5, 'a"b')]),
        ({"escape": '"'}, '1,2.5,"a""b",2023-01-01', [(1, 2.5, 'a"b')]),
        ({"quote": ""}, '1,2.5,"a,2023-01-01', [(1, 2.5, '"a')]),
        ({"nanValue": "-", "positiveInf": "oo"}, "1,oo,a,2023-01-01", [(1, float("inf"), "a")]),
        (
            {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"},
            " 1 , 2.5 , a , 2023-01-01 \n1, , ,2023-01-01",
            [(1, 2.5, "a"), (1, None, None)],
        ),
        ({"delimiter": "\\t"}, "1\t2.5\ta\t2023-01-01", [(1, 2.5, "a")]),
        (
            {"comment": "#", "header": "true"},
            "#\n#k\nk,v,s,at\n#x\n1,2.5,a#,2023-01-01\n#\n",
            [(1, 2.5, "a#")],
        ),
        ({"timestampFormat": "dd/MM/yyyy"}, "1,2.5,a,31/01/2023", [(1, 2.5, "a")]),
    ],
)
def test_options_mean_what_they_mean_to_spark(
    tmp_path: Path, options: dict[str, str], text: str, values: list[tuple[object, ...]]
) -> None:
    (tmp_path / "a.csv").write_text(text)
    rows, reasons = everything(stream(tmp_path, "csv", **options))
    assert reasons == []
    assert [(row["k"], row["v"], row["s"]) for row in rows] == values
