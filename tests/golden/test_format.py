"""The format of golden cases: what is read, what is refused, what counts as equal, what a failure shows, what is recorded."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.golden.case import BadCase, read_case
from tests.golden.checking import problems
from tests.golden.record import KNOWN_WRONG, local, main
from tests.golden.running import PLAIN, VARIANTS, Failed, Variant, run_case, variants_of
from tests.golden.values import cells, letters, printed, same_rows, same_types, table

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "report-a-bug.md"

STREAM = """# A case.

statement ok
CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at
"""
ROWS = """
rows s
a,1,@1
b,2,@12
"""


def case_of(folder: Path, text: str):
    path = folder / "case.slt"
    path.write_text(text, encoding="utf-8")
    return read_case(path)


def wrong(folder: Path, text: str, variants=(PLAIN,)) -> str:
    return problems(case_of(folder, text), variants, local).replace(f"{folder}/", "")


def test_the_case_on_the_page_is_right(tmp_path):
    (text,) = re.findall(r"```golden\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert wrong(tmp_path, text, VARIANTS) == ""


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("querry I\nSELECT 1", r"case.slt:6: no block begins with 'querry I'. There is: statement ok"),
        ("query X\nSELECT 1", r"case.slt:6: 'X' is no type of a column: write one of BDIPRT\?"),
        ("query I sorted\nSELECT 1", r"case.slt:6: there is no option 'sorted': there is answer, emitted"),
        ("query I", r"case.slt:6: `query` has a statement below it"),
        ("invoke q I\nSELECT 1", r"case.slt:6: `query` has a statement below it"),
        ("statement ok", r"case.slt:6: a statement is missing"),
        ("epoch\nrows s", r"case.slt:6: 'epoch' has no lines below it; leave a line empty"),
        ("cuts random", r"case.slt:6: no block begins with 'cuts random'"),
    ],
)
def test_a_mistake_in_a_case_is_an_error_with_its_line(tmp_path, block, message):
    with pytest.raises(BadCase, match=message):
        case_of(tmp_path, f"{STREAM}\n{block}\n")


def test_a_wrong_answer_is_shown_with_its_place_and_the_difference(tmp_path):
    text = f"{STREAM}{ROWS}\nquery TI\nSELECT k, v FROM s\n----\na,1\nb,3\n"
    assert wrong(tmp_path, text, VARIANTS[:2]).splitlines() == [
        "case.slt:10: SELECT k, v FROM s",
        "--- expected",
        "+++ answered",
        "@@ -1,2 +1,2 @@",
        " a,1",
        "-b,3",
        "+b,2",
        "  in: one epoch, queries registered before the rows",
        "  in: one row an epoch, queries registered before the rows",
    ]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("query IT\nSELECT k, v FROM s\n----\na,1\nb,2", "the columns are of types TI, not IT"),
        ("query T\nSELECT k, v FROM s\n----\na\nb", "the columns are of types TI, not T"),
        ("query TI\nSELECT k, v FROM s", "no rows are expected; write ---- below the query"),
        ("query I\nSELECT nothing FROM s\n----", "there is no column 'nothing'"),
        ("statement error\nCREATE QUERY q AS SELECT k FROM s", "there was no error"),
        ("statement error no such\nCREATE QUERY q AS SELECT z FROM s", "the error does not match no such"),
        (
            "statement error\nDROP STREAM t\n----\nline 1",
            "-line 1\n+line 1, column 1: there is no stream 't'",
        ),
        ("statement ok\nDROP STREAM t", "there is no stream 't'"),
        ("rows s\na,x,@1\n\nseal", "conversion error to int64: invalid value 'x'"),
    ],
)
def test_what_else_can_be_wrong_is_shown_with_its_place(tmp_path, block, message):
    problem = wrong(tmp_path, f"{STREAM}{ROWS}\n{block}\n")
    assert problem.startswith("case.slt:10: ")
    assert message in problem


def test_recording_writes_the_answers_in_place(tmp_path, capsys):
    text = f"{STREAM}{ROWS}\nquery TI\nSELECT k, v FROM s\n----\nold\n\n# Kept.\n\nquery I\nSELECT SUM(v) AS total FROM s\n"
    case = case_of(tmp_path, text)
    assert main([str(case.path)]) == 0
    assert case.path.read_text(encoding="utf-8") == text.replace("old", "a,1\nb,2") + "----\n3\n"
    assert capsys.readouterr().out == f"recorded {case.path}\n"
    assert main([str(case.path)]) == 0
    assert capsys.readouterr().out == ""


def test_recording_reports_answers_that_depend_on_the_epochs(tmp_path, capsys):
    case = case_of(tmp_path, f"{STREAM}\nrows s\na,1,@9\nb,2,@3\n\nquery T\nSELECT k FROM s\n----\n")
    assert main([str(case.path)]) == 1
    assert "in: one row an epoch, queries registered before the rows" in capsys.readouterr().err


def test_known_wrong_cases_are_not_recorded(capsys):
    assert main([str(KNOWN_WRONG / "a_case.slt")]) == 1
    assert "written by hand" in capsys.readouterr().err


@pytest.mark.parametrize(("cut", "late"), [("one epoch", 0), ("one row an epoch", 3)])
def test_the_input_is_cut_as_the_variant_says(tmp_path, cut, late):
    rows = "\nrows s\na,1,@9\nb,2,@3\n\nrows s\nc,1,@2\nd,2,@1\n"
    case = case_of(tmp_path, f"{STREAM}{rows}\nquery T\nSELECT k FROM s LATE\n")
    (answer,) = run_case(case, Variant(cut), local).values()
    assert len(answer.rows) == late
    fixed = case_of(tmp_path, f"{STREAM}\ncuts fixed\n{rows}\nquery T\nSELECT k FROM s LATE\n")
    (answer,) = run_case(fixed, Variant(cut), local).values()
    assert answer.rows == ()


def test_a_case_runs_in_the_variants_that_differ_for_it(tmp_path):
    free = case_of(tmp_path, f"{STREAM}{ROWS}")
    assert variants_of(free) == list(VARIANTS)
    fixed = case_of(tmp_path, f"{STREAM}\ncuts fixed\n{ROWS}")
    assert variants_of(fixed) == [
        PLAIN,
        Variant("random epochs", "after"),
        Variant("random epochs", "after", reopened=True),
    ]


def test_queries_are_registered_where_the_variant_says(tmp_path):
    """A stream without an archive shows it: a query that comes after the rows does not see them."""
    unarchived = STREAM.replace("USING push", "USING push OPTIONS (archive 'none')")
    case = case_of(tmp_path, f"{unarchived}{ROWS}\nquery T\nSELECT k FROM s\n")
    before, after = (run_case(case, Variant("one epoch", when), local) for when in ("before", "after"))
    assert [read.rows for read in before.values()] == [("a", "b")]
    assert [read.rows for read in after.values()] == [()]


def test_a_failure_has_the_place_of_its_own_query(tmp_path):
    case = case_of(tmp_path, f"{STREAM}\nquery T\nSELECT k FROM s\n----\n\nquery T\nSELECT z FROM s\n----\n")
    with pytest.raises(Failed, match=r"case.slt:10: one epoch, .*: NotInScope: line 1, column 8: .*'z'"):
        run_case(case, PLAIN, local)


def test_cells_of_input_are_typed_and_null_is_not_the_empty_string():
    columns = {"k": "STRING", "d": "DECIMAL(6,2)", "x": "DOUBLE", "b": "BOOLEAN", "at": "TIMESTAMP"}
    cells = table(['"",0.10,NaN,true,@1.5', "NULL,,,,1970-01-01T00:00:02Z", '"a,@1",1,-0.0,false,'], columns)
    assert cells["k"].to_pylist() == ["", None, "a,@1"]
    assert cells["d"].to_pylist() == [Decimal("0.10"), None, Decimal("1.00")]
    assert [str(value) for value in cells["x"].to_pylist()] == ["nan", "None", "-0.0"]
    assert cells["b"].to_pylist() == [True, None, False]
    assert cells["at"].cast(pa.int64()).to_pylist() == [1_500_000, 2_000_000, None]


def test_a_header_names_columns_in_any_order_and_leaves_some_out():
    cells = table(["at,v", "@1,5"], {"k": "STRING", "v": "BIGINT", "at": "TIMESTAMP"})
    assert cells.column_names == ["k", "v", "at"]
    assert cells["k"].to_pylist() == [None]
    assert cells["v"].to_pylist() == [5]


def test_answers_are_printed_with_null_and_quotes():
    assert printed('k,v\n,1\n"",2\n"a,b",\nNULL,"say ""NULL"""\n') == [
        "NULL,1",
        '"",2',
        '"a,b",NULL',
        '"NULL","say ""NULL"""',
    ]
    assert cells("a,,") == [("a", "NULL", "NULL")]


