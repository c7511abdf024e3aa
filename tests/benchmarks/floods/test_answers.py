"""Answers of a flood compared with the truth: every missing, repeated or wrong one is noticed; and what answers of the flood's queries are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.floods.answers import Compared, of_changes
from benchmarks.floods.flood_source import Source
from benchmarks.floods.flooded_queries import QUERIES

GROUPS = 3
SECONDS = range(100, 104)


class Unused:
    def push(self, stream: str, rows: pa.Table) -> None:
        raise AssertionError


def source() -> Source:
    found, draw = Source(Unused()), np.random.default_rng(5)
    for second in SECONDS:
        at = second * 1_000_000 + np.arange(600)
        found.remember(at, draw.integers(0, 1000, 600), draw.integers(0, 9, 600))
    return found


def truth(of: Source) -> list[dict[str, Any]]:
    """The exact answers, as a query inserts them."""
    answers = of.answers(SECONDS[0] + 1, SECONDS[-1] + 1, GROUPS)
    return [
        answer(SECONDS[0] + 1 + number, group, *answers[number, :, group])
        for number in range(len(SECONDS))
        for group in range(GROUPS)
    ]


def answer(
    end: int, g: int, n: float, total: float, *, error: float = 0.0, change: int = 1
) -> dict[str, Any]:
    kept = 1.0 if not error else 0.25
    return {
        "window_end": end,
        "g": g,
        "n": n,
        "total": total,
        "n_error": error,
        "kept": kept,
        "__change": change,
    }


def compared(of: Source, rows: list[dict[str, Any]]) -> Compared:
    table = pa.Table.from_pylist(rows)
    ends = pa.array([row["window_end"] * 1_000_000 for row in rows]).cast(pa.timestamp("us", tz="UTC"))
    table = table.set_column(table.schema.get_field_index("window_end"), "window_end", ends)
    return of_changes(table, of, GROUPS, SECONDS[-1] + 1)


def test_answers_of_all_rows_are_right() -> None:
    of = source()
    assert compared(of, truth(of)) == Compared(12, 0, 0, 0)


def test_an_estimate_that_is_retracted_and_corrected_is_right() -> None:
    of = source()
    rows = truth(of)
    first = rows[0]
    near, off = first["n"] + 3, first["n"] + 50
    for n, held in ((near, 1), (off, 0)):
        estimate = answer(first["window_end"], 0, n, 7.0, error=10.0)
        changed = [estimate, estimate | {"__change": -1}, *rows]
        assert compared(of, changed) == Compared(12, 0, 1, held)


@pytest.mark.parametrize("number", [0, 5, 11])
def test_whatever_is_missing_repeated_or_wrong_is_counted(number: int) -> None:
    of = source()
    rows = truth(of)
    one = rows[number]
    assert compared(of, rows[:number] + rows[number + 1 :]).wrong == 1
    assert compared(of, [*rows, one]).wrong == 1
    assert compared(of, [*rows, one | {"__change": -1}]).wrong == 1
    assert compared(of, [row | {"n": row["n"] + 1} if row is one else row for row in rows]).wrong == 1
    assert compared(of, [row | {"total": row["total"] - 1} if row is one else row for row in rows]).wrong == 1
    estimate = one | {"n_error": 1.0, "kept": 0.25}
    assert compared(of, [estimate if row is one else row for row in rows]).wrong == 1
    assert compared(of, [*rows, estimate]).wrong == 1


def test_what_the_queries_of_the_flood_are_worth() -> None:
    alert, dashboard, report = QUERIES["alert0"], QUERIES["dashboard0"], QUERIES["report0"]
    assert alert.utility(3.0, (1.0,)) == dashboard.utility(6.0, (1.0,)) == report.utility(6.0, (1.0,)) == 1
    assert alert.utility(10.0, (1.0,)) == dashboard.utility(40.0, (1.0,)) == 0
    assert alert.utility(0.0, (0.5,)) == 0
    assert dashboard.utility(0.0, (0.25,)) == pytest.approx(0.9)
    assert report.kept((0.0, 0.5, 1.0)) == pytest.approx(0.25)
    assert report.kept((0.5,)) == pytest.approx(0.5)
    assert report.utility(0.0, (0.0, 0.0, 1.0)) == pytest.approx(0.1 / 0.28)
    assert [query.worthless_after for query in (alert, dashboard, report)] == [10, 40, 40]
