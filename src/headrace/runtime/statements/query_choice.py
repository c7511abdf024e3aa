"""Selection of standing queries by name, owner, tag and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.catalog.catalog import CatalogQuery
from headrace.catalog.definitions import QueryDefinition
from headrace.language.statements.query_filter import Property, Selection
from headrace.runtime.backfill.completeness import Completeness, completeness, plan_in_force
from headrace.store.logs.manifest import Manifest

if TYPE_CHECKING:
    from headrace.runtime.home.home import Home


def chosen(
    home: Home, selection: Selection, manifest: Manifest | None = None
) -> list[tuple[CatalogQuery, Completeness]]:
    """The queries for which all conditions hold, with their completeness, in the order of registration."""
    manifest = home.latest() if manifest is None else manifest
    plan = plan_in_force(home, manifest)
    tests = [condition for condition in selection if condition.property != "state"]
    of_state = [condition for condition in selection if condition.property == "state"]
    queries = []
    for query in home.catalog.queries.values():
        if not all(condition.holds(values_of(query.definition, condition.property)) for condition in tests):
            continue
        seen = completeness(plan, manifest, query)
        if all(condition.holds([seen.state]) for condition in of_state):
            queries.append((query, seen))
    return queries


def values_of(query: QueryDefinition, of: Property) -> Sequence[str]:
    """A query's values of a property: no owner, one name, several tags."""
    if of == "name":
        return [query.name]
    return query.tags if of == "tag" else [] if query.owner is None else [query.owner]
