"""Binding of WITH QOS: loss and value need WITH SHEDDING, sketches need approximate aggregates over windows of one stream, the good
zone of the delay has to be feasible, and value names a numeric column of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.algebra.expressions.aggregates import BY_VALUE, NamedAggregate
from headrace.algebra.expressions.approximation import is_sketched
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import StreamScan
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.errors import Span, did_you_mean
from headrace.language.binder.shedding import rows_reason
from headrace.language.binder.sources.from_clause import From
from headrace.language.syntax.ast import QualityClause, Select
from headrace.language.syntax.refusals import fail, refuse
from headrace.time import SECOND, render_duration


def quality(select: Select, sources: From, aggregates: Sequence[NamedAggregate]) -> QualityOfService | None:
    """The quality of service of a query; None where it states none.

    Raises `UserError` at the graph that cannot be met, or that nothing would follow.
    """
    clause = select.quality
    if clause is None:
        return None
    _check_shedding(select, clause)
    stated = clause.quality
    if stated.sketches is not None:
        _check_sketches(select, sources, aggregates, clause.spans["sketches"])
    if stated.delay is not None and stated.delay.good_until * SECOND < sources.latency:
        fail(
            f"rows of '{sources.stream.scan.name}' may wait {render_duration(sources.latency)} before an epoch reads them "
            f"(its latency), and the utility falls after {stated.delay.good_until:g} seconds",
            clause.spans["delay"],
            "Give the delay up to which the utility is 1 a higher value, or the stream a lower latency.",
        )
    if stated.importance is None:
        return stated
    scan = sources.stream.scan
    assert isinstance(scan, StreamScan)
    column = scan.table.find(stated.importance.column)
    if column is None:
        remedy = did_you_mean(stated.importance.column, scan.table.names)
        fail(f"'{scan.name}' has no column '{stated.importance.column}'", clause.spans["value"], remedy)
    if not column.type.is_numeric:
        fail(
            f"value compares numbers, and '{column.name}' is {column.type}",
            clause.spans["value"],
            "Name a numeric column of the stream.",
        )
    return replace(stated, importance=replace(stated.importance, column=column.name))


def _check_sketches(select: Select, sources: From, aggregates: Sequence[NamedAggregate], span: Span) -> None:
    """Raises `UserError` for a query that has no sketches, or whose windows could not be answered either way."""
    calls = [item.call for item in aggregates]
    if not any(is_sketched(call) for call in calls):
        fail(
            "sketches are of approximate aggregates, and the query has none",
            span,
            "State which error is allowed: APPROX_COUNT_DISTINCT(x) WITHIN 2 PERCENT, or APPROX_PERCENTILE(x, 0.5) WITHIN 1 PERCENT.",
        )
    reason = rows_reason(select, sources)
    if reason is None and isinstance(sources.stream.window, Landmark):
        reason = "for windows that never end: after one overload all later answers would be from sketches"
    if reason is None and not isinstance(sources.stream.window, TimeSlide):
        reason = "where windows do not end at instants that are known before"
    if reason is None and any(depends_on(call, aggregates) for call in calls):
        reason = "for aggregates that compare rows with their group"
    is_held = (call.distinct or (call.function in BY_VALUE and not is_sketched(call)) for call in calls)
    if reason is None and any(is_held):
        reason = "together with exact aggregates of distinct values: these have to be counted anyway"
    clauses = (select.shedding, select.revisions, select.emit_empty, select.emit, select.bounds)
    if reason is None and any(clause is not None for clause in clauses):
        reason = "together with SHEDDING, REVISIONS, EMIT EMPTY, ISTREAM, DSTREAM or BEGIN"
    if reason is not None:
        refuse(
            f"sketches are not available {reason}",
            span,
            "Leave sketches out: the query is answered approximately all the time.",
        )


def _check_shedding(select: Select, clause: QualityClause) -> None:
    for name in ("loss", "value"):
        if name in clause.spans and select.shedding is None:
            fail(
                f"{name} is about rows that are dropped, and the query sees them all",
                clause.spans[name],
                "Add WITH SHEDDING: … WITH SHEDDING WITH QOS (…).",
            )
    if "value" in clause.spans and "loss" not in clause.spans:
        fail(
            "value is about which rows to drop first, and nothing allows to drop any",
            clause.spans["value"],
            "Add loss, such as loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT).",
        )
