"""The memory budget of a hub: what each query uses, as the state runs of a manifest have it, and the decision at the end of every epoch
what is given up; the statements that suspend queries and let them run again; and the report for status and EXPLAIN.

What is given up is a fact of the manifest: an epoch that is run again, after a failure or a restart, has the same caches, size
and samples. Suspensions are entries of the query log, as those of queries that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Any, Final, TypeAlias

from headrace.algebra.quality_of_service import QualityOfService
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import QueryDefinition
from headrace.dataclass import dataclass
from headrace.operators.aggregates.fitted_cells import kept_bytes
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import state_name
from headrace.operators.joins.probing.spilled_rows import are_spilled
from headrace.overload.memory import KINDS, OF_BUFFERS, Claim, Limits, MemoryControl, MemoryUse
from headrace.overload.priority_pool import PriorityPool
from headrace.runtime.home.run_cache import bytes_by_state
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import ScanReceipt, StateReceipt, stream_receipts
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.adaptive.join_caches import JOIN_CACHES
from headrace.runtime.plan.adaptive.overload_control import MEMORY, OVERLOAD, overload_report
from headrace.store.files.container import Container
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import Manifest

_Size: TypeAlias = tuple[int, int]
"""Bytes, and rows."""

SUMS: Final[PriorityPool[Any, str, Any]] = PriorityPool(4096)
"""Sums of archive runs that questions of this process cache: by home, by the signature of the questions and by run."""
LEAST_BUFFER: Final = 1 << 20
"""Bytes that a scan task may buffer for the archive in any budget: smaller files are read slowly."""

REASON: Final = "memory"
"""The first word of the reason with which a query was suspended."""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What is used of a budget, by kind and by query (operator id), and what is given up."""

    limits: Limits
    use: Mapping[str, int]
    queries: Mapping[str, int]
    control: MemoryControl
    shares: Mapping[str, tuple[float, ...]]
    doubled: Mapping[str, int]

    @property
    def used(self) -> int:
        """Bytes of all kinds."""
        return sum(self.use.values())


@dataclass(slots=True)
class StateSizes:
    """Bytes and rows of each state in state runs; a run is read once, since it is never rewritten."""

    store: Store
    _known: dict[str, dict[str, _Size]] = field(default_factory=dict)

    def of(self, manifest: Manifest) -> dict[str, _Size]:
        """By state, in all runs of a manifest."""
        names = [run.name for run in manifest.state]
        self._known = {name: self._known.get(name) or self._read(name) for name in names}
        sizes: dict[str, _Size] = {}
        for known in self._known.values():
            for state, (size, rows) in known.items():
                before = sizes.get(state, (0, 0))
                sizes[state] = before[0] + size, before[1] + rows
        return sizes

    def _read(self, name: str) -> dict[str, _Size]:
        """Without spilled rows, which stay on disk."""
        tables = Container.open(self.store.map(name), name).views()
        stored = {section: rows for section, rows in tables.items() if not are_spilled(section)}
        rows: dict[str, int] = {}
        for section, table in stored.items():
            state = section.partition("/")[0]
            rows[state] = rows.get(state, 0) + table.num_rows
        return {state: (size, rows[state]) for state, size in bytes_by_state(stored).items()}


