"""What of answers from samples is repaired, waits for it, or stays an estimate, for status, SHOW QUERIES and EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.repair_ledger import RepairLedger, ledgers
from headrace.runtime.plan import derived_streams
from headrace.runtime.repair.repair_facts import answered_to
from headrace.store.logs.manifest import Manifest


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Windows of a query: emitted from samples and `waiting`, `repaired`, and `lost`, whose estimates stay since the archive expired.

    `entries` of the archive are to be read for those that wait.
    """

    waiting: int = 0
    repaired: int = 0
    lost: int = 0
    entries: int = 0

    def plus(self, other: RepairReport) -> RepairReport:
        """Of two SELECTs of one query."""
        return RepairReport(
            self.waiting + other.waiting,
            self.repaired + other.repaired,
            self.lost + other.lost,
            self.entries + other.entries,
        )


def repairs_by_query(manifest: Manifest, plan: EpochPlan, catalog: Catalog) -> dict[str, RepairReport]:
    """The report of each query that repairs, by name."""
    known = ledgers(manifest)
    names = {query.operator_id: query.definition.name for query in catalog.queries.values()}
    reports: dict[str, RepairReport] = {}
    for operator in plan.repairing:
        name = names.get(derived_streams.owner_of(operator))
        if name is not None:
            report = _report(manifest, plan, operator, known.get(operator, RepairLedger()))
            reports[name] = reports[name].plus(report) if name in reports else report
    return reports


def repairs_status(manifest: Manifest, plan: EpochPlan, catalog: Catalog) -> Mapping[str, dict[str, Any]]:
    """The same as plain values."""
    return {name: asdict(report) for name, report in repairs_by_query(manifest, plan, catalog).items()}


def repair_lines(report: RepairReport | None) -> Iterator[str]:
    """The line of EXPLAIN QUERY, if the query repairs."""
    if report is not None:
        entries = f", for which {report.entries} entries of the archive are read" if report.entries else ""
        lost = f"; {report.lost} stay estimates, their rows have expired" if report.lost else ""
        yield f"  repair: {report.waiting} windows wait{entries}; {report.repaired} are repaired{lost}"


def _report(manifest: Manifest, plan: EpochPlan, operator: str, ledger: RepairLedger) -> RepairReport:
    panes = plan.operators[operator].emission_windows
    assert panes is not None
    doubtful = ledger.damage.doubtful(panes, answered_to(manifest, plan, operator)) if ledger.waits else ()
    waiting = sum(map(len, doubtful))
    return RepairReport(waiting, ledger.repaired, ledger.lost, ledger.entries)
