"""`/v1/streams`: rows pushed to streams."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from starlette.concurrency import run_in_threadpool

from headrace.runtime.hub.hub import Hub
from headrace.server.bodies import body_of
from headrace.server.security.permissions import Permissions, needs_register, permissions_of
from headrace.server.tables import pushed_rows

router = APIRouter(prefix="/v1/streams", tags=["streams"])


@router.post("/{name}/rows", dependencies=[Depends(needs_register)])
async def push(
    request: Request,
    name: str,
    idempotency_key: Annotated[str | None, Header()] = None,
    producer: Annotated[str | None, Header()] = None,
    sequence: Annotated[int | None, Header()] = None,
    content_type: Annotated[str, Header()] = "application/x-ndjson",
) -> dict[str, Any]:
    """Push rows as JSON lines, CSV with a header or an Arrow stream; durable when answered.

    Repeating a request with its `Idempotency-Key`, or with its `Producer` and `Sequence`, counts once.
    """
    permissions = permissions_of(request)
    body = await body_of(request, permissions.largest_body)
    if idempotency_key is not None:
        producer, sequence = f"request-{idempotency_key}", 0
    return await run_in_threadpool(
        _push, request.app.state.hub, permissions, name, content_type, body, producer, sequence
    )


def _push(
    hub: Hub,
    permissions: Permissions,
    name: str,
    media_type: str,
    body: bytes,
    producer: str | None,
    sequence: int | None,
) -> dict[str, Any]:
    definition = hub.stream_definition(name)
    table, refused, count = pushed_rows(definition, media_type, body, hub.loop.engine.clock())
    permissions.quotas.take_rows(permissions.principal, table.num_rows)
    if table.num_rows:
        hub.push(name, table, producer=producer, sequence=sequence)
    answer: dict[str, Any] = {"accepted": table.num_rows, "rejected": count}
    return {**answer, "reasons": refused} if refused else answer
