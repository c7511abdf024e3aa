"""Quotes in CSV: text after a closing quote is found wherever it is, and Spark's escapes are read as Spark reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.connectors.formats.csv_quotes import are_well_quoted, cell_with_text_after_quote
from headrace.connectors.records.options import TextOptions, text_options
from tests.connectors.building import everything, rejected, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RFC, ESCAPED, MULTI_LINE = (
    text_options({}),
    text_options({"escape": "\\"}),
    text_options({"multiLine": "true"}),
)
SPARKS = [
    *('say "no"', "C:\\x", "a\\", 'a\\"b', "x,y\\z", '"', '\\"', "plain", "a\\,b", None, 'q"\\', "n\\\\n", '"a" b', '""', "\\\\"),
]  # fmt: skip


def faults(block: str, options: TextOptions) -> dict[int, int | None]:
    """By record: the number of the first cell with text after its closing quote, None for a quote that is not closed; sign by sign."""
    found: dict[int, int | None] = {}
    record, cell, state = 0, 1, "start"
    at = 0
    while at < len(block):
        sign, following = block[at], block[at + 1 : at + 2]
        if state == "inside":
            if (sign == options.escape and following in ("\\", '"')) or (sign == following == '"'):
                at += 1
            elif sign == '"':
                state = "after"
            elif sign == "\n" and not options.multi_line:
                found.setdefault(record, None)
                record, cell, state = record + 1, 1, "start"
        elif sign == "\n":
            record, cell, state = record + 1, 1, "start"
        elif sign == ",":
            cell, state = cell + 1, "start"
        elif state == "start":
            state = "inside" if sign == '"' else "bare"
        elif state == "after" and sign not in " \t":
            found.setdefault(record, cell)
            state = "bare"
        at += 1
    if state == "inside":
        found.setdefault(record, None)
    return found


@pytest.mark.parametrize("options", [RFC, ESCAPED, MULTI_LINE], ids=["rfc", "escape", "multiLine"])
@given(st.text('"",,\n\\x ', max_size=24))
@example('5","x,","b"')
@example('x\\,",","b"')
@example('"",""\n"a""b","c"')
def test_a_block_is_well_quoted_where_every_sign_shows_it(options: TextOptions, block: str) -> None:
    expected = faults(block, options)
    if options.multi_line or None not in expected.values():
        assert are_well_quoted(block.encode(), options) == (not expected)
    if not options.multi_line:
        for number, record in enumerate(block.split("\n")):
            assert are_well_quoted(record.encode(), options) == (number not in expected)
            assert cell_with_text_after_quote(record.encode(), options) == expected.get(number)


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}, {"mode": "PERMISSIVE"}], ids=str)
def test_text_after_a_closing_quote_rejects_its_record_alone(tmp_path: Path, options: dict[str, str]) -> None:
    good = [
        '1,1.5,"x",2023-01-01',
        '2,1.5,"x" ,2023-01-01',
        '3,1.5,5" x,2023-01-01',
        '4,1.5,"x""y",2023-01-01',
    ]
    bad = ['5,1.5,"x"y,2023-01-01', '6,1.5,"x"y",2023-01-01', '7,1.5,"say \\"no\\"",2023-01-01']
    (tmp_path / "a.csv").write_text("\n".join([good[0], bad[0], *good[1:], *bad[1:]]))
    definition = stream(tmp_path, "csv", **options)
    rows, reasons = everything(definition)
    assert [(row["k"], row["s"]) for row in rows] == [(1, "x"), (2, "x "), (3, '5" x'), (4, 'x"y')]
    reason = "text after the closing quote of cell 3"
    hint = "; a quote after a backslash needs OPTIONS (escape '\\\\')"
    assert reasons == [reason, reason, reason + hint]
    assert [record for _, record, _ in rejected(definition)] == bad


def test_an_escape_is_one_only_inside_quotes_and_before_a_quote_or_itself(tmp_path: Path) -> None:
    cells = ["C:\\x", "a\\", '"a\\bc"', '"C:\\\\x\\y"', '"a\\"b"', 'a\\"b']
    lines = [f"{number},1.5,{cell},2023-01-01\n" for number, cell in enumerate(cells)]
    (tmp_path / "a.csv").write_text("".join(lines))
    rows, reasons = everything(stream(tmp_path, "csv", escape="\\"))
    assert reasons == []
    assert [row["s"] for row in rows] == ["C:\\x", "a\\", "a\\bc", "C:\\x\\y", 'a"b', 'a\\"b']


def test_an_escape_that_is_text_hides_no_separator_of_a_lenient_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,1.5,a\\,2023-01-01\n2,1.5,b\\,2023-01-01,more\n")
    rows, reasons = everything(stream(tmp_path, "csv", escape="\\", mode="PERMISSIVE"))
    assert reasons == []
    assert [row["s"] for row in rows] == ["a\\", "b\\"]


@pytest.mark.spark
def test_a_file_that_spark_wrote_is_read_with_its_escape(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(list(enumerate(SPARKS)), "k INT, s STRING")
    frame.selectExpr("k", "1.5D AS v", "s", "'2023-01-01' AS at").write.csv(str(tmp_path / "out"))
    rows, reasons = everything(stream(tmp_path / "out" / "*.csv", "csv", escape="\\"))
    assert reasons == []
    assert {row["k"]: row["s"] for row in rows} == dict(enumerate(SPARKS))