@pytest.mark.parametrize(
    ("expected", "answered", "types", "same"),
    [
        ("1.0", "1.0000000001", "R", True),
        ("1.0", "1.00000001", "R", False),
        ("1.0", "1.0000000001", "T", False),
        ("0.0", "-0.0", "R", False),
        ("NaN", "NaN", "R", True),
        ("NULL", "0.0", "R", False),
        ("Infinity", "-Infinity", "R", False),
        ("a,1", "a,1", "TI", True),
        ("a,1", "a", "TI", False),
        ("NULL", '"NULL"', "T", False),
    ],
)
def test_rows_are_equal_to_the_letter_but_for_rounding(expected, answered, types, same):
    assert same_rows([expected], [answered], types, sort=False) is same


def test_rowsort_compares_bags():
    assert same_rows(["a,0.3", "b,1.5"], ["b,1.5", "a,0.30000000000000004"], "TR", sort=True)
    assert not same_rows(["a,1", "b,1"], ["b,1", "a,1"], "TI", sort=False)
    assert not same_rows(["a,1"], ["a,1", "a,1"], "TI", sort=True)


def test_types_are_letters():
    schema = pa.schema({"i": pa.int8(), "d": pa.decimal128(3, 1), "at": pa.timestamp("us"), "b": pa.binary()})
    assert letters(schema) == "IRP?"
    assert same_types("IR??", "IRP?")
    assert not same_types("IR?", "IRP?")
