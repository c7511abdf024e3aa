"""Rows of streams that queries of a family read, each its own, are stored in one pass as each query stores them by itself: of aggregates,
of rows, and of joins of changing relations, also where expressions fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Expression, Named
from headrace.algebra.query import Aggregate, Filter, Project, Query, Windowed
from headrace.algebra.windows.window import Rows, TimeRange
from headrace.operators.aggregates.cell_table import merge
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import QUERY_NUMBER, Operator
from headrace.operators.base.union_positions import placed
from headrace.operators.families.family import state_name
from headrace.operators.families.numbering import number_of
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.instant_subwindow import CELLS
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.operators.rows.row_state import RowScanner
from headrace.operators.sharing.join_rows import JoinRows
from headrace.operators.sharing.reader_rows import ReaderRows
from headrace.operators.sharing.scan_sharing import ScanGroup
from headrace.planner.lowering.lower import lower
from headrace.schema import BIGINT, Field, Schema
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.strategies import SCAN, TICK, column, literal
from tests.operators.sharing.test_routed_scans import FAILING, rows_of_sections
from tests.operators.sharing.test_shared_panes import refused, rows

WHERE = (None, some.call(">", column("x"), literal(1, BIGINT)), FAILING)


def of_union(name: str) -> Column:
    """A column as joins name it."""
    return Column(name, some.SCHEMA.field(name).type)


FAILING_KEY = some.call("div", literal(6, BIGINT), of_union("x"), kind=BIGINT)
OF_SIDE = (
    None,
    some.call(">", of_union("x"), literal(1, BIGINT)),
    some.call(">", FAILING_KEY, literal(1, BIGINT)),
)


def asked(kind: str, where: Expression | None, length: int, failing: bool) -> Query:
    """A query of a family: of rows, of groups, of one group, or of the last rows, which stores those that WHERE drops too."""
    source = SCAN if where is None else Filter(SCAN, where)
    window = Windowed(source, "s", Rows(length) if kind == "last" else TimeRange(length * TICK))
    value = some.call("div", literal(6, BIGINT), column("x"), kind=BIGINT) if failing else column("x")
    if kind == "rows":
        return Query(Project(window, (Named("k", column("k")), Named("v", value))), "relation")
    keys = (Named("k", column("k")),) if kind == "groups" else ()
    total = NamedAggregate("n", AggregateCall("max", value, BIGINT))
    shown = (*keys, Named("n", Column("n", BIGINT)))
    return Query(Project(Aggregate(window, keys, (total,)), shown), "relation")


@st.composite
def families(draw: st.DrawFn) -> list[Operator]:
    kind, failing = draw(st.sampled_from(("rows", "groups", "one", "last"))), draw(st.booleans())
    one = st.builds(asked, st.just(kind), st.sampled_from(WHERE), st.integers(1, 3), st.just(failing))
    queries = draw(st.lists(one, min_size=2, max_size=5))
    return [lower(f"q{index + 3}", query, f"q{index + 3}") for index, query in enumerate(queries)]


def join(number: int, length: int | None, where: Expression | None, key: Expression | None) -> RelationJoin:
    """A join of a windowed source with a relation given by its changes, by `key` or, without one, of all rows with all."""
    stored = Schema((Field("k", some.SCHEMA.field("k").type), Field("x", BIGINT)))
    keys = () if key is None else (key,)
    filters = () if where is None else (RowFilter(where),)
    left = Side((0,), stored, filters, keys, None if length is None else length * TICK, name="s")
    right = Side((1,), stored, filters if length == 2 else (), keys, None, changes="g", name="r")
    shown = Schema((*stored, Field("__change", some.SCHEMA.field("g").type)))
    spec = JoinSpec(f"q{number}.inner", f"q{number}.inner", "s", (left, right), None, shown, number % 7)
    joined = RelationJoin(spec).in_family()
    assert isinstance(joined, RelationJoin)
    return joined


@st.composite
def joins(draw: st.DrawFn) -> list[RelationJoin]:
    key = draw(st.sampled_from((None, of_union("x"), FAILING_KEY, of_union("k"))))
    lengths, where = st.sampled_from((None, 1, 2)), st.sampled_from(OF_SIDE)
    drawn = draw(st.lists(st.tuples(lengths, where), min_size=2, max_size=5))
    return [join(index + 3, length, condition, key) for index, (length, condition) in enumerate(drawn)]


def numbered(batch: Batch, operator: Operator) -> Batch:
    return batch.with_columns({QUERY_NUMBER: pa.array(np.full(batch.rows, number_of(operator.id)))})


def united(batches: Sequence[Batch]) -> Batch:
    """Batches, one after the other."""
    columns = {
        name: pa.concat_arrays([batch.columns[name] for batch in batches]) for name in batches[0].columns
    }
    at, position = (
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("at", "position")
    )
    return Batch(columns, at, position)


def each_alone(operators: Sequence[Operator], batches: Sequence[Sequence[Batch]]) -> ScanOutput:
    """What each operator makes of its batches by itself."""
    output = ScanOutput()
    for operator, own in zip(operators, batches, strict=True):
        scanner = operator.scanner({})
        for batch in own:
            if batch.rows:
                scanner.add(batch)
        scanned = scanner.finish()
        if scanned.rows_in:
            output.add(operator, scanned)
    return output


def with_merged_cells(output: ScanOutput, operators: Sequence[Operator]) -> ScanOutput:
    """Cells may come in several rows: a batch on which one query fails is folded by itself."""
    family = operators[0].together(tuple(operators))
    if not isinstance(family, InstantAggregate):
        return output
    sections = dict(output.sections)
    for store, layout in enumerate(family.grouped.layouts):
        name = f"{state_name(operators[0])}/{CELLS}{store}"
        if name in sections:
            sections[name] = [merge(layout, sections[name])]
    return replace(output, sections=sections)


def assert_equal(group: ScanGroup, alone: ScanOutput, operators: Sequence[Operator]) -> None:
    output, alone = (with_merged_cells(made, operators) for made in (group.finish(), alone))
    assert rows_of_sections(output) == rows_of_sections(alone)
    assert refused(output) == refused(alone)
    counts = [
        {name: (seen.rows_in, seen.rows_kept) for name, seen in made.scanned.items()}
        for made in (output, alone)
    ]
    assert counts[0] == counts[1]


@examples(150)
@given(operators=families(), data=st.data())
def test_rows_of_each_query_are_those_that_it_stores_alone(
    operators: list[Operator], data: st.DataObject
) -> None:
    parts = [
        [rows(epoch) for epoch in data.draw(st.lists(streams.rows(), min_size=1, max_size=2))]
        for _ in operators
    ]
    group = ReaderRows.of(tuple(operators))
    for number in range(2):
        numbered_parts = [
            numbered(own[number], operator)
            for operator, own in zip(operators, parts, strict=True)
            if number < len(own) and own[number].rows
        ]
        if numbered_parts:
            group.add(united(numbered_parts))
    assert_equal(group, each_alone(operators, parts), operators)


def of_input(batch: Batch, number: int) -> Batch:
    return Batch(batch.columns, batch.at, placed(batch.position, number))


@examples(150)
@given(operators=joins(), source=streams.rows(), data=st.data())
def test_changes_of_each_join_are_those_that_it_stores_alone(
    operators: list[RelationJoin], source: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Rows of a source are those of all joins; the others come with the number of theirs."""
    common = of_input(rows(source), 0)
    own = [of_input(rows(data.draw(streams.rows())), 1) for _ in operators]
    group = JoinRows.of(tuple(operators))
    if common.rows:
        group.add(common)
    numbered_parts = [
        numbered(batch, operator) for operator, batch in zip(operators, own, strict=True) if batch.rows
    ]
    if numbered_parts:
        group.add(united(numbered_parts))
    alone = each_alone(operators, [(common, batch) for batch in own])
    assert_equal(group, alone, operators)


