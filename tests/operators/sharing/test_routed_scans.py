"""Operators that work by themselves make of the rows an index gives them what they make of all rows (law 6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Expression, Named
from headrace.algebra.query import Filter, Query, Windowed
from headrace.algebra.windows.window import TimeSlide, Unbounded
from headrace.operators.base.operator import Operator
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.sharing import routed_scans
from headrace.operators.sharing import scan_sharing as foldings_of
from headrace.operators.sharing.routed_scans import RoutedRows
from headrace.operators.sharing.scan_sharing import groups, scan_groups
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT, DOUBLE
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.strategies import SCAN, TICK, column, literal
from tests.operators.sharing.test_shared_panes import counted, harvested, query, refused, rows

FAILING = some.call(">", some.call("/", literal(1, BIGINT), column("x"), kind=DOUBLE), literal(0.0, DOUBLE))


RELATIONS = {
    "names": pa.Table.from_pylist(
        [{"id": 1, "name": "one"}, {"id": 2, "name": None}], schema=pa.schema(list(some.NAMES.arrow()))
    )
}


def selecting(where: Expression, *values: str) -> Query:
    node = Filter(Windowed(SCAN, "s", Unbounded()), where)
    return Query(some._projected(node, [*values] or ["s.k", "s.x"]), "stream")


def counting_distinct(where: Expression) -> Query:
    keys = (Named("k", column("k")),)
    return query(TimeSlide(4 * TICK, TICK), where, keys, [AggregateCall("count", column("g"), BIGINT, True)])


def standing() -> st.SearchStrategy[Query]:
    """Of every kind; selections and counts of distinct values most, with conditions that may fail."""
    where = st.one_of(some.predicates(), st.just(FAILING))
    return st.one_of(
        st.builds(selecting, where),
        st.builds(counting_distinct, where),
        some.window_queries(),
        some.relation_queries(),
        some.bare_streams(),
    )


def rows_of_sections(output: ScanOutput) -> dict[str, list[str]]:
    """Each section's rows, without regard to their order; counts of one cell are added, for they may come in several rows."""
    return {name: _of_section(pa.concat_tables(tables)) for name, tables in output.sections.items()}


def _of_section(table: pa.Table) -> list[str]:
    """DISTINCT has counts alone as partials: `p0_0` by value."""
    counts = [name for name in table.column_names if name.startswith("p") and name[1:2].isdigit()]
    if counts == ["p0_0"] and pa.types.is_integer(table.schema.field("p0_0").type):
        cells: Counter[str] = Counter()
        for row in table.to_pylist():
            count = row.pop("p0_0")
            cells[repr(row)] += count
        return sorted(f"{cell}: {count}" for cell, count in cells.items())
    return sorted(repr(row) for row in table.to_pylist())


@examples(250)
@given(
    queries=st.lists(standing(), min_size=4, max_size=9),
    drawn=st.lists(streams.rows(), min_size=1, max_size=2),
    small=st.booleans(),
)
def test_each_makes_of_its_rows_what_it_makes_of_all(
    queries: list[Query], drawn: list[Any], small: bool
) -> None:
    operators = [lower(f"q{index}", asked, f"q{index}") for index, asked in enumerate(queries)]
    batches = [rows(epoch) for epoch in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 10**6)
        alone = harvested(operators, batches, RELATIONS)
        patch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 0)
        patch.setattr(foldings_of, "shares", lambda _: False)  # each by itself, where that is possible
        if small:
            patch.setattr(routed_scans, "_BITS_AT_ONCE", 1)
            patch.setattr(routed_scans, "_LEAST_ROWS", 5)
        routed = harvested(operators, batches, RELATIONS)
    assert rows_of_sections(routed) == rows_of_sections(alone)
    assert counted(routed) == counted(alone)
    assert refused(routed) == refused(alone)


def test_a_thousand_selections_see_their_own_rows_alone() -> None:
    operators = [
        lower(f"q{n}", selecting(some.call("=", column("x"), literal(n, BIGINT))), f"q{n}").without_family()
        for n in range(1000)
    ]
    (scan_group,) = scan_groups(operators, {})
    assert isinstance(scan_group, RoutedRows)
    scan_group.add(rows([{"k": "a", "g": 1, "x": n % 3 + 7, "y": 0.0, "at": n} for n in range(30)]))
    assert scan_group.seen == {"q7": 10, "q8": 10, "q9": 10}
    output = scan_group.finish()
    assert {name: scanned.rows_in for name, scanned in output.scanned.items()} == {
        f"q{n}": 30 for n in range(1000)
    }
    assert {name for name, scanned in output.scanned.items() if scanned.rows_kept} == {"q7", "q8", "q9"}


def test_many_selections_of_a_family_are_one_scan_and_few_take_part_in_the_index_of_all() -> None:
    def family(count: int, *values: str) -> list[Operator]:
        conditions = [some.call("=", column("x"), literal(n, BIGINT)) for n in range(count)]
        return [
            lower(f"q{n}", selecting(condition, *values), f"q{n}") for n, condition in enumerate(conditions)
        ]

    ((how, queries),) = groups(family(20, "s.k", "s.x"))
    assert (how, len(queries)) == ("rows", 20)
    ((how, queries),) = groups([*family(5, "s.g"), *family(13, "s.y")[5:], *family(20, "s.at")[13:]])
    assert (how, len(queries)) == ("routed", 20)
    (scan_group,) = scan_groups(family(1000, "s.k", "s.x"), {})
    scan_group.add(rows([{"k": "a", "g": 1, "x": n % 3 + 7, "y": 0.0, "at": n} for n in range(30)]))
    output = scan_group.finish()
    assert [(len(tables), tables[0].num_rows) for tables in output.sections.values()] == [(1, 30)]
    kept = {name: scanned.rows_kept for name, scanned in output.scanned.items() if scanned.rows_kept}
    assert kept == {"q7": 10, "q8": 10, "q9": 10}


def test_a_row_that_fails_a_filter_is_given_to_its_operator_which_rejects_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = some.call(">", column("x"), literal(5, BIGINT))
    operators = [
        lower(f"q{n}", selecting(condition), f"q{n}") for n, condition in enumerate([FAILING, other])
    ]
    monkeypatch.setattr(foldings_of, "MOST_SEPARATE_FILTERS", 1)
    output = harvested(operators, [rows([{"k": "a", "g": 1, "x": 0, "y": 0.0, "at": 0}])])
    assert {name: len(rejections) for name, rejections in refused(output).items()} == {"q0": 1, "q1": 0}
