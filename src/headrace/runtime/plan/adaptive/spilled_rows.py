"""Report of the rows that joins have spilled: how many are on disk, from the state runs of a manifest, and how many combinations were made with
them, counted in its facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.observation import DelayObservation
from headrace.operators.joins.probing.spilled_rows import are_spilled
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.store.files.container import Container
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import Manifest

FROM_SPILL: Final = "from spill"
"""In a manifest's facts: by join, how many combinations were made with spilled rows."""


@dataclass(frozen=True, slots=True)
class Spilled:
    """Of one query: rows on disk and their bytes, and how many combinations were made with such rows."""

    rows: int = 0
    bytes: int = 0
    read: int = 0


def with_spill_counts(
    manifest: Manifest, observed: Mapping[str, DelayObservation], plan: EpochPlan
) -> Manifest:
    """The manifest with the counts after an epoch, of joins that the plan has."""
    before = manifest.facts.get(FROM_SPILL, {})
    counts = {name: count for name, count in before.items() if name in plan.operators}
    for name, seen in observed.items():
        if seen.from_spill and name in plan.operators:
            counts[name] = counts.get(name, 0) + seen.from_spill
    if counts == before:
        return manifest
    facts = {name: value for name, value in manifest.facts.items() if name != FROM_SPILL}
    return replace(manifest, facts={**facts, FROM_SPILL: counts} if counts else facts)


def made_from_spill(manifest: Manifest, join: str) -> int:
    """How many combinations a join has made with spilled rows."""
    made: int = manifest.facts.get(FROM_SPILL, {}).get(join, 0)
    return made


def spilled_by_query(store: Store, manifest: Manifest, catalog: Catalog) -> dict[str, Spilled]:
    """By query whose joins spill. Of the runs only the indexes are read."""
    spilling = {
        query.operator_id: query.definition.name
        for query in catalog.queries.values()
        if query.definition.spill != 0
    }
    reports = {name: Spilled() for name in spilling.values()}
    for run in manifest.state if spilling else ():
        for section, stored in Container.open(store.map(run.name), run.name).sections().items():
            name = spilling.get(derived_streams.owner_of(section.partition("/")[0]))
            if name is not None and are_spilled(section):
                seen = reports[name]
                reports[name] = replace(seen, rows=seen.rows + stored.rows, bytes=seen.bytes + stored.bytes)
    for join, made in manifest.facts.get(FROM_SPILL, {}).items():
        if (name := spilling.get(derived_streams.owner_of(join))) is not None:
            reports[name] = replace(reports[name], read=reports[name].read + made)
    return reports
