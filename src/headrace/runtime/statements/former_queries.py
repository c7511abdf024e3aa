"""Queries that an earlier version registered, and whose state this version would misread: when a home is opened they are
planned again with their readers, or suspended.

Earlier versions joined two streams at a time, and stored the pairs of two as rows to join with a third (decision 31). When a home
is opened, a query with such state becomes a new generation, with all that read it, and is computed from the archive like a new query.
Where the archive has not all rows of its streams, its earlier results could not be made again, so it is suspended instead: RESUME
plans it again with the rows that there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.algebra.query import StreamScan, every_node
from headrace.catalog.catalog import Catalog, CatalogQuery, registration
from headrace.runtime.backfill.former_states import former_joins
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.statements.change_batch import names_read
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING

REASON: Final = (
    "an earlier version stored the state of this join in another way, and the archive has not all rows to compute it again: "
    "RESUME QUERY continues without its earlier results"
)


def plan_again(pipeline: Pipeline) -> None:
    """Plan queries of earlier versions again, or suspend them, before the first epoch; a warning names them."""
    catalog, engine = pipeline.catalog, pipeline.loop.engine
    former = list(dict.fromkeys(former_joins(catalog, engine.plan).values()))
    affected = {query.operator_id: with_readers(catalog, [query]) for query in former}
    whole = [
        query
        for query in former
        if all(_is_archived(catalog, engine.manifest, input_) for input_ in affected[query.operator_id])
    ]
    rest = [query for query in former if query not in whole and not query.definition.paused]
    if not whole and not rest:
        return
    pipeline.log(
        *({"do": "pause", "name": query.definition.name, "reason": REASON} for query in rest),
        *registered_again(catalog, whole),
    )
    for names, what in (
        (with_readers(catalog, whole), "planned again, and are computed from the archive"),
        (
            rest,
            "suspended, since the archive has not all of their rows: RESUME QUERY continues without their earlier results",
        ),
    ):
        if names:
            listed = ", ".join(query.definition.name for query in names)
            warnings.warn(
                f"joins that an earlier version registered were {what}: {listed}",
                RuntimeWarning,
                stacklevel=5,
            )


def registered_again(catalog: Catalog, queries: Sequence[CatalogQuery]) -> list[Mapping[str, Any]]:
    """Log entries of a new generation of queries, and of those that read their results; none continues the former state."""
    return [
        registration(replace(query.definition.healed(), continues=False), query)
        for query in with_readers(catalog, queries)
    ]


def with_readers(catalog: Catalog, queries: Iterable[CatalogQuery]) -> list[CatalogQuery]:
    """Queries and all that read their results, also through others, in the order of the catalog."""
    names = {query.definition.name.lower() for query in queries}
    reached = set[str]()
    while names - reached:
        reached |= names
        names |= {
            name for name, query in catalog.queries.items() if names_read(bound(catalog, query)) & names
        }
    return [query for name, query in catalog.queries.items() if name in names]


def _is_archived(catalog: Catalog, manifest: Manifest, query: CatalogQuery) -> bool:
    """Whether the archive has all rows that the query has read."""
    if query.definition.from_now or query.definition.continues:
        return False
    streams = [
        stream
        for node in every_node(bound(catalog, query))
        if isinstance(node, StreamScan) and (stream := catalog.stream(node.name)) is not None
    ]
    return all(
        stream.archive != "none" and manifest.stream(stream.name).retained_since == BEGINNING
        for stream in streams
    )
