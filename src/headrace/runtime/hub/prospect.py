"""What a query would cost and share before it is registered: the work it needs, how much of it runs already and for whom,
and an estimate of its cost from what is measured now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Final

from headrace.catalog.catalog import registration
from headrace.catalog.definitions import QueryDefinition
from headrace.dataclass import dataclass
from headrace.planner.explain.operator_text import explain
from headrace.planner.explain.plan_graph import Explained
from headrace.planner.explain.work_sharing import Kind, Sharing, WorkItem
from headrace.planner.storage.query_storage import storage_of
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.introspection.explain import owners_of, sharing_of
from headrace.runtime.plan.bound_queries import bind_text, streams_made_by
from headrace.runtime.plan.epoch_planner import plan_after
from headrace.runtime.statements.change_batch import CatalogChanges, refuse_unreadable
from headrace.runtime.statements.window_limits import require_few_windows, require_limited_join
from headrace.schema import Schema

_NAME: Final = "(not registered)"


@dataclass(frozen=True, slots=True)
class ProspectiveWork:
    """A piece of work that a query would need. `queries`: those for which it runs already; none: it is new.

    `nanoseconds` an epoch: of work that runs already the query's part of it, of new work the median of such work over the
    same stream; None where nothing like it is measured.
    """

    kind: Kind
    label: str
    queries: tuple[str, ...]
    nanoseconds: float | None


@dataclass(frozen=True, slots=True)
class Prospect:
    """A query that is not registered: its columns, its plan in words, and its work from the stream to the state."""

    columns: Schema
    plan: tuple[str, ...]
    works: tuple[ProspectiveWork, ...]


def prospect(pipeline: Pipeline, graph: Explained, definition: QueryDefinition) -> Prospect:
    """The plan and the sharing of a query as if it were registered now; `graph` is the running plan, measured.

    Raises `UserError` where CREATE QUERY would refuse its text.
    """
    before, plan = pipeline.catalog, pipeline.plan
    query = bind_text(before, definition.text, definition.zone)
    streams = streams_made_by(before, query)
    catalog = before.apply_all(streams)
    refuse_unreadable(definition.name, query)
    require_few_windows(definition, query)
    require_limited_join(definition, query)
    chosen, _ = CatalogChanges(pipeline).with_join(catalog, definition, query)
    entries = [*streams, registration(replace(chosen, name=_NAME))]
    after = before.apply_all(entries)
    planned = plan_after(plan, before, after, entries).plan
    new = [name for name in planned.operators if name not in plan.operators]
    shares, owners = sharing_of(planned, after), owners_of(planned, after)
    places = dict.fromkeys(index for name in new for index in shares.places[name])
    return Prospect(
        query.schema,
        (
            *(line for name in new for line in explain(planned.operators[name]).split("\n")),
            *storage_of(query).lines(),
        ),
        tuple(_work(graph, shares.works[index], owners) for index in places),
    )


def _work(graph: Explained, work: WorkItem, owners: dict[str, str]) -> ProspectiveWork:
    others = [user for user in work.users if user in graph.owners]
    queries = tuple(dict.fromkeys(owners[user] for user in others))
    return ProspectiveWork(work.kind, work.label, queries, _estimate(graph, work, others))


def _estimate(graph: Explained, work: WorkItem, others: list[str]) -> float | None:
    """Nanoseconds an epoch of the query's part, where something like it is measured."""
    seen = graph.seen
    if seen is None:
        return None
    if others:
        works = graph.sharing.works
        index = next(index for index in graph.sharing.places[others[0]] if works[index].kind == work.kind)
        return seen.works[index].nanoseconds / seen.epochs / (len(works[index].users) + 1)
    alike = [
        seen.works[index].nanoseconds / seen.epochs
        for index in _measured_alike(graph.sharing, work)
        if seen.works[index].nanoseconds
    ]
    return median(alike) if alike else None


def _measured_alike(sharing: Sharing, work: WorkItem) -> Iterator[int]:
    for index, other in enumerate(sharing.works):
        if other.kind == work.kind and other.stream == work.stream:
            yield index
