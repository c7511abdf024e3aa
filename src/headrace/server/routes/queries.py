"""Routes under `/v1/queries`: list, register, describe, drop, pause and resume standing queries; their current answers,
pages of their committed results, and their plans. Following of results is in `followers`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, model_validator

from headrace.catalog.catalog import CatalogQuery
from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.statements.outcome import Outcome
from headrace.server.paging import Page, page_of_results
from headrace.server.security.permissions import needs_own_query, needs_register, permissions_of
from headrace.server.tables import table_response

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[Depends(needs_own_query)])
_MOST_LISTED = 1000


@router.get("")
def queries(
    request: Request,
    like: str | None = None,
    owner: str | None = None,
    tag: str | None = None,
    limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
    after: str = "",
) -> dict[str, Any]:
    """Standing queries in order of their names; `like` is part of a name. `next` is the value of `after` for the next page."""
    principal = permissions_of(request).principal
    chosen = sorted(
        (
            query
            for query in _hub(request).catalog.queries.values()
            if principal.sees(query.definition)
            and _matches(query, like, owner, tag)
            and query.definition.name.lower() > after.lower()
        ),
        key=lambda query: query.definition.name.lower(),
    )
    page = chosen[:limit]
    more = page[-1].definition.name if len(chosen) > limit else None
    return {"queries": [_described(query) for query in page], "next": more}


def _matches(query: CatalogQuery, like: str | None, owner: str | None, tag: str | None) -> bool:
    definition = query.definition
    return (
        (like is None or like.lower() in definition.name.lower())
        and (owner is None or definition.owner == owner)
        and (tag is None or tag in definition.tags)
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

    @model_validator(mode="after")
    def _is_text(self) -> Registration:
        """Refuse half of a surrogate pair, which JSON can write and no file can hold."""
        try:
            "".join([*self.queries, *self.queries.values(), self.owner or "", *self.tags]).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no text") from None
        return self


@router.post("", dependencies=[Depends(needs_register)])
def register(request: Request, registration: Registration) -> dict[str, Any]:
    """Register queries, all or none."""
    hub, queries = _hub(request), registration.queries
    request.state.statement = "; ".join(f"{name}: {text}" for name, text in queries.items())
    owner = permissions_of(request).owner_of_all(hub.catalog, queries, registration.owner)
    hub.register_many(queries, from_now=registration.from_now, owner=owner, tags=registration.tags)
    return {"registered": list(registration.queries)}


@router.get("/{name}")
def query(request: Request, name: str) -> dict[str, Any]:
    """One query: its text, and the columns of its answer."""
    hub = _hub(request)
    found = hub.catalog.require_query(name)
    columns = [{"name": field.name, "type": str(field.type)} for field in hub.query(name).schema]
    return {**_described(found), "columns": columns}


@router.delete("/{name}", dependencies=[Depends(needs_register)])
def drop(request: Request, name: str) -> dict[str, Any]:
    """Drop a query."""
    return _changed(request, "DROP QUERY", name)


@router.post("/{name}/pause", dependencies=[Depends(needs_register)])
def pause(request: Request, name: str) -> dict[str, Any]:
    """Pause a query."""
    return _changed(request, "PAUSE QUERY", name)


@router.post("/{name}/resume", dependencies=[Depends(needs_register)])
def resume(request: Request, name: str) -> dict[str, Any]:
    """Resume a query, which catches up from the archive."""
    return _changed(request, "RESUME QUERY", name)


def _changed(request: Request, statement: str, name: str) -> dict[str, Any]:
    hub = _hub(request)
    (outcome,) = hub.execute_or_refuse(
        f"{statement} {_quoted(hub.catalog.require_query(name).definition.name)}"
    )
    return {"kind": outcome.kind, "name": outcome.name, "message": outcome.message}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@router.get("/{name}/answer")
def answer(request: Request, name: str, last: str | None = None) -> Response:
    """The current answer (INVOKE); `last` is a shorter window, such as `10 MINUTES`."""
    table = _hub(request).query(name).invoke(last)
    return table_response(request, table, {"query": name, "warning": Outcome.answer(name, table).warning})


@router.get("/{name}/results")
def results(
    request: Request,
    name: str,
    since: str | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> Response:
    """Committed rows in order of epochs, a page at a time; `since` is a time, `after` the `next` of the page before."""
    page: Page = page_of_results(_hub(request), name, since, after, limit)
    return table_response(request, page.rows, {"query": name, "next": page.next})


@router.get("/{name}/explain")
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


def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub
