"""Joins with relations and RSTREAM, where nothing passes WHERE."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import headrace as hr

ROWS = [{"v": v, "at": datetime.fromtimestamp(at, UTC)} for v, at in ((1, 1), (2, 1), (5, 2))]
NAMES = [{"id": 1, "name": "one"}, {"id": 9, "name": "nine"}]


def answer(query: str) -> list[dict[str, Any]]:
    return hr.test(query, s=ROWS, names=NAMES)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM s JOIN names ON v = id WHERE v > 99",
        "SELECT v FROM s LEFT JOIN names ON v = id WHERE v > 99 AND name IS NULL",
        "SELECT name, COUNT(*) AS n FROM s [RANGE TUMBLING 1 MINUTE] JOIN names ON v = id WHERE v > 99 GROUP BY name",
        "SELECT name FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] JOIN names ON v = id WHERE v > 99",
        "SELECT v FROM s WHERE v > 99 AND v IN (SELECT id FROM names)",
    ],
)
def test_a_batch_of_which_nothing_is_left_before_a_join_has_no_answer(query: str) -> None:
    """The joined columns are there all the same."""
    assert answer(query) == []


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("SELECT COUNT(*) AS n, MAX(v) AS top FROM s [NOW] WHERE v > 1", [(1, 2), (1, 5)]),
        ("SELECT COUNT(*) AS n, MAX(v) AS top FROM s [NOW] WHERE v > 2", [(0, None), (1, 5)]),
        ("SELECT COUNT(*) AS n, MAX(v) AS top FROM s [NOW] JOIN names ON v = id", [(1, 1), (0, None)]),
        (
            "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [NOW] LEFT JOIN names ON v = id WHERE name IS NULL",
            [(1, 2), (1, 5)],
        ),
        (
            "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [NOW] WHERE v IN (SELECT id FROM names)",
            [(1, 1), (0, None)],
        ),
    ],
)
def test_rstream_over_now_speaks_at_every_instant_that_has_a_row(
    query: str, counts: list[tuple[int, int | None]]
) -> None:
    """By hand: rows 1 and 2 at the first instant, 5 at the second."""
    assert [(row["n"], row["top"]) for row in answer(f"RSTREAM({query})")] == counts
