"""What the memory budget of a hub counts, and what is given up for it, for status, EXPLAIN QUERY and EXPLAIN ALL: as the manifest of the
last epoch has it, so that a reading process shows the same as the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.overload.memory import SOFT
from headrace.planner.explain.plan_graph import bytes_of
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.memory_budget import MemoryReport, memory_report
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import Manifest


def memory_status(
    store: Store, manifest: Manifest, plan: EpochPlan, catalog: Catalog
) -> dict[str, Any] | None:
    """The limits, the bytes by kind, owner and query, and what is given up, in the order in which it returns; None without a budget."""
    report = memory_report(store, manifest, plan, catalog)
    if report is None:
        return None
    queries = {query.operator_id: query for query in catalog.queries.values()}
    owners: dict[str, int] = {}
    for operator, size in report.queries.items():
        owner = (queries[operator].definition.owner or "").casefold()
        if owner:
            owners[owner] = owners.get(owner, 0) + size
    return {
        "limit": report.limits.hub,
        "owner_limit": report.limits.owner,
        "used": report.used,
        "kinds": dict(report.use),
        "owners": owners,
        "queries": {queries[operator].definition.name: size for operator, size in report.queries.items()},
        "given_up": list(_given_up(report, queries)),
    }


def memory_lines(
    store: Store, manifest: Manifest, plan: EpochPlan, catalog: Catalog, query: CatalogQuery
) -> Iterator[str]:
    """Lines of EXPLAIN QUERY: what the query uses of the budget, and whether it pays for others."""
    report = memory_report(store, manifest, plan, catalog)
    if report is None:
        return
    used = report.queries.get(query.operator_id)
    if used is not None:
        whole = "" if report.limits.hub is None else f" of {bytes_of(report.limits.hub)}"
        yield f"  memory: {bytes_of(used)}{whole}"
    for one in report.control.suspended:
        if one.query == query.operator_id:
            yield f"  memory: suspended in epoch {one.epoch}, since it took {bytes_of(one.bytes)}"
    for operator, shares in report.shares.items():
        if derived_streams.owner_of(operator) == query.operator_id:
            yield f"  memory: answered from {' and '.join(f'{100 * share:.3g} %' for share in shares)} of its rows"
    for operator, times in report.doubled.items():
        if derived_streams.owner_of(operator) == query.operator_id:
            yield f"  memory: {_coarser(times)} until there is room: ERROR_BOUND has it, and windows of later rows get the smaller one"


def memory_line(store: Store, manifest: Manifest, plan: EpochPlan, catalog: Catalog) -> Iterator[str]:
    """Lines of EXPLAIN ALL: the use by kind, and what is given up."""
    report = memory_report(store, manifest, plan, catalog)
    if report is None:
        return
    limit = (
        "no limit"
        if report.limits.hub is None
        else f"{bytes_of(report.limits.hub)}, spared from {100 * SOFT:.0f} % on"
    )
    kinds = ", ".join(f"{kind} {bytes_of(size)}" for kind, size in report.use.items() if size)
    yield f"memory: {bytes_of(report.used)} of {limit}{f' ({kinds})' if kinds else ''}"
    queries = {query.operator_id: query for query in catalog.queries.values()}
    given_up = list(_given_up(report, queries))
    if given_up:
        yield f"  given up: {'; '.join(given_up)}"


def _given_up(report: MemoryReport, queries: Mapping[str, CatalogQuery]) -> Iterator[str]:
    """What was given up, the last first."""
    control = report.control
    for one in reversed(control.suspended):
        if one.query in queries:
            yield f"query {queries[one.query].definition.name}, suspended with {bytes_of(one.bytes)}"
    for operator, shares in report.shares.items():
        owner = derived_streams.owner_of(operator)
        if owner in queries:
            kept = " and ".join(f"{100 * share:.3g} %" for share in shares)
            yield f"query {queries[owner].definition.name}, answered from {kept} of its rows"
    for operator, times in report.doubled.items():
        owner = derived_streams.owner_of(operator)
        if owner in queries:
            yield f"query {queries[owner].definition.name}, {_coarser(times)}"
    if control.epoch_rows is not None:
        yield f"epochs of more than {control.epoch_rows:,} rows"
    if control.without_caches:
        yield "caches of joins, and of sums for questions"


def _coarser(times: int) -> str:
    return f"synopses with {2**times} times the error"
