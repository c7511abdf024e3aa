"""Binding of WITH SHEDDING: a refusal of queries whose answers cannot have an error bound; aggregates as estimates,
each followed by a column with its error; the column `kept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.expressions.expression import Column, Expression, columns_of, transform
from headrace.algebra.expressions.shedding_estimates import ESTIMATED, ONE_SIDED
from headrace.algebra.query import QueryScan, StreamScan, UnionAll
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.errors import Span
from headrace.language.binder.aggregates import Grouping
from headrace.language.binder.sources.from_clause import From
from headrace.language.syntax.ast import Select
from headrace.language.syntax.refusals import refuse
from headrace.schema import DOUBLE

KEPT = "kept"
"""The last column of an answer: the share of the group's rows that were used."""
_AVAILABLE = "Available are COUNT, SUM, AVG, MIN and MAX over windows of time with SLIDE of one stream, by groups or not."

Bound = tuple[str, Expression, Span]
"""An item of the select list: its name, its expression, and its place."""


def check_shedding(select: Select, sources: From, grouping: Grouping, having: Expression | None) -> None:
    """Raises `UnsupportedQuery` for a query WITH SHEDDING whose answers cannot have an error bound."""
    assert select.shedding is not None
    reason = rows_reason(select, sources) or _reason_above(select, grouping)
    if reason is not None:
        _refuse(reason, select.shedding.span)
    _check_repair(select, sources)
    reads = frozenset() if having is None else columns_of(having)
    if reads & {item.name for item in grouping.aggregates}:
        _refuse(
            "with HAVING over estimates: which groups are emitted would be uncertain, and nothing would show it",
            select.having_span or select.shedding.span,
            "Leave HAVING out, and read the query in another one: WHERE n - n_error > 100.",
        )


def _check_repair(select: Select, sources: From) -> None:
    """Raises `UnsupportedQuery` for a query whose answers from samples could not be corrected."""
    assert select.shedding is not None
    if select.shedding.repair is None:
        return
    if sources.archive == "none":
        refuse(
            f"repair reads the archive, and '{sources.stream.scan.name}' has none",
            select.shedding.repair,
            "Leave repair out, or create the stream with an archive: OPTIONS (archive 'copy').",
        )


def estimated(
    select: Select, grouping: Grouping, items: Sequence[Bound], order: Sequence[Expression]
) -> tuple[list[Bound], list[Expression]]:
    """The select list and the order over estimates, each followed by its error; the share of rows used comes last.

    Raises `UnsupportedQuery` for aggregates that cannot be estimated from fewer rows, and for expressions over estimates.
    """
    calls = {item.name: item.call for item in grouping.aggregates}
    spans = [span for _, _, span in items] + [item.span for item in select.order_by]
    for value, span in zip([*(value for _, value, _ in items), *order], spans, strict=True):
        for name in sorted(columns_of(value) & calls.keys()):
            if not _is_ranked(select, calls[name]):
                _check_call(calls[name], grouping, span)
    for index, item in enumerate(grouping.aggregates):
        if item.call.function in ESTIMATED:
            grouping.estimate(index)

    def retyped(node: Expression) -> Expression | None:
        if isinstance(node, Column) and node.name in calls and calls[node.name].function in ESTIMATED:
            return Column(node.name, DOUBLE)
        return None

    columns: list[Bound] = []
    for name, value, span in items:
        columns.append((name, transform(value, retyped), span))
        if isinstance(value, Column) and value.name in calls:
            if _is_ranked(select, calls[value.name]):
                continue
            columns.append((f"{name}_error", grouping.companion_column(value.name, "error"), span))
        elif columns_of(value) & calls.keys():
            _refuse("for an expression over estimates: its error would be unknown", span)
    columns.append((KEPT, grouping.companion_column(None, "kept"), items[-1][2]))
    return columns, [transform(value, retyped) for value in order]


def _is_ranked(select: Select, call: AggregateCall) -> bool:
    """Whether it is a percentile, or its bound, of a query whose rows are sketched before they are lost: ranks are known of a sample."""
    has_sketches = select.quality is not None and select.quality.quality.sketches is not None
    return has_sketches and call.function == "approx_percentile"


def _check_call(call: AggregateCall, grouping: Grouping, span: Span) -> None:
    if depends_on(call, grouping.aggregates):
        _refuse("for aggregates that compare rows with their group", span)
    if call.distinct:
        _refuse("for DISTINCT: the number of values not seen cannot be derived from those that were", span)
    if call.function not in (*ESTIMATED, *ONE_SIDED) or call.within is not None:
        _refuse(f"for {call.function.upper()}: its error with fewer rows is not known yet", span)


def rows_reason(select: Select, sources: From) -> str | None:
    """What the rows of a query come from if some of them cannot be treated otherwise than the rest; None if they can."""
    scan, window = sources.stream.scan, sources.stream.window
    if isinstance(scan, UnionAll) or len(sources.streams) > 1:
        return "over several streams: each sheds by itself"
    if isinstance(scan, QueryScan):
        return f"over '{scan.name}': answers of queries are not shed"
    assert isinstance(scan, StreamScan)
    if scan.channel != "rows":
        return f"over {scan.channel.upper()} rows: these are not shed"
    if select.joins:
        return "with a join: a row that matches several is lost with all of them, which no error could count"
    if not isinstance(window, TimeSlide | Landmark):
        return "where windows do not end at instants that are known before"
    return None


def _reason_above(select: Select, grouping: Grouping) -> str | None:
    if not (select.group_by or select.window or grouping.aggregates):
        return "without aggregates: nothing could show which rows are missing"
    if select.distinct or select.limit_span is not None:
        what = "DISTINCT" if select.distinct else "LIMIT"
        return f"with {what}: which rows are emitted would be uncertain, and nothing would show it"
    if select.emit_empty is not None:
        return (
            "with EMIT EMPTY: an empty window could not be distinguished from one of which all rows are shed"
        )
    if select.emit is not None:
        return f"with {select.emit.upper()}"
    if select.revisions is not None:
        return "together with WITH REVISIONS"
    return "with BEGIN and END" if select.bounds is not None else None


def _refuse(reason: str, span: Span, remedy: str = _AVAILABLE) -> NoReturn:
    refuse(f"WITH SHEDDING is not available {reason}", span, remedy)