def test_a_thousand_readers_are_one_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = [lower(f"q{x}", asked("one", None, 1 + x % 9, False), f"q{x}") for x in range(1000)]
    made: list[RowScanner] = []
    finished = RowScanner.finish
    monkeypatch.setattr(RowScanner, "finish", lambda scanner: made.append(scanner) or finished(scanner))
    group = ReaderRows.of(tuple(operators))
    batch = rows([{"k": "a", "g": 0, "x": x, "y": 0.5, "at": x * TICK} for x in range(1000)])
    numbers = np.array([number_of(operator.id) for operator in operators])
    group.add(batch.with_columns({QUERY_NUMBER: pa.array(numbers)}))
    output = group.finish()
    assert len(made) == 1
    assert {name: [table.num_rows for table in tables] for name, tables in output.sections.items()} == {
        f"{operators[0].family_key}/cells0": [1000],
        f"{operators[0].family_key}/first": [1000],
    }


def test_conditions_of_many_joins_are_one_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row becomes the changes of the joins that select it, without a scanner of any."""
    operators = [
        join(3 + x, 1 + x % 3, some.call("=", of_union("x"), literal(x, BIGINT)), of_union("k"))
        for x in range(100)
    ]
    monkeypatch.setattr(RelationJoin, "scanner", None)
    group = JoinRows.of(tuple(replace(operator) for operator in operators))
    group.add(rows([{"k": "a", "g": 0, "x": x, "y": 0.5, "at": x * TICK} for x in range(100)]))
    (table,) = (table for tables in group.finish().sections.values() for table in tables)
    assert table.num_rows == 200, "an insertion and a retraction of each"
