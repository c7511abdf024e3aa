"""Functions that raise an error at a place of the text: `fail` for a mistake, `refuse` for what is not available.
The errors get the text where it is bound, from `mistakes_in`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from headrace.errors import Span, UnsupportedQuery, UserError


def fail(message: str, span: Span | None, remedy: str | None = None) -> NoReturn:
    """Raise `UserError` at this place."""
    raise UserError(message, span=span, remedy=remedy)


def refuse(message: str, span: Span | None, remedy: str | None = None) -> NoReturn:
    """Raise `UnsupportedQuery` at this place."""
    raise UnsupportedQuery(message, span=span, remedy=remedy)


@contextmanager
def mistakes_in(text: str) -> Iterator[None]:
    """A block whose errors have their places in this text."""
    try:
        yield
    except UserError as error:
        error.within(text)
        raise
