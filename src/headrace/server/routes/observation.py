"""Routes for operation: `/v1/status`, `/v1/explain` (the plan of all queries), `/metrics` for Prometheus, `/healthz`
and `/readyz`.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from headrace.server.problems import Refused
from headrace.server.routes.queries import explained
from headrace.server.security.permissions import needs_administer, permissions_of

router = APIRouter(prefix="/v1", tags=["observation"])
open_router = APIRouter(tags=["health"])
"""Routes without access control: for load balancers, and without any fact about the home."""

metrics_router = APIRouter(tags=["observation"])


@metrics_router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Counters and times for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@open_router.get("/healthz")
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@open_router.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Epochs run: 503 while they do not."""
    loop = request.app.state.hub.loop
    if not loop.is_running or loop.failure is not None:
        raise Refused(503, "no epochs run")
    return {"status": "ready"}


@router.get("/status")
def status(request: Request) -> Any:
    """The newest epoch's measurements, and every stream's totals; for an owner, with its own queries and actions only."""
    hub, principal = request.app.state.hub, permissions_of(request).principal
    facts = hub.status()
    if principal.is_limited:
        own = {
            query.definition.name
            for query in hub.catalog.queries.values()
            if principal.sees(query.definition)
        }
        shared = {name: facts[name] for name in ("epoch", "running", "streams")}
        by_query = {
            name: {query: fact for query, fact in facts[name].items() if query in own}
            for name in ("queries", "failed", "rejected")
        }
        actions = {name: action for name, action in facts["actions"].items() if action["name"] in own}
        facts = {**shared, **by_query, "actions": actions}
    return jsonable_encoder(facts)


@router.get("/explain", dependencies=[Depends(needs_administer)])
def explain(request: Request, format: str = "text") -> Response:  # noqa: A002 - the contract's word
    """The plan of all queries: json, text or svg."""
    return explained(request.app.state.hub, None, format)
