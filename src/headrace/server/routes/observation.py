"""Routes for operation: `/v1/status`, `/v1/summary`, `/v1/explain` (the plan of all queries), `/metrics` for Prometheus, `/healthz`
and `/readyz`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from headrace.catalog.definitions import QUERY_STATES
from headrace.server.monitoring.waiting_rows import waiting_rows
from headrace.server.problems import Refused
from headrace.server.routes.queries import explained
from headrace.server.security.permissions import needs_administer, permissions_of
from headrace.server.security.usage import OwnerUse, Usage

router = APIRouter(prefix="/v1", tags=["observation"])
open_router = APIRouter(tags=["health"])
"""Routes without access control: for load balancers, and without any fact about the home."""

metrics_router = APIRouter(tags=["observation"])
_LIMITS = ("queries", "rows_per_second", "body_bytes", "state_bytes", "result_rows", "statement_seconds")


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
        visible_queries = {
            query.definition.name
            for query in hub.catalog.queries.values()
            if principal.sees(query.definition)
        }
        shared = {name: facts[name] for name in ("epoch", "running", "streams")}
        by_query = {
            name: {query: fact for query, fact in facts[name].items() if query in visible_queries}
            for name in ("queries", "failed", "rejected")
        }
        actions = {
            name: action for name, action in facts["actions"].items() if action["name"] in visible_queries
        }
        facts = {**shared, **by_query, "actions": actions}
    return jsonable_encoder(facts)


@router.get("/summary")
def summary(request: Request) -> dict[str, Any]:
    """The hub in a few numbers, however many queries there are; of an owner its own queries are counted.

    `quotas` are the limits of each owner (null: none), and the seconds of a request; `owners` the use of each where its state or results are limited.
    """
    hub, principal = request.app.state.hub, permissions_of(request).principal
    manifest, waiting = hub.home.latest(), waiting_rows(hub)
    states = Counter(
        query.definition.state for query in hub.catalog.queries.values() if principal.sees(query.definition)
    )
    streams = {}
    for stream in hub.catalog.streams.values():
        progress = manifest.stream(stream.name).as_json() if stream.name in manifest.streams else {}
        counts = {name: progress.get(name) for name in ("rows", "late", "rejected", "punctuation", "shed")}
        streams[stream.name] = {**counts, "waiting": waiting[stream.name]}
    return {
        "epoch": manifest.epoch,
        "running": hub.loop.is_running,
        "queries": {state: states[state] for state in QUERY_STATES},
        "streams": streams,
        "sources": hub.source_warnings(),
        "state_bytes": sum(run.bytes for run in manifest.state),
        "failures": hub.loop.supervisor.failed,
        "owners": {
            owner: asdict(use)
            for owner, use in _use(request).items()
            if not principal.is_limited or owner == (principal.owner or "").casefold()
        },
        "quotas": {name: getattr(request.app.state.limits.quotas, name) for name in _LIMITS},
    }


def _use(request: Request) -> dict[str, OwnerUse]:
    usage: Usage = request.app.state.usage
    return usage.by_owner() if usage.quotas.limits_use else {}


@router.get("/explain", dependencies=[Depends(needs_administer)])
def explain(request: Request, format: str = "text") -> Response:  # noqa: A002 - the contract's word
    """The plan of all queries: json, text or svg."""
    return explained(request.app.state.hub, None, format)