@dataclass(slots=True)
class MemoryBudget:
    """Decides for one hub; `limits` may change while it runs."""

    store: Store
    limits: Limits = field(default_factory=Limits)
    sizes: StateSizes = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = StateSizes(self.store)

    def decided(
        self, manifest: Manifest, plan: EpochPlan, catalog: Catalog, receipts: Sequence[StateReceipt]
    ) -> Manifest:
        """The manifest with what is given up in the next epoch; as it is where there is no budget, and was none."""
        fact = manifest.facts.get(MEMORY)
        if fact is None and self.limits == Limits():
            return manifest
        fact = fact or {}
        before = MemoryControl.from_json(fact["control"]) if fact else MemoryControl()
        follows = {**fact.get("follows", {}), **_follows(plan, receipts)}
        caches = {**fact.get("caches", {}), **_resident(receipts)}
        used = _claims(manifest, plan, catalog, self.sizes.of(manifest), follows)
        rows, row_bytes = _taken(plan, receipts)
        sums = SUMS.shrink(str(self.store.root), bytes_for_sums(manifest))
        seen = MemoryUse(
            manifest.epoch,
            used,
            sum(caches.values()),
            rows,
            row_bytes,
            _suspended(catalog),
            sum(scan.buffered for scan in _scans(receipts)),
            sums,
        )
        control = before.after(seen, self.limits)
        others = {name: value for name, value in manifest.facts.items() if name != MEMORY}
        if self.limits == Limits() and control.is_idle:
            return replace(manifest, facts=others)
        if control.without_caches:
            others.pop(JOIN_CACHES, None)
            caches, sums = {}, SUMS.shrink(str(self.store.root), 0)
        off = {one.query for one in control.suspended}
        lossy = {name for name, quality in plan.qualities.items() if quality.loss is not None}
        others[MEMORY] = {
            "limits": [self.limits.hub, self.limits.owner],
            "control": control.as_json(),
            "shares": {operator: list(shares) for operator, shares in control.shares(used).items()},
            "doubled": control.doubled(used),
            "epoch_rows": control.epoch_rows,
            "caches": {
                name: size for name, size in caches.items() if name.rpartition("/")[0] in plan.operators
            },
            "rows": control.of_rows(seen, seen.row_bytes),
            "archive": control.of_rows(seen, seen.archive),
            "sums": sums,
            "used": control.used(seen, ""),
            "follows": {name: part for name, part in follows.items() if name in lossy},
            "off": sorted(off),
        }
        return replace(manifest, facts=others)

    def entries(self, manifest: Manifest, catalog: Catalog, *, of_all: bool = False) -> list[dict[str, str]]:
        """Entries of the query log that suspend queries and let them run again, as a published manifest has decided: its own suspensions,
        or `of_all` epochs those of queries that run all the same.
        """
        fact = manifest.facts.get(MEMORY)
        if fact is None:
            return []
        control, entries = MemoryControl.from_json(fact["control"]), []
        named = {query.operator_id: query.definition for query in catalog.queries.values()}
        for one in control.suspended:
            is_asked = of_all or one.epoch == manifest.epoch
            if is_asked and (definition := named.get(one.query)) is not None and not definition.paused:
                limit = fact["limits"][1 if one.scope else 0]
                whose = f"the queries of '{one.scope}'" if one.scope else "all queries together"
                reason = f"{REASON}: its state takes {one.bytes:,} bytes, and {whose} may take {limit:,}"
                entries.append({"do": "pause", "name": definition.name, "reason": reason})
        resumed = [named[name] for name in control.resuming if name in named]
        entries += [
            {"do": "resume", "name": definition.name} for definition in resumed if _is_suspended(definition)
        ]
        return entries

    def missing(self, manifest: Manifest, catalog: Catalog) -> list[dict[str, str]]:
        """The entries of a published manifest that a kill has kept from the query log: of the same budget, with no later entry."""
        fact = manifest.facts.get(MEMORY)
        same = fact is not None and fact["limits"] == [self.limits.hub, self.limits.owner]
        if not same or catalog.position != manifest.querylog:
            return []
        return self.entries(manifest, catalog, of_all=True)


def memory_report(store: Store, manifest: Manifest, plan: EpochPlan, catalog: Catalog) -> MemoryReport | None:
    """What is used after the last epoch, and what is given up; None without a budget."""
    fact = manifest.facts.get(MEMORY)
    if fact is None:
        return None
    control = MemoryControl.from_json(fact["control"])
    used = _claims(manifest, plan, catalog, StateSizes(store).of(manifest), fact["follows"], _kind_of)
    use, queries = dict.fromkeys(KINDS, 0), dict[str, int]()
    for claim in used:
        if claim.query not in fact["off"]:
            use[claim.kind] += claim.bytes
            queries[claim.query] = queries.get(claim.query, 0) + claim.bytes
    use |= {"caches": sum(fact["caches"].values()), "rows": fact["rows"]}
    use |= {kind: fact.get(kind, 0) for kind in ("archive", "sums")}
    shares = {operator: tuple(seen) for operator, seen in fact["shares"].items()}
    return MemoryReport(Limits(*fact["limits"]), use, queries, control, shares, fact.get("doubled", {}))


