"""Routes under `/v1/network`: the running work of all queries, of chosen ones or of one, as boxes and lines with their
measurements, the content of one box, and the history of one line.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request

from headrace.errors import UnknownName
from headrace.planner.explain.diagram import Picture
from headrace.planner.explain.diagram_json import as_json, content_of
from headrace.runtime.introspection.line_history import line_history
from headrace.server.monitoring.plan_snapshot import PlanSnapshot, PlanSnapshots
from headrace.server.monitoring.waiting_rows import waiting_rows
from headrace.server.security.permissions import permissions_of

router = APIRouter(prefix="/v1/network", tags=["network"])
_WORKS: Final = 20
"""Pieces of work of a box that are described."""


@router.get("")
def network(
    request: Request, query: str | None = None, like: str | None = None, tag: str | None = None
) -> dict[str, Any]:
    """All running work, or that of one query, or of those whose names have `like` and which have the tag.

    Each column shows the costliest boxes; the others are one box, whose content is at `/v1/network/box`. `waiting` are rows of
    a stream for the next epochs.
    """
    drawn = as_json(_picture(request, query, like, tag)[0])
    waiting = {f"read {stream}": rows for stream, rows in waiting_rows(request.app.state.hub).items()}
    for drawn_box in drawn["boxes"]:
        drawn_box["waiting"] = waiting.get(drawn_box["name"], 0)
    return drawn


@router.get("/box")
def box(
    request: Request,
    name: str,
    query: str | None = None,
    like: str | None = None,
    tag: str | None = None,
    search: str = "",
    skip: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    """The content of a box of the same picture: its work, and its queries with their costs, the costliest first."""
    drawn, snapshot, *_ = _picture(request, query, like, tag)
    drawn_box = next((candidate for candidate in drawn.boxes if candidate.name == name), None)
    if drawn_box is None:
        raise UnknownName(f"there is no box '{name}' now", remedy="Ask for the network again.")
    permissions, content = permissions_of(request), content_of(snapshot.graph, drawn_box, _WORKS)
    seen = [cost for cost in content.queries if search.lower() in cost.name.lower()]
    if permissions.principal.is_limited:
        visible = set(permissions.visible(request.app.state.hub.catalog, [cost.name for cost in seen]))
        seen = [cost for cost in seen if cost.name in visible]
    return {
        "title": content.title,
        "works": content.works,
        "total": len(seen),
        "queries": [
            {"name": cost.name, "nanoseconds": cost.nanoseconds, "share": cost.nanoseconds / snapshot.total}
            for cost in seen[skip : skip + limit]
        ],
    }


@router.get("/line")
def line(
    request: Request,
    source: str,
    target: str,
    query: str | None = None,
    like: str | None = None,
    tag: str | None = None,
    epochs: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """The rows along a line of the same picture in each of the newest epochs, oldest first, between two boxes by name."""
    _, snapshot, registered, chosen = _picture(request, query, like, tag)
    points = line_history(
        request.app.state.hub.home, snapshot.graph, (source, target), epochs, registered, chosen
    )
    return {"source": source, "target": target, "epochs": [asdict(point) for point in points]}


def _picture(
    request: Request, query: str | None, like: str | None, tag: str | None
) -> tuple[Picture, PlanSnapshot, str | None, frozenset[str]]:
    """The picture, what it is drawn from, and the one query or the chosen ones that it is limited to."""
    permissions, catalog = permissions_of(request), request.app.state.hub.catalog
    snapshots: PlanSnapshots = request.app.state.snapshots
    if query is not None:
        permissions.require_seen(catalog, query)
        registered = catalog.require_query(query).definition.name
        snapshot = snapshots.current(registered)
        if registered not in snapshot.costs:
            raise UnknownName(f"the query '{query}' has no work", remedy="RESUME QUERY gives it some.")
        return snapshot.picture(registered), snapshot, registered, frozenset()
    permissions.require("administer")
    snapshot, chosen = snapshots.current(), set[str]()
    if like or tag:
        chosen = {
            catalog_query.definition.name
            for catalog_query in catalog.queries.values()
            if (like or "").lower() in catalog_query.definition.name.lower()
            and (not tag or tag in catalog_query.definition.tags)
            and catalog_query.definition.name in snapshot.costs
        }
        if not chosen:
            raise UnknownName("no query has such a name and tag", remedy="Search for less.")
    return snapshot.picture(chosen=chosen), snapshot, None, frozenset(chosen)
