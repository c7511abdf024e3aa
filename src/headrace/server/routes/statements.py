"""Routes `POST /v1/statements`, which executes a script of statements, each within its sender's permissions, and returns
one outcome a statement (a repetition with the same `Idempotency-Key` gets the first response), and `POST /v1/check`,
which finds its mistakes and what its queries would cost, without running it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response

from headrace.errors import UserError
from headrace.language.statements import statement as stmt
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.home.deadline import require_time
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.prospect import prospect
from headrace.runtime.statements.outcome import Outcome, moved
from headrace.server.bodies import text_of
from headrace.server.connections.statement_time import Timeout, in_time
from headrace.server.repetition import Repetitions
from headrace.server.security.permissions import Permissions, permissions_of, sources_of
from headrace.server.tables import table_text

router = APIRouter(prefix="/v1", tags=["statements"])
_NAMES: Final = 8
"""Queries that would share a piece of work, by name; the others are counted."""


@router.post(
    "/statements", openapi_extra={"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def execute(
    request: Request,
    tables: Annotated[str, Query(pattern="^(json|arrow)$")] = "json",
    zone: str = "UTC",
    timeout: Timeout = None,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Run a script of statements ended by `;`. One outcome a statement; a mistake in its syntax or in a definition leaves none of its definitions.

    `zone` is the time zone of literals, as after SET TIME ZONE, for this script only. After `timeout` seconds the answer is 504,
    and states what is done.
    """
    permissions = permissions_of(request)
    hub, script = request.app.state.hub, await text_of(request, permissions.largest_body)
    request.state.statement = script
    principal = permissions.principal
    key = None if idempotency_key is None else (principal.token, idempotency_key)
    same = script, zone, tables
    repetitions: Repetitions = request.app.state.repetitions
    answer = await in_time(
        request,
        timeout,
        lambda: repetitions.answer(key, same, lambda: _outcomes(hub, script, zone, tables, permissions)),
    )
    return Response(answer, media_type="application/json")


@router.post(
    "/check", openapi_extra={"requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def check(request: Request, zone: str = "UTC", timeout: Timeout = None) -> dict[str, Any]:
    """Check a script without running it: the answer to a mistake is that of `/v1/statements`.

    Each CREATE QUERY that reads what exists has its columns, its plan, and what it would cost and share. 504 when that takes longer
    than `timeout` seconds.
    """
    permissions = permissions_of(request)
    script = await text_of(request, permissions.largest_body)
    return await in_time(request, timeout, lambda: _checked(request.app.state, script, zone, permissions))


def _checked(state: Any, script: str, zone: str, permissions: Permissions) -> dict[str, Any]:
    statements, new_names = parse_script(script, zone), set[str]()
    checked = []
    for statement in statements:
        require_time()
        match statement:
            case stmt.CreateQuery(definition=definition):
                facts = {"kind": "query", "name": definition.name}
                if not new_names & {name.lower() for name in sources_of(statement.select)}:
                    facts |= _prospect(state, statement, script, permissions)
                checked.append(facts)
                new_names.add(definition.name.lower())
            case stmt.CreateStream(definition=created) | stmt.CreateRelation(definition=created):
                new_names.add(created.name.lower())
    return {"statements": len(statements), "queries": checked}


def _prospect(
    state: Any, statement: stmt.CreateQuery, script: str, permissions: Permissions
) -> dict[str, Any]:
    definition, hub = statement.definition, state.hub
    permissions.permit(hub.catalog, stmt.ExplainSelect(definition.text, statement.select, definition.zone))
    try:
        preview = prospect(hub, state.snapshots.current().graph, definition)
    except UserError as error:
        raise moved(error, statement.select.span.start).within(script) from None
    return {
        "columns": [{"name": field.name, "type": str(field.type)} for field in preview.columns],
        "plan": preview.plan,
        "work": [
            {
                "kind": work.kind,
                "label": work.label,
                "queries": len(work.queries),
                "names": permissions.visible(hub.catalog, work.queries)[:_NAMES],
                "nanoseconds": work.nanoseconds,
            }
            for work in preview.works
        ],
    }


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
