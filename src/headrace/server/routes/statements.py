"""Route `POST /v1/statements`: executes a script of statements, each within its sender's permissions, and returns one
outcome a statement; a repetition with the same `Idempotency-Key` gets the first response.
"""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from headrace.language.statements.parse_script import parse_script
from headrace.runtime.hub.hub import Hub
from headrace.runtime.statements.outcome import Outcome
from headrace.server.bodies import text_of
from headrace.server.security.permissions import Permissions, permissions_of
from headrace.server.tables import table_text

router = APIRouter(prefix="/v1", tags=["statements"])


@router.post(
    "/statements", openapi_extra={"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def execute(
    request: Request,
    tables: Annotated[str, Query(pattern="^(json|arrow)$")] = "json",
    zone: str = "UTC",
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Run a script of statements ended by `;`. One outcome a statement; a mistake in its syntax or in a definition leaves none of its definitions.

    `zone` is the time zone of literals, as after SET TIME ZONE, for this script only.
    """
    permissions = permissions_of(request)
    hub, script = request.app.state.hub, await text_of(request, permissions.largest_body)
    request.state.statement = script
    principal = permissions.principal
    answer = await run_in_threadpool(
        request.app.state.repetitions.answer,
        None if idempotency_key is None else f"{principal.token}{idempotency_key}",
        script,
        lambda: _outcomes(hub, script, zone, tables, permissions),
    )
    return Response(answer, media_type="application/json")


def _outcomes(hub: Hub, script: str, zone: str, tables: str, permissions: Permissions) -> str:
    statements = parse_script(script, zone)
    outcomes = hub.execute_or_refuse(script, zone=zone, permit=permissions.permit)
    texts = [script[statement.span.start : statement.span.end] for statement in statements]
    return f"[{','.join(_outcome(text, outcome, tables) for text, outcome in zip(texts, outcomes, strict=True))}]"


def _outcome(text: str, outcome: Outcome, tables: str) -> str:
    facts = {
        "statement": text.strip().rstrip(";").rstrip(),
        "kind": outcome.kind,
        "name": outcome.name,
        "message": outcome.message,
        "warning": outcome.warning,
    }
    if outcome.table is None:
        return json.dumps(facts, ensure_ascii=False)
    return f'{json.dumps(facts, ensure_ascii=False)[:-1]}, "rows": {table_text(outcome.table, tables)}}}'