def _claims(
    manifest: Manifest,
    plan: EpochPlan,
    catalog: Catalog,
    sizes: Mapping[str, _Size],
    follows: Mapping[str, float],
    kind_of: Callable[[Operator], str] = lambda _: "state",
) -> list[Claim]:
    """What the operators of queries that run use of the state: of what several share, equal parts. The control needs no kinds."""
    users: dict[str, list[Operator]] = {}
    for operator in plan.operators.values():
        if (name := state_name(operator)) in sizes:
            users.setdefault(name, []).append(operator)
    queries = {query.operator_id: query for query in catalog.queries.values()}
    joined: dict[str, list[CatalogQuery]] = {}
    for query in queries.values():
        joined.setdefault(query.definition.join, []).append(query)
    report, claims = overload_report(manifest), []
    worth = {} if report is None else report.worth
    frequencies = manifest.facts.get(OVERLOAD, {}).get("control", {}).get("frequencies", {})
    for name, operators in users.items():
        for operator in operators:
            owning = (
                joined.get(operator.id, [])
                if derived_streams.is_shared_join(operator.id)
                else [queries[owner] for owner in [derived_streams.owner_of(operator.id)] if owner in queries]
            )
            size, rows = sizes[name]
            part = -(-size // (len(operators) * max(1, len(owning))))
            quality = plan.qualities.get(operator.id)
            synopses = _synopses(operator, quality)
            claims += [
                Claim(
                    operator.id,
                    query.operator_id,
                    (query.definition.owner or "").casefold(),
                    kind_of(operator),
                    part,
                    worth[operator.id].utility if operator.id in worth else 1.0,
                    quality,
                    follows.get(operator.id, 0.0),
                    tuple(frequencies.get(operator.id, ())),
                    synopses,
                    inf if operator.over_panes is None else size / max(1, rows),
                )
                for query in owning
                if not query.definition.paused
            ]
    return claims


def _synopses(operator: Operator, quality: QualityOfService | None) -> tuple[float, ...]:
    """The bytes of its synopses in one cell, with their error doubled 0, 1, … times; none where it may not be."""
    if quality is None or quality.error is None:
        return ()
    made = [operator.coarser(times) for times in range(quality.coarsest + 1)]
    if operator.over_panes is None:  # histograms, of groups with many rows
        sizes = tuple(float(sum(one.synopsis_bytes.values())) for one in made)
    else:
        sizes = tuple(kept_bytes(one.over_panes.layouts[0]) for one in made if one.over_panes is not None)
    return sizes if min(sizes) > 0 else ()


def _kind_of(operator: Operator) -> str:
    if operator.synopsis_bytes:
        return "synopses"
    return "state" if operator.over_panes is None else "panes"


def _is_suspended(definition: QueryDefinition) -> bool:
    return bool(definition.paused and (definition.failure or "").startswith(f"{REASON}:"))


def _suspended(catalog: Catalog) -> frozenset[str]:
    """The queries that the budget has suspended."""
    return frozenset(
        query.operator_id for query in catalog.queries.values() if _is_suspended(query.definition)
    )


def _taken(plan: EpochPlan, receipts: Sequence[StateReceipt]) -> tuple[int, int]:
    """The rows of an epoch that are input, and their bytes."""
    scans = _scans(receipts)
    derived = (derived_streams.USING, union_streams.USING)
    taken = [
        seen
        for name, seen in stream_receipts(tuple(scans), plan).items()
        if name not in plan.streams or plan.streams[name].using not in derived
    ]
    return sum(seen.rows for seen in taken), sum(seen.bytes for seen in taken)


def _scans(receipts: Iterable[StateReceipt]) -> list[ScanReceipt]:
    """Those of scan tasks, which every state task returns."""
    return [scan for receipt in receipts if receipt.task == 0 for scan in receipt.scans]


def bytes_for_sums(manifest: Manifest) -> float:
    """What sums that questions cache may take in a process; none where caches are given up."""
    fact = manifest.facts.get(MEMORY)
    if fact is None:
        return inf
    if MemoryControl.from_json(fact["control"]).without_caches:
        return 0
    return _part_of(fact["limits"][0])


def bytes_for_archive(manifest: Manifest, tasks: int) -> int | None:
    """What archive writers of each of so many scan tasks may buffer; None without a budget."""
    fact = manifest.facts.get(MEMORY)
    if fact is None or fact["limits"][0] is None:
        return None
    return max(LEAST_BUFFER, int(_part_of(fact["limits"][0]) / max(1, tasks)))


def _part_of(limit: int | None) -> float:
    return inf if limit is None else limit * OF_BUFFERS


def _follows(plan: EpochPlan, receipts: Iterable[StateReceipt]) -> dict[str, float]:
    """Of operators that allow loss: the cells that a row has added to their state in this epoch."""
    lossy = {name for name, quality in plan.qualities.items() if quality.loss is not None}
    if not lossy:
        return {}
    kept, added = dict.fromkeys(lossy, 0), dict.fromkeys(lossy, 0)
    for receipt in receipts:
        parts = [receipt.operators, *(scan.operators for scan in receipt.scans if receipt.task == 0)]
        for part in parts:
            for name in lossy & part.keys():
                kept[name] += part[name].rows_kept
                added[name] += part[name].delta_rows
    return {name: added[name] / rows for name, rows in kept.items() if rows}


def _resident(receipts: Iterable[StateReceipt]) -> dict[str, int]:
    """By side of a join, the bytes of its memory, of those observed in this epoch."""
    resident: dict[str, int] = {}
    for receipt in receipts:
        for name, seen in receipt.caches.items():
            resident[name] = resident.get(name, 0) + seen.resident
    return resident
