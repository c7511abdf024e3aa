"""Errors and warnings for PostgreSQL clients: exceptions of Headrace and of DuckDB as SQLSTATE, message, position and
hint, and these as protocol messages; never a stack trace.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Final

import duckdb

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, NameTaken, StoreError, UnknownName, UnsupportedQuery, UserError
from headrace.server.postgres.protocol import frames
from headrace.server.problems import Refused

_LOG = logging.getLogger("headrace.server")

_OF_USER: Final[tuple[tuple[type[UserError], str], ...]] = (
    (UnknownName, "42P01"),
    (NameTaken, "42P07"),
    (UnsupportedQuery, "0A000"),
    (UserError, "42000"),
)
_OF_READER: Final[tuple[tuple[type[Exception], str], ...]] = (
    (duckdb.InterruptException, "57014"),
    (duckdb.ParserException, "42601"),
    (duckdb.CatalogException, "42P01"),
    (duckdb.BinderException, "42703"),
    (duckdb.ConversionException, "22P02"),
    (duckdb.OutOfRangeException, "22003"),
    (duckdb.OutOfMemoryException, "53200"),
    (duckdb.PermissionException, "42501"),
    (duckdb.NotImplementedException, "0A000"),
    (duckdb.Error, "22000"),
)
_OF_STREAM: Final[dict[str, type[Exception]]] = {
    "INTERRUPT Error": duckdb.InterruptException,
    "Conversion Error": duckdb.ConversionException,
    "Out of Range Error": duckdb.OutOfRangeException,
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "Permission Error": duckdb.PermissionException,
    "Not implemented Error": duckdb.NotImplementedException,
}
_PLACE: Final = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^.*", re.DOTALL)


class Failed(Exception):
    """A statement that failed, as a client gets it; `position` counts characters of the message from 1."""

    def __init__(self, code: str, message: str, hint: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(code, message, hint, position)

    @staticmethod
    def of(problem: Problem) -> Failed:
        """The failure with this problem."""
        return Failed(problem.code, problem.message, problem.hint, problem.position)


@dataclass(frozen=True, slots=True)
class Problem:
    """A failure: SQLSTATE, message, remedy and place."""

    code: str
    message: str
    hint: str | None = None
    position: int | None = None

    def as_error(self, severity: str = "ERROR") -> bytes:
        """An ErrorResponse."""
        return self._fields(b"E", severity)

    def as_notice(self, severity: str = "WARNING") -> bytes:
        """A NoticeResponse."""
        return self._fields(b"N", severity)

    def _fields(self, kind: bytes, severity: str) -> bytes:
        fields = [(b"S", severity), (b"V", severity), (b"C", self.code), (b"M", self.message)]
        if self.hint:
            fields.append((b"H", self.hint))
        if self.position is not None:
            fields.append((b"P", str(self.position)))
        return frames.fields(kind, fields)

    def moved(self, offset: int) -> Problem:
        """The same of a statement that begins at an offset of its message."""
        return self if self.position is None else replace(self, position=self.position + offset)


def problem_of(error: Exception, text: str = "") -> Problem:
    """An error of a statement; `text` is what the reader of tables was given."""
    if isinstance(error, Failed):
        return error.problem
    if isinstance(error, UserError):
        code = next(code for kind, code in _OF_USER if isinstance(error, kind))
        return Problem(
            code, error.message, error.remedy, None if error.span is None else error.span.start + 1
        )
    if isinstance(error, HeadraceError):
        message, _, remedy = str(error).partition("\n")
        return Problem("58030" if isinstance(error, StoreError) else "XX000", message, remedy.strip() or None)
    if isinstance(error, duckdb.Error):
        return _of_reader(error, text)
    if isinstance(error, Refused):
        return Problem("42501", str(error), error.remedy or None)
    _LOG.error("a statement failed", exc_info=error)
    return Problem("XX000", f"a fault of Headrace: {type(error).__name__}", "The server's log has it.")


def of_stream(error: Exception) -> Exception:
    """An error of the reader of tables in its own class, which it loses in a stream of Arrow."""
    text = str(error)
    is_own = isinstance(error, duckdb.Error)
    return error if is_own else _OF_STREAM.get(text.partition(":")[0], duckdb.Error)(text)


def _of_reader(error: Exception, text: str) -> Problem:
    code = next(code for kind, code in _OF_READER if isinstance(error, kind))
    match = _PLACE.search(str(error))
    message, _, hint = str(error)[: match.start() if match else None].partition("\n")
    message = message.partition(": ")[2] or message
    if code == "57014":
        message = "canceling statement due to user request"
    elif code == "42P01" and "unction" in message:
        code = "42883"
    return Problem(code, message, hint.strip() or None, None if match is None else _position(match, text))


def _position(match: re.Match[str], text: str) -> int | None:
    """The place of a caret below an excerpt of a line, counted from 1 in the text."""
    excerpt, caret = match[2], len(match[3]) - len(f"LINE {match[1]}: ")
    lines = text.split("\n")
    if int(match[1]) > len(lines) or caret < 0:
        return None
    shown = excerpt.removeprefix("...").removesuffix("...")
    column = lines[int(match[1]) - 1].find(shown)
    if column < 0:
        return None
    before = sum(len(line) + 1 for line in lines[: int(match[1]) - 1])
    return before + column + caret - (len(excerpt) - len(excerpt.removeprefix("..."))) + 1
