"""What a family whose queries store rows costs: scanners of the queries with rows, and no comparison of steps in later epochs."""

from __future__ import annotations

import pytest

from headrace.algebra.query import Filter, Query, Windowed
from headrace.algebra.windows.window import TimeRange
from headrace.operators.rows.row_state import RowLayout
from headrace.operators.sharing.family_rows import FamilyRows
from headrace.operators.sharing.pairs.query_rows import QueryRows
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT
from tests.laws import strategies as some
from tests.laws.strategies import SCAN, TICK, column, literal
from tests.operators.sharing.test_shared_panes import rows

QUERIES = 30
ROWS = [{"k": "a", "g": 0, "x": x, "y": 0.5, "at": TICK} for x in (3, 5, 5)]


def selecting(x: int) -> Query:
    node = Filter(Windowed(SCAN, "s", TimeRange(9 * TICK)), some.call("=", column("x"), literal(x, BIGINT)))
    return Query(some._projected(node, ["s.k"]), "relation")


def test_a_query_without_rows_has_no_scanner_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = tuple(lower(f"q{x}", selecting(x), f"q{x}") for x in range(QUERIES))
    monkeypatch.setattr(QueryRows, "of", lambda *_: None)  # as of queries with more steps than a filter
    made, scanner_of = list[RowLayout](), RowLayout.scanner
    monkeypatch.setattr(
        RowLayout, "scanner", lambda layout, relations: made.append(layout) or scanner_of(layout, relations)
    )
    family = FamilyRows.of(queries, {})
    for _ in range(2):
        family.add(rows(ROWS))
    output = family.finish()
    assert made == [queries[x].family_rows for x in (3, 5)]
    assert {scanned.rows_in for scanned in output.scanned.values()} == {6}
    assert {name: scanned.rows_kept for name, scanned in output.scanned.items() if scanned.rows_kept} == {
        "q3": 2,
        "q5": 4,
    }
    assert (len(output.scanned), output.delta_rows["q5"], output.delta_rows["q6"]) == (QUERIES, 4, 0)
    assert FamilyRows.of(queries, {}).sharers is family.sharers, "equal steps are found once"
