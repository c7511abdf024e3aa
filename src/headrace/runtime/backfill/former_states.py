"""Conversion of the state runs that an earlier version of Headrace wrote: under the names of this version, and without the
rows of joins that it would misread; and which queries have such joins.

The name of a family is a hash of what its queries have in common, and versions differ in what that is.
The first driver of this version that opens a home writes such runs again, before its first epoch: under the current names,
and without the rows of joins that were made of two sides at a time, whose queries are computed again (`former_queries`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.catalog.catalog import OF_MANY_SIDES, Catalog, CatalogQuery
from headrace.operators.families.family import state_name
from headrace.operators.families.scan_output import gathered
from headrace.planner.joins.stream_joins import joins_streams, joins_two_by_each_equality
from headrace.runtime.home import file_names
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import levels
from headrace.store.files.container import parts
from headrace.store.logs.manifest import Manifest

if TYPE_CHECKING:
    from headrace.runtime.home.home import Home


def is_former(catalog: Catalog, query: CatalogQuery) -> bool:
    """Whether an earlier version registered a query, and joined its streams in another way than this one does."""
    if query.layout >= OF_MANY_SIDES:
        return False
    meanings = levels(query.definition.name, bound(catalog, query), query.operator_id)
    return any(joins_streams(level) and not joins_two_by_each_equality(level) for _, level in meanings)


def former_joins(catalog: Catalog, plan: EpochPlan) -> dict[str, CatalogQuery]:
    """The joins of such queries, with their queries."""
    joins: dict[str, list[str]] = {}
    for name, planned in plan.planned.items():
        if planned.operator.makes_pairs:
            joins.setdefault(derived_streams.owner_of(name), []).append(name)
    return {
        name: query
        for query in (catalog.queries.values() if joins else ())
        if query.operator_id in joins and is_former(catalog, query)
        for name in joins[query.operator_id]
    }


def under_current_names(home: Home, manifest: Manifest, plan: EpochPlan) -> Manifest:
    """The manifest with its state runs as this version names and reads them; the new files are durable."""
    current = {
        former: state_name(operator)
        for operator in plan.operators.values()
        for former in operator.former_states
    }
    misread, store = former_joins(home.catalog, plan), home.store
    state = []
    for run in manifest.state:
        sections = open_run(store, run.name)
        known = [name for name in sections if name.partition("/")[0] not in misread]
        if len(known) < len(sections) or any(name.partition("/")[0] in current for name in known):
            name = file_names.state_run(manifest.epoch, 0)
            size = store.write_once(name, parts(_renamed({one: sections[one] for one in known}, current)))
            state.append(replace(run, name=name, bytes=size))
        else:
            state.append(run)
    return replace(manifest, state=tuple(state))


def _renamed(sections: Mapping[str, pa.Table], current: Mapping[str, str]) -> dict[str, pa.Table]:
    """Sections by `state/section`; those of several former states may become one."""
    tables: dict[str, list[pa.Table]] = {}
    for name, table in sections.items():
        state, _, section = name.partition("/")
        tables.setdefault(f"{current.get(state, state)}/{section}", []).append(table)
    return {name: gathered(of_states) for name, of_states in tables.items()}
