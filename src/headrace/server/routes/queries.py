"""Routes under `/v1/queries`: list, register, describe, drop, pause and resume standing queries; their answers of now and
of earlier times, pages of their committed results, their costs and plans. Following of results is in `followers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final, TypeAlias
from typing import Literal as Choice

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError, model_validator

from headrace.catalog.catalog import CatalogQuery
from headrace.catalog.definitions import QueryState
from headrace.errors import UserError
from headrace.planner.explain.plan_graph import QueryCost
from headrace.planner.lowering.materialization import Materialize
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.cost_history import cost_history
from headrace.runtime.statements.outcome import Outcome
from headrace.server.bodies import body_of
from headrace.server.connections.statement_time import Timeout, in_time
from headrace.server.monitoring.plan_snapshot import PlanSnapshot, PlanSnapshots
from headrace.server.paging import Page, page_of_results, time_of
from headrace.server.security.permissions import needs_own_query, needs_register, permissions_of
from headrace.server.tables import table_response

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[Depends(needs_own_query)])
_MOST_LISTED = 1000
Sort: TypeAlias = Choice["name", "nanoseconds", "state_rows", "results", "selectivity"]
_SORTED: Final[Mapping[str, Callable[[QueryCost], float]]] = {
    "nanoseconds": lambda cost: cost.nanoseconds,
    "state_rows": lambda cost: cost.state_rows,
    "results": lambda cost: cost.seen.results,
    "selectivity": lambda cost: cost.seen.selectivity or 0.0,
}


@router.get("")
def queries(
    request: Request,
    like: str | None = None,
    owner: str | None = None,
    tag: str | None = None,
    state: Annotated[QueryState | None, Query()] = None,
    sort: Annotated[Sort, Query()] = "name",
    limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
    skip: Annotated[int, Query(ge=0)] = 0,
    after: str = "",
    costs: bool = False,
) -> dict[str, Any]:
    """Standing queries in order of their names; `like` is part of a name. `next` is the value of `after` for the next page.

    `costs` adds what each takes: `nanoseconds` an epoch, `share` of all measured time, `state_rows`, `results` an epoch,
    `selectivity`. `sort` by one of them puts the greatest first, and `skip` begins a page; `total` is how many match.
    """
    principal = permissions_of(request).principal
    chosen = [
        query
        for query in _hub(request).catalog.queries.values()
        if principal.sees(query.definition)
        and _matches(query, like, owner, tag, state)
        and query.definition.name.lower() > after.lower()
    ]
    snapshot = _snapshots(request).current() if costs or sort != "name" else None
    if snapshot is None or sort == "name":
        chosen.sort(key=lambda query: query.definition.name.lower())
    else:
        measure, seen = _SORTED[sort], snapshot.costs
        chosen.sort(
            key=lambda query: measure(cost) if (cost := seen.get(query.definition.name)) else 0, reverse=True
        )
    page = chosen[skip : skip + limit]
    more = page[-1].definition.name if sort == "name" and len(chosen) > skip + limit else None
    described = [_described(query) | _taken(snapshot, query) for query in page]
    return {"queries": described, "next": more, "total": len(chosen)}


def _taken(snapshot: PlanSnapshot | None, query: CatalogQuery) -> dict[str, float | None]:
    """What a query takes; nothing before it was measured."""
    cost = None if snapshot is None else snapshot.costs.get(query.definition.name)
    if snapshot is None or cost is None or snapshot.graph.seen is None:
        return {}
    return {
        "nanoseconds": cost.nanoseconds,
        "share": cost.nanoseconds / snapshot.total,
        "state_rows": cost.state_rows,
        "results": cost.seen.results / snapshot.graph.seen.epochs,
        "selectivity": cost.seen.selectivity,
    }


def _matches(
    query: CatalogQuery, like: str | None, owner: str | None, tag: str | None, state: QueryState | None
) -> bool:
    definition = query.definition
    return (
        (like is None or like.lower() in definition.name.lower())
        and (owner is None or definition.owner == owner)
        and (tag is None or tag in definition.tags)
        and (state is None or state == definition.state)
    )


def _described(query: CatalogQuery) -> dict[str, Any]:
    definition = query.definition
    return {
        "name": definition.name,
        "text": definition.text,
        "owner": definition.owner,
        "tags": list(definition.tags),
        "actions": list(map(str, definition.actions)),
        "paused": definition.paused,
        "failure": definition.failure,
    }


class Registration(BaseModel):
    """Queries to register together, all or none: their texts by name."""

    queries: dict[str, str]
    from_now: bool = False
    owner: str | None = None
    tags: list[str] = []
    materialize: Materialize | None = None

    @model_validator(mode="after")
    def _is_text(self) -> Registration:
        """Refuse half of a surrogate pair, which JSON can write and no file can hold."""
        try:
            "".join([*self.queries, *self.queries.values(), self.owner or "", *self.tags]).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no text") from None
        return self


async def _registration(request: Request) -> Registration:
    """The body, read after the check of access and within the sender's limit. Raises `RequestValidationError`."""
    body = await body_of(request, permissions_of(request).largest_body)
    try:
        return Registration.model_validate_json(body)
    except ValidationError as error:
        placed = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(placed) from None


@router.post(
    "",
    dependencies=[Depends(needs_register)],
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": Registration.model_json_schema()}}}
    },
)
async def register(
    request: Request, registration: Annotated[Registration, Depends(_registration)], timeout: Timeout = None
) -> dict[str, Any]:
    """Register queries, all or none: none is registered when that takes longer than `timeout` seconds (504)."""
    return await in_time(request, timeout, lambda: _registered(request, registration))


