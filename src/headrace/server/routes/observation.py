"""Status, EXPLAIN, health and readiness."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from headrace.server.problems import Refused
from headrace.server.routes.queries import explained

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
    """The newest epoch's measurements, and every stream's totals."""
    return jsonable_encoder(request.app.state.hub.status())


@router.get("/explain")
def explain(request: Request, format: str = "text") -> Response:  # noqa: A002 - the contract's word
    """The plan of all queries: json, text or svg."""
    return explained(request.app.state.hub, None, format)
