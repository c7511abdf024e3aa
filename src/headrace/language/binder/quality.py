"""Binding of WITH QOS: loss and value need WITH SHEDDING, the good zone of the delay has to be feasible, and value names a
numeric column of the stream.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import StreamScan
from headrace.errors import did_you_mean
from headrace.language.binder.sources.from_clause import From
from headrace.language.syntax.ast import QualityClause, Select
from headrace.language.syntax.refusals import fail
from headrace.time import SECOND, render_duration


def quality(select: Select, sources: From) -> QualityOfService | None:
    """The quality of service of a query; None where it states none.

    Raises `UserError` at the graph that cannot be met, or that nothing would follow.
    """
    clause = select.quality
    if clause is None:
        return None
    _check_shedding(select, clause)
    stated = clause.quality
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
