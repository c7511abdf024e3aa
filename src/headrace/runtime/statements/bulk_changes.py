"""Entries of the query log that pause, resume or drop one or many queries, logged together and in force together; and
sentences that report such changes and those of ALTER QUERY … SET.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from typing import Literal as Choice

from headrace.algebra.query import QueryScan, every_node
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.errors import UserError
from headrace.language.statements.query_options import QuerySettings
from headrace.runtime.backfill.former_states import is_former
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.statements.former_queries import registered_again
from headrace.time import render_duration

_FEW: Final = 3


def entries(
    catalog: Catalog,
    verb: Choice["pause", "resume", "drop"],
    queries: Sequence[CatalogQuery],
    reason: str = "",
) -> list[Mapping[str, Any]]:
    """Entries that pause, resume or drop these queries; without those that are so already. With a `reason` they are suspended.

    A suspended query that is paused has no reason any more, so nothing but RESUME lets it run again.
    Raises `UserError` when one to be dropped is read by one that is not.
    """
    if verb == "drop":
        _refuse_if_read(catalog, {query.definition.name.lower() for query in queries})
        return [{"do": "drop", "kind": "query", "name": query.definition.name} for query in queries]
    changing = [
        query
        for query in queries
        if query.definition.paused is not (verb == "pause")
        or (verb == "pause" and not reason and query.definition.failure is not None)
    ]
    former = [query for query in changing if verb == "resume" and is_former(catalog, query)]
    why = {"reason": reason} if reason else {}
    change = [{"do": verb, "name": query.definition.name, **why} for query in changing]
    return [*change, *registered_again(catalog.apply_all(change), former)]


def _refuse_if_read(catalog: Catalog, dropped: set[str]) -> None:
    for query in catalog.queries.values():
        if query.definition.name.lower() in dropped:
            continue
        for node in every_node(bound(catalog, query)):
            if isinstance(node, QueryScan) and node.is_named and node.name.lower() in dropped:
                raise UserError(
                    f"the query '{node.name}' is read by {query.definition.name}, which would stay",
                    remedy="Drop that one too, or choose others. Nothing was dropped.",
                )


def settings_report(settings: QuerySettings) -> str:
    """A sentence on what ALTER QUERY … SET has changed."""
    parts = []
    if "retain" in settings:
        retained = "all" if settings["retain"] is None else render_duration(settings["retain"])
        parts.append(f"keeps {retained} of its results")
    if "owner" in settings:
        parts.append("has no owner" if settings["owner"] is None else f"belongs to {settings['owner']}")
    if "tags" in settings:
        parts.append(f"is tagged {', '.join(settings['tags'])}" if settings["tags"] else "has no tags")
    if "materialize" in settings:
        parts.append(f"is materialized: {settings['materialize']}")
    if "sharing" in settings:
        parts.append(
            f"shares panes {'with similar queries' if settings['sharing'] else 'with no other query'}"
        )
    if "max_windows_per_row" in settings:
        parts.append(f"may have {settings['max_windows_per_row']:,} windows to a row")
    if "max_join_rows" in settings:
        most = settings["max_join_rows"]
        parts.append(f"joins {'all rows' if most is None else f'a sample of keys beyond {most:,} rows'}")
    if "join_constraints" in settings:
        finds = settings["join_constraints"] == "find"
        parts.append(
            f"drops rows by {'constraints that it finds too' if finds else 'declared constraints only'}"
        )
    if "spill" in settings:
        spill = settings["spill"]
        whole = "for whole windows" if spill is None else f"up to {render_duration(spill)}"
        parts.append(
            "drops rows that constraints finish"
            if spill == 0
            else f"spills rows that constraints finish {whole}"
        )
    return " and ".join(parts)


def done(verb: str, changes: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on how many queries were changed, with the first names."""
    did = {"pause": "paused", "resume": "resumed, to catch up first", "drop": "dropped"}[verb]
    if not changes:
        return f"no query {did}"
    names = [change["name"] for change in changes if change["do"] == verb]
    few = ", ".join(names[:_FEW])
    more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    return f"{len(names):,} {'query' if len(names) == 1 else 'queries'} {did}: {few}{more}"
