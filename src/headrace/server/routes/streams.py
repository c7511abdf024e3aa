"""Routes `GET /v1/catalog`, the names that statements can use, and `POST /v1/streams/NAME/rows`, which pushes the rows of
the body (JSON lines, CSV or Arrow) into a stream; a repetition with the same `Idempotency-Key`, or `Producer` and
`Sequence`, counts once.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Request
from starlette.concurrency import run_in_threadpool

from headrace.algebra.functions.resolve import FUNCTIONS
from headrace.catalog.definitions import RelationDefinition, StreamDefinition
from headrace.errors import BatchTaken
from headrace.runtime.delivery.actions.writing import PRODUCER
from headrace.runtime.epoch.push import LONGEST_ID
from headrace.runtime.hub.hub import Hub
from headrace.server.bodies import body_of
from headrace.server.problems import Refused
from headrace.server.repetition import require_key, used_before
from headrace.server.security.permissions import Permissions, needs_register, permissions_of
from headrace.server.tables import ARROW, sent_rows

router = APIRouter(prefix="/v1/streams", tags=["streams"])
catalog_router = APIRouter(prefix="/v1", tags=["streams"])
REASONS: Final = 10
"""Rejected rows of a push that its response describes one by one."""


@catalog_router.get("/catalog")
def catalog(request: Request) -> dict[str, Any]:
    """What statements can name besides queries: streams and relations with their columns, functions with their usage."""
    known = request.app.state.hub.catalog
    relations = [relation.definition for relation in known.relations.values()]
    return {
        "streams": [_columns_of(stream) for stream in known.streams.values()],
        "relations": [_columns_of(relation) for relation in relations],
        "functions": [
            {"name": name, "usage": function.usage} for name, function in sorted(FUNCTIONS.items())
        ],
    }


def _columns_of(definition: StreamDefinition | RelationDefinition) -> dict[str, Any]:
    columns = [{"name": field.name, "type": str(field.type)} for field in definition.schema]
    return {"name": definition.name, "columns": columns}


@router.post(
    "/{name:text}/rows",
    dependencies=[Depends(needs_register)],
    openapi_extra={
        "requestBody": {
            "content": {
                kind: {"schema": {"type": "string"}} for kind in ("application/x-ndjson", "text/csv", ARROW)
            }
        }
    },
)
async def push(
    request: Request,
    name: str,
    idempotency_key: Annotated[str | None, Header()] = None,
    producer: Annotated[str | None, Header()] = None,
    sequence: Annotated[int | None, Header()] = None,
    content_type: Annotated[str, Header()] = "application/x-ndjson",
) -> dict[str, Any]:
    """Push rows as JSON lines, CSV with a header or an Arrow stream; durable when answered.

    Rows that do not fit are rejects of the stream, readable as `NAME REJECTS`: `rejected` counts them, `reasons` has the first ten.
    Repeating a request with its `Idempotency-Key`, or with its `Producer` and `Sequence`, counts once. Each owner has producers of its own.
    """
    permissions = permissions_of(request)
    body = await body_of(request, permissions.largest_body)
    if idempotency_key is not None:
        require_key(idempotency_key)
        producer, sequence = f"request-{idempotency_key}", 0
    if producer is not None:
        producer = _of_owner(permissions, producer)
    if producer is not None and idempotency_key is not None and len(producer) > LONGEST_ID:
        producer = f"request-{blake2b(producer.encode(), digest_size=32).hexdigest()}"
    try:
        return await run_in_threadpool(
            _push, request.app.state.hub, permissions, name, content_type, body, producer, sequence
        )
    except BatchTaken:
        if idempotency_key is None:
            raise
        raise used_before(idempotency_key) from None


def _of_owner(permissions: Permissions, producer: str) -> str:
    """The producer as the stream knows it: what one owner has pushed is no repetition of what another pushes.

    Raises `Refused` for one of an action, whose rows would else count as pushed already.
    """
    principal = permissions.principal
    if principal.is_limited:
        return f"{(principal.owner or '').casefold()}/{producer}"
    if principal.is_remote and producer.startswith(PRODUCER):
        raise Refused(403, f"the producer '{producer}' is that of an action", "Choose another name.")
    return producer


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
    sent = sent_rows(definition, media_type, body, hub.loop.engine.clock())
    permissions.quotas.take_rows(permissions.principal, sent.table.num_rows)
    if sent.table.num_rows:
        hub.push(name, sent, producer=producer, sequence=sequence)
    answer: dict[str, Any] = {"accepted": sent.accepted, "rejected": sent.rejects.num_rows}
    reasons = sent.rejects.slice(0, REASONS).to_pylist()
    return {**answer, "reasons": reasons} if reasons else answer
