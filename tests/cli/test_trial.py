"""`hr.test`: a query tried on rows, without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr

START = datetime(2124, 1, 1, tzinfo=UTC)  # rows of the future are as good as any
ROWS = [{"at": START + timedelta(seconds=20 * i), "k": "ab"[i % 2], "v": i} for i in range(6)]


def test_windows_come_in_order_with_all_that_the_streams_end_would_close() -> None:
    got = hr.test(
        "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k", s=ROWS
    )
    assert got == [
        {"k": "a", "n": 2, "s": 2},
        {"k": "b", "n": 1, "s": 1},
        {"k": "a", "n": 1, "s": 4},
        {"k": "b", "n": 2, "s": 8},
    ]


def test_a_source_without_timestamps_is_a_relation() -> None:
    query = "SELECT r.name, s.v FROM s JOIN r ON s.k = r.k WHERE s.v < 2"
    assert hr.test(query, s=ROWS, r=[{"k": "a", "name": "first"}]) == [{"name": "first", "v": 0}]


def test_pandas_frames_and_arrow_tables_do_as_well() -> None:
    table = pa.Table.from_pylist(ROWS)
    query = "SELECT COUNT(*) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY]"
    assert hr.test(query, s=table) == hr.test(query, s=table.to_pandas()) == [{"n": 6}]
    assert hr.test(query, s=table.slice(0, 0)) == []


def test_a_source_may_have_any_name_and_each_its_own() -> None:
    assert hr.test("SELECT COUNT(*) AS n FROM tested", tested=ROWS) == [{"n": 6}]
    with pytest.raises(hr.UserError, match="two of the sources s, S have the same name"):
        hr.test("SELECT COUNT(*) AS n FROM s", s=ROWS, S=ROWS)


def test_a_mistake_is_placed_in_the_query() -> None:
    with pytest.raises(hr.UserError, match="line 1, column 8: there is no column 'w'"):
        hr.test("SELECT w FROM s [RANGE 1 DAY SLIDE 1 DAY]", s=ROWS)
    with pytest.raises(hr.UserError, match="'s' has no rows, so its columns are unknown"):
        hr.test("SELECT v FROM s", s=[])


MISFITS = [
    (
        [{"v": 1}, {"v": "x"}],
        r"row 1 of 's': column v has 'x' \(str\), and the rows before it .* such as 1 \(int\)",
    ),
    (
        [{"v": "x"}, {"v": None}, {"v": 1}],
        r"row 2 of 's': column v has 1 \(int\), and the rows before it .* such as 'x'",
    ),
    ([{"v": 1}, {"v": True}], r"row 1 of 's': column v has True \(bool\)"),
    (
        [{"v": 1}, {"v": 2**70}],
        r"row 1 of 's': column v has 1180591620717411303424 \(int\), which has no SQL type",
    ),
    (
        [{"v": Decimal("1e50")}],
        r"row 0 of 's': column v has Decimal\('1E\+50'\) \(Decimal\), which has no SQL type",
    ),
    ([{"v": time(1, 2)}], r"row 0 of 's': column v has .*time\(1, 2\) \(time\), which has no SQL type"),
    ([{"v": object()}], "row 0 of 's': column v has <object object"),
    ([{"v": 1}, 5], "row 1 of 's' is int, not a dict"),
    ({"v": 1}, "'s' takes rows, not dict"),
    (5, "'s' takes rows, not int"),
]


@pytest.mark.parametrize(("rows", "message"), MISFITS)
def test_rows_that_fit_no_column_are_an_error_with_their_place(rows, message: str) -> None:
    with pytest.raises(hr.UserError, match=message) as error:
        hr.test("SELECT v FROM s", s=rows)
    assert error.value.remedy


def test_a_frame_that_fits_no_column_is_an_error_with_its_place() -> None:
    frame = pd.DataFrame({"at": [START, START], "v": [1, "x"]})
    with pytest.raises(hr.UserError, match=r"row 1 of 's': column v has 'x' \(str\)"):
        hr.test("SELECT v FROM s", s=frame)


@pytest.mark.parametrize("window", ["[RANGE 1 DAY SLIDE 1 DAY]", "[ROWS 24 SLIDE 24]", ""])
def test_different_pairs_are_counted_where_no_value_is_null(window: str) -> None:
    rows = [
        {
            "at": START + timedelta(seconds=i),
            "k": ["a", None, "b"][i % 3],
            "v": [0, 1, None, 1][i % 4],
            "i": i,
        }
        for i in range(24)
    ]
    pairs = {(row["k"], row["v"]) for row in rows if row["k"] is not None and row["v"] is not None}
    few = {(row["k"], row["v"]) for row in rows[:7] if row["k"] is not None and row["v"] is not None}
    assert len(pairs) > len(few) > 1
    text = (
        f"SELECT COUNT(DISTINCT k, v) AS n, COUNT(DISTINCT k, v) FILTER (WHERE i < 7) AS few FROM s {window}"
    )
    assert hr.test(text, s=rows) == [{"n": len(pairs), "few": len(few)}]