def _registered(request: Request, registration: Registration) -> dict[str, Any]:
    hub, queries = _hub(request), registration.queries
    request.state.statement = "; ".join(f"{name}: {text}" for name, text in queries.items())
    owner = permissions_of(request).owner_of_all(hub.catalog, queries, registration.owner)
    hub.register_many(
        queries,
        from_now=registration.from_now,
        owner=owner,
        tags=registration.tags,
        materialize=registration.materialize,
    )
    return {"registered": list(registration.queries)}


@router.get("/{name:text}")
def query(request: Request, name: str) -> dict[str, Any]:
    """One query: its text, and the columns of its answer."""
    hub = _hub(request)
    registered = hub.catalog.require_query(name)
    columns = [{"name": field.name, "type": str(field.type)} for field in hub.query(name).schema]
    return {**_described(registered), "columns": columns}


@router.delete("/{name:text}", dependencies=[Depends(needs_register)])
async def drop(request: Request, name: str, timeout: Timeout = None) -> dict[str, Any]:
    """Drop a query."""
    return await in_time(request, timeout, lambda: _changed(request, "DROP QUERY", name))


@router.post("/{name:text}/pause", dependencies=[Depends(needs_register)])
async def pause(request: Request, name: str, timeout: Timeout = None) -> dict[str, Any]:
    """Pause a query."""
    return await in_time(request, timeout, lambda: _changed(request, "PAUSE QUERY", name))


@router.post("/{name:text}/resume", dependencies=[Depends(needs_register)])
async def resume(request: Request, name: str, timeout: Timeout = None) -> dict[str, Any]:
    """Resume a query, which catches up from the archive."""
    return await in_time(request, timeout, lambda: _changed(request, "RESUME QUERY", name))


def _changed(request: Request, statement: str, name: str) -> dict[str, Any]:
    hub = _hub(request)
    (outcome,) = hub.execute_or_refuse(
        f"{statement} {_quoted(hub.catalog.require_query(name).definition.name)}"
    )
    return {"kind": outcome.kind, "name": outcome.name, "message": outcome.message}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@router.get("/{name:text}/answer")
async def answer(
    request: Request, name: str, last: str | None = None, at: str | None = None, timeout: Timeout = None
) -> Response:
    """The current answer (INVOKE); `last` is a shorter window, such as `10 MINUTES`. With `at` the answer as of that time.

    504 when that takes longer than `timeout` seconds.
    """
    if at is not None and last is not None:
        raise UserError("the answer as of a time has the query's own window", remedy="Leave out at or last.")
    return await in_time(request, timeout, lambda: _answered(request, name, last, at))


def _answered(request: Request, name: str, last: str | None, at: str | None) -> Response:
    handle = _hub(request).query(name)
    table = handle.invoke(last) if at is None else handle.as_of(time_of(at))
    return table_response(request, table, {"query": name, "warning": Outcome.answer(name, table).warning})


@router.get("/{name:text}/results")
async def results(
    request: Request,
    name: str,
    since: str | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    timeout: Timeout = None,
) -> Response:
    """Committed rows in order of epochs, a page at a time; `since` is a time, `after` the `next` of the page before. `since` takes that too.

    504 when that takes longer than `timeout` seconds.
    """
    return await in_time(request, timeout, lambda: _page(request, name, since, after, limit))


def _page(request: Request, name: str, since: str | None, after: str | None, limit: int) -> Response:
    page: Page = page_of_results(_hub(request), name, since, after, limit)
    return table_response(request, page.rows, {"query": name, "next": page.next})


@router.get("/{name:text}/timeline")
async def timeline(
    request: Request,
    name: str,
    buckets: Annotated[int, Query(ge=1, le=1000)] = 200,
    timeout: Timeout = None,
) -> dict[str, Any]:
    """How many results were emitted over time: `rows` has counts of intervals from `first` to `last`, in microseconds.

    504 when that takes longer than `timeout` seconds.
    """
    counts = await in_time(request, timeout, lambda: _hub(request).query(name).timeline(buckets))
    if counts is None:
        return {"first": None, "last": None, "interval": None, "rows": []}
    return asdict(counts)


@router.get("/{name:text}/costs")
def costs(request: Request, name: str, epochs: Annotated[int, Query(ge=1, le=1000)] = 120) -> dict[str, Any]:
    """What the query took in each of the newest epochs."""
    registered = _hub(request).catalog.require_query(name).definition.name
    graph = _snapshots(request).current(registered).graph
    points = cost_history(_hub(request).home, graph, registered, epochs)
    return {"query": registered, "epochs": [asdict(point) for point in points]}


@router.get("/{name:text}/explain")
def explain(request: Request, name: str, format: str = "text") -> Response:  # noqa: A002 - the contract's word
    """The query's plan and what it shares: text, or a picture as SVG."""
    return explained(_hub(request), name, format)


def explained(hub: Hub, name: str | None, form: str) -> Response:
    """EXPLAIN of one query or of all."""
    if form == "svg":
        return Response(hub.explain(name, "svg"), media_type="image/svg+xml")
    if form not in ("text", "json"):
        raise UserError(f"there is no format '{form}'", remedy="Write json, text or svg.")
    text = hub.explain(name, "text")
    if form == "text":
        return Response(text, media_type="text/plain; charset=utf-8")
    return Response(json.dumps({"query": name, "plan": text.splitlines()}), media_type="application/json")


def _snapshots(request: Request) -> PlanSnapshots:
    snapshots: PlanSnapshots = request.app.state.snapshots
    return snapshots


def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub
