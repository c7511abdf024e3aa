"""Which standing queries does a selection mean, and where do they stand?"""

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
    """The queries for which all conditions hold, with how complete they are, in the order of their registration."""
    manifest = home.latest() if manifest is None else manifest
    plan = plan_in_force(home, manifest)
    tests = [each for each in selection if each.property != "state"]
    of_state = [each for each in selection if each.property == "state"]
    found = []
    for query in home.catalog.queries.values():
        if not all(each.holds(values_of(query.definition, each.property)) for each in tests):
            continue
        seen = completeness(plan, manifest, query)
        if all(each.holds([seen.state]) for each in of_state):
            found.append((query, seen))
    return found


def values_of(query: QueryDefinition, of: Property) -> Sequence[str]:
    """What a query has of a property: no owner, one name, several tags."""
    if of == "name":
        return [query.name]
    return query.tags if of == "tag" else [] if query.owner is None else [query.owner]
