"""Summaries that a question reads in place of archived rows: the closed windows of registered queries with the tag `summary`, such as hourly
sums and counts (OSCAR's copies of windowed aggregates, filled as the windows close).

A summary has tumbling windows over the stream, the conditions of the question, its groups or finer ones, and a COUNT and SUM of what
is counted and added, and no row has failed on its expressions. Rows before its first whole window and after its last one are read
from the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Expression, transform
from headrace.algebra.windows.window import TimeSlide
from headrace.archive.estimates import Doubles
from headrace.catalog.catalog import CatalogQuery
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery
from headrace.operators.base.group_codes import flat
from headrace.planner.lowering.query_shape import Shape, shape_of
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.questions.clauses import Question
from headrace.runtime.invoke.questions.terms import Term, Terms, doubles
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.progress.failing_queries import FAILED_ROWS
from headrace.runtime.results.result_log import in_range
from headrace.schema import to_arrow
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant, render_instant

TAG: Final = "summary"
"""The tag of queries whose windows questions may read."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The windows of a query from `begin` to `end` (exclusive): the groups of each and the sums of the terms."""

    query: str
    begin: Instant
    end: Instant
    keys: tuple[pa.Array, ...]
    total: Doubles

    def __str__(self) -> str:
        """What was read, in words."""
        since = "" if self.begin == BEGINNING else f" from {render_instant(self.begin)}"
        return f"windows{since} to {render_instant(self.end)} from '{self.query}'"


