"""Binding of WITH QOS: loss and value need WITH SHEDDING, sketches need approximate aggregates over windows of one stream, error needs
synopses whose bounds are selected, the good zone of the delay has to be feasible, and value names a numeric column of the stream, or an
output column from whose value follows that of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.algebra.expressions.aggregates import BY_VALUE, AggregateCall, NamedAggregate
from headrace.algebra.expressions.approximation import is_approximate, is_sketched
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.expressions.expression import Named
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import StreamScan
from headrace.algebra.windows.window import Landmark, TimeRange, TimeSlide
from headrace.errors import Span, did_you_mean
from headrace.language.binder.aggregates import Grouping
from headrace.language.binder.propagation import propagated
from headrace.language.binder.shedding import rows_reason
from headrace.language.binder.sources.from_clause import From
from headrace.language.syntax.ast import QualityClause, Select
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import BIGINT
from headrace.time import SECOND, render_duration


def quality(
    select: Select, clause: QualityClause, sources: From, grouping: Grouping, columns: Sequence[Named]
) -> QualityOfService:
    """The quality of service that a query with these output columns states.

    Raises `UserError` at the graph that cannot be met, or that nothing would follow.
    """
    _check_shedding(select, clause)
    stated, aggregates = clause.quality, grouping.aggregates
    if stated.sketches is not None:
        _check_sketches(select, sources, aggregates, clause.spans["sketches"])
    if stated.error is not None:
        _check_error(select, sources, aggregates, clause)
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
    named = stated.importance.column
    column = scan.table.find(named)
    output = next((each for each in columns if each.name.lower() == named.lower()), None)
    if column is None and output is not None:
        by_input = propagated(stated.importance, output, grouping.keys, aggregates, clause.spans["value"])
        name = by_input.column.removeprefix(f"{sources.stream.alias}.")
        return replace(stated, importance=replace(by_input, column=name))
    if column is None:
        remedy = did_you_mean(named, (*scan.table.names, *(each.name for each in columns)))
        fail(
            f"'{scan.name}' has no column '{named}', and the query has no such output column",
            clause.spans["value"],
            remedy,
        )
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
    clauses = (select.revisions, select.emit_empty, select.emit, select.bounds)
    if reason is None and any(clause is not None for clause in clauses):
        reason = "together with REVISIONS, EMIT EMPTY, ISTREAM, DSTREAM or BEGIN"
    if reason is None and select.shedding is not None:
        reason = _reason_of_samples(select, calls)
    if reason is not None:
        refuse(
            f"sketches are not available {reason}",
            span,
            "Leave sketches out: the query is answered approximately all the time.",
        )


def _reason_of_samples(select: Select, calls: Sequence[AggregateCall]) -> str | None:
    """Why the rows of a query could not be lost after they are sketched; None if they can."""
    assert select.shedding is not None
    assert select.quality is not None
    if select.quality.quality.loss is None:
        return "together with SHEDDING without loss: nothing allows to drop rows"
    if select.quality.quality.importance is not None:
        return "together with value: of sketched rows any are lost"
    if select.shedding.repair is not None:
        return "together with repair: what is corrected from the archive would be counted anyway"
    bounds = {replace(call, part="value") for call in calls if call.part == "bound"}
    if any(is_sketched(call) and replace(call, part="value") not in bounds for call in calls):
        return "together with SHEDDING without the bounds: select ERROR_BOUND of every percentile"
    return None


def _check_error(
    select: Select, sources: From, aggregates: Sequence[NamedAggregate], clause: QualityClause
) -> None:
    """Raises `UserError` for a query without synopses, or whose answers would not show that their error is larger."""
    calls, span = [item.call for item in aggregates], clause.spans["error"]
    approximate = [call for call in calls if is_approximate(call)]
    if not approximate:
        fail(
            "error is about synopses that get coarser when memory is short, and the query has none",
            span,
            "State which error is allowed: APPROX_COUNT_DISTINCT(x) WITHIN 2 PERCENT AS n, ERROR_BOUND(n) AS n_bound.",
        )
    reason = "with joins" if select.joins or len(sources.streams) > 1 else None
    if reason is None and isinstance(sources.stream.window, TimeRange):
        if any(call.function not in ("approx_count", "approx_sum") for call in calls):
            reason = "at every instant but for APPROX_COUNT and APPROX_SUM: the others are exact there"
    elif reason is None and not isinstance(sources.stream.window, TimeSlide | Landmark):
        reason = "where windows do not end at instants that are known before"
    if reason is None and any(depends_on(call, aggregates) for call in calls):
        reason = "for aggregates that compare rows with their group"
    if reason is None and (select.bounds is not None or clause.quality.sketches is not None):
        reason = "together with BEGIN" if select.bounds is not None else "together with sketches"
    if reason is not None:
        refuse(
            f"a larger error is not available {reason}",
            span,
            "Leave error out: the synopses stay as they are.",
        )
    bounds = {replace(call, part="value", type=BIGINT) for call in calls if call.part == "bound"}
    if any(replace(call, part="value", type=BIGINT) not in bounds for call in approximate):
        fail(
            "answers with a larger error have to show it",
            span,
            "Select ERROR_BOUND of every approximate aggregate: ERROR_BOUND(n) AS n_bound.",
        )
    most = 2**clause.quality.coarsest * max(call.within or 0 for call in approximate)
    if most > 1:
        fail(
            f"the error could become {100 * float(most):g} percent",
            span,
            "End the graph earlier, or allow less by WITHIN.",
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
