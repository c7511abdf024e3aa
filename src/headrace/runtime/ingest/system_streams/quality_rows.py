"""The rows of `system.quality`: what the answers of each query are worth, whether they are from samples or sketches, and how many windows
are repaired or wait for it; of the queries of which that has changed since their last row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from headrace.catalog.catalog import Catalog
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan.adaptive.overload_control import overload_report
from headrace.runtime.plan.derived_streams import owner_of
from headrace.runtime.repair.repair_report import RepairReport, repairs_by_query
from headrace.store.logs.manifest import Manifest

Values: TypeAlias = list[Any]
"""Of a query: utility, delay, share lost, whether it is sketched; windows to repair, repaired, and not to be repaired any more."""
_MEASURED = 2
"""The first of them, which change with every epoch."""


def quality_values(manifest: Manifest, plan: EpochPlan, catalog: Catalog) -> dict[str, Values]:
    """The values of each query WITH QOS, or WITH SHEDDING (repair), by name."""
    report, repairs = overload_report(manifest), repairs_by_query(manifest, plan, catalog)
    names = {query.operator_id: query.definition.name for query in catalog.queries.values()}
    stated: dict[str, Values] = {}
    for operator, worth in () if report is None else report.worth.items():
        name = names.get(owner_of(operator))
        if report is not None and name is not None:
            stated[name] = [worth.utility, worth.delay, worth.lost, operator in report.sketched]
    nothing = RepairReport()
    return {
        name: [*stated.get(name, [None, None, None, False]), *_windows(repairs.get(name, nothing))]
        for name in sorted({*stated, *repairs})
    }


def _windows(report: RepairReport) -> Values:
    return [report.waiting, report.repaired, report.lost]


def changed(values: Mapping[str, Values], known: Mapping[str, Values]) -> dict[str, Values]:
    """Those of queries that are not known, or differ in more than utility and delay."""
    return {
        name: of_query
        for name, of_query in values.items()
        if name not in known or known[name][_MEASURED:] != of_query[_MEASURED:]
    }
