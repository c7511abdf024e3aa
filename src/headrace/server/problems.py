"""Errors as HTTP responses: message, place and remedy as JSON under the fitting status, never a stack trace; and
`Refused`, the error of a request that is refused before it reaches the hub.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from headrace.errors import HeadraceError, NameTaken, StoreError, UnknownName, UserError

_LOG = logging.getLogger("headrace.server")


class ErrorFacts(BaseModel):
    """What is wrong, where in the text that was sent, and what to do."""

    message: str
    line: int | None
    column: int | None
    width: int | None
    remedy: str | None


class ErrorBody(BaseModel):
    """The body of every error."""

    error: ErrorFacts


_DESCRIBED: Final[dict[int | str, str]] = {
    400: "A mistake in the request or in a statement",
    "default": "Another problem: the status is its kind",
}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorBody, "description": text} for status, text in _DESCRIBED.items()
}
"""Errors of a route, for the description of the routes. With "default" FastAPI adds no 422, whose errors are answered as 400."""
PROBLEMS_OF_EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}},
        "description": text,
    }
    for status, text in _DESCRIBED.items()
}
"""The same of a route whose answers are no JSON: a model is described in the media type of the answers."""


class Refused(Exception):
    """A request that is refused before it reaches the hub: status, message, remedy and headers of the response."""

    def __init__(
        self, status: int, message: str, remedy: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.remedy, self.headers = status, remedy, headers


def add_handlers(app: FastAPI) -> None:
    """Make every error of the application a problem; of a WebSocket too, in place of its handshake."""
    app.add_exception_handler(HeadraceError, _of_headrace)
    app.add_exception_handler(Refused, _of_refusal)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(WebSocketRequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _of_fault)


def problem_of(error: HeadraceError | Refused) -> tuple[int, dict[str, Any]]:
    """The status and the body of an error."""
    if isinstance(error, Refused):
        return error.status, _problem(str(error), error.remedy or None)
    if isinstance(error, UserError):
        line, column = error.line_and_column or (None, None)
        width = None if error.span is None else max(1, error.span.end - error.span.start)
        return _status_of(error), _problem(error.message, error.remedy, line, column, width)
    # The disk or an epoch failed: the request may be repeated, as the message says.
    status = 503 if isinstance(error, StoreError) else 500
    message, _, remedy = str(error).partition("\n")
    return status, _problem(message, remedy.strip() or None)


def _status_of(error: UserError) -> int:
    if isinstance(error, UnknownName):
        return 404
    return 409 if isinstance(error, NameTaken) else 400


def _problem(
    message: str,
    remedy: str | None = None,
    line: int | None = None,
    column: int | None = None,
    width: int | None = None,
) -> dict[str, Any]:
    """`line` and `column` count from 1; `width` is how many characters the mistake has."""
    message = message.encode(errors="replace").decode()  # it may name what is no text
    return {"error": {"message": message, "line": line, "column": column, "width": width, "remedy": remedy}}


async def _of_headrace(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    status, body = problem_of(error)
    request.state.message = body["error"]["message"]  # for the audit log
    return JSONResponse(body, status)


async def _of_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    status, body = problem_of(error)
    request.state.message = body["error"]["message"]
    return JSONResponse(body, status, headers=error.headers)


async def _of_validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    body = _problem(f"{where}: {first['msg']}", "See /openapi.json.")
    request.state.message = body["error"]["message"]
    return JSONResponse(body, 400)


async def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse(_problem(str(error.detail)), error.status_code, headers=error.headers)


async def _of_fault(_: Request, error: Exception) -> JSONResponse:
    _LOG.error("a request failed", exc_info=error)
    return JSONResponse(
        _problem(f"a fault of Headrace: {type(error).__name__}", "The server's log has it."), 500
    )