def summary_of(
    home: Home, manifest: Manifest, question: Question, between: tuple[Instant, Instant]
) -> Summary | None:
    """The summary that answers most of the time between two instants; None without one."""
    terms = Terms.of(question.aggregates)
    has_others = any(item.call.function == "percentile" for item in question.aggregates)
    if question.by_key or has_others or not terms.items:
        return None
    candidates = [
        (end - begin, query, columns, begin, end)
        for query, slide, columns in _candidates(home, manifest, question, terms)
        for begin, end in _covered(manifest, query, slide, between)
    ]
    if not candidates:
        return None
    _, query, columns, begin, end = max(
        candidates, key=lambda candidate: (candidate[0], candidate[1].definition.name)
    )
    tables = in_range(home, manifest, query.operator_id, begin + 1, end + 1)
    keys = tuple(
        _joined([flat(table.column(name)) for table in tables], to_arrow(key.expression.type))
        for name, key in zip(columns.keys, question.keys, strict=True)
    )
    total = np.concatenate([np.zeros((0, len(terms.items))), *(columns.sums(table) for table in tables)])
    return Summary(query.definition.name, begin, end, keys, total)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a summary's results that have the groups of a question, and its terms: of a count without one, the column of
    the sum that is NULL where it is 0.
    """

    keys: tuple[str, ...]
    terms: tuple[tuple[str, bool], ...]

    def sums(self, table: pa.Table) -> Doubles:
        """The terms of each row."""
        columns = [
            flat(table.column(name)).is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
            if counts_valid
            else doubles(flat(table.column(name)))
            for name, counts_valid in self.terms
        ]
        return np.stack(columns, axis=1)


def _candidates(
    home: Home, manifest: Manifest, question: Question, terms: Terms
) -> Iterator[tuple[CatalogQuery, TimeSlide, _Columns]]:
    """The queries whose windows have what is asked: a row that failed on any expression of a query is in none of its windows."""
    side, failed = question.sides[0], manifest.facts.get(FAILED_ROWS, {})
    prefix = f"{side.scan.alias}."
    where = {_plain(factor, prefix) for factor in (*side.where, *question.where)}
    for query in home.catalog.queries.values():
        definition = query.definition
        if TAG not in (tag.lower() for tag in definition.tags) or definition.retain is not None:
            continue
        if (
            definition.continues
            or query.operator_id in failed
            or (shape := _shape(home, query)) is None
            or shape.scan.name != side.scan.name
        ):
            continue
        query_prefix = f"{shape.scan.alias}."
        if {_plain(factor, query_prefix) for factor in (*shape.before, *shape.where)} != where:
            continue
        columns = _columns(question, terms, shape, prefix)
        if columns is not None and isinstance(shape.window, TimeSlide):
            yield query, shape.window, columns


def _shape(home: Home, query: CatalogQuery) -> Shape | None:
    """The clauses of a query of tumbling windows in which every group of every window is emitted once; None for others."""
    bound_query = bound(home.catalog, query)
    if bound_query.revisions is not None or bound_query.shedding:
        return None
    try:
        shape = shape_of(bound_query)
    except UnsupportedQuery:
        return None
    whole = shape.bounds is None and shape.top is None and shape.emit is None and not shape.having
    tumbling = isinstance(shape.window, TimeSlide) and shape.window.range == shape.window.slide
    single = not shape.joins and not shape.semijoin_columns
    return shape if whole and tumbling and single and shape.aggregate is not None else None


def _columns(question: Question, terms: Terms, shape: Shape, prefix: str) -> _Columns | None:
    """The columns of a summary with what is asked; None where one is missing."""
    aggregate, query_prefix = shape.aggregate, f"{shape.scan.alias}."
    assert aggregate is not None
    shown = {
        column.expression.name: column.name
        for column in shape.project.columns
        if isinstance(column.expression, Column)
    }
    groups = {_plain(key.expression, query_prefix): shown.get(key.name) for key in aggregate.keys}
    keys = [groups.get(_plain(key.expression, prefix)) for key in question.keys]
    held: dict[Term, str] = {}
    for item in aggregate.aggregates:
        call = item.call
        if (
            call.function in ("count", "sum")
            and not call.distinct
            and not call.against
            and item.name in shown
        ):
            argument, condition = (_optional(part, query_prefix) for part in (call.argument, call.condition))
            held[Term(argument, condition, valued=call.function == "sum")] = shown[item.name]
    counted = {
        (call.argument, call.condition)
        for call in (item.call for item in question.aggregates)
        if call.function != "sum"
    }
    term_columns = [_held(term, held, prefix, counted) for term in terms.items]
    named_keys = [key for key in keys if key is not None]
    named_terms = [term_column for term_column in term_columns if term_column is not None]
    if len(named_keys) < len(keys) or len(named_terms) < len(term_columns):
        return None
    return _Columns(tuple(named_keys), tuple(named_terms))


def _held(
    term: Term,
    held: Mapping[Term, str],
    prefix: str,
    counted: set[tuple[Expression | None, Expression | None]],
) -> tuple[str, bool] | None:
    """The column of a term; of a count that only decides whether a sum is NULL, that sum."""
    argument, condition = _optional(term.argument, prefix), _optional(term.condition, prefix)
    name = held.get(Term(argument, condition, valued=term.valued))
    if name is None and not term.valued and (term.argument, term.condition) not in counted:
        total = held.get(Term(argument, condition, valued=True))
        return None if total is None else (total, True)
    return None if name is None else (name, False)


def _covered(
    manifest: Manifest, query: CatalogQuery, slide: TimeSlide, between: tuple[Instant, Instant]
) -> Iterator[tuple[Instant, Instant]]:
    """From the first whole window to the last closed one between two instants, if there is any."""
    progress = manifest.find_operator(query.operator_id)
    if progress is None or progress.emitted_to == BEGINNING:
        return
    begin, last = max(between[0], progress.complete_since), min(between[1], FOREVER - 1) + 1
    end = _down(min(progress.emitted_to, last), slide)
    if begin != BEGINNING:
        begin = -_down(-begin, TimeSlide(slide.range, slide.slide, -slide.anchor))
    if begin < end:
        yield begin, end


def _down(at: Instant, slide: TimeSlide) -> Instant:
    """The last edge of a window at or before an instant."""
    return at - (at - slide.anchor) % slide.slide


def _plain(expression: Expression, prefix: str) -> Expression:
    """An expression over the stream's own names."""

    def own(node: Expression) -> Expression | None:
        if isinstance(node, Column) and node.name.startswith(prefix):
            return Column(node.name.removeprefix(prefix), node.type)
        return None

    return transform(expression, own)


def _optional(expression: Expression | None, prefix: str) -> Expression | None:
    return None if expression is None else _plain(expression, prefix)


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([pa.nulls(0, kind), *(part.cast(kind) for part in parts)])
