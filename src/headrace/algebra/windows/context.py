"""What must be known besides a row to say which windows hold it?

Backward context: rows that came before it. Forward context: rows that come after it. Source: Li 2008, section 6.1.
"""

from __future__ import annotations

from enum import Enum

from headrace.algebra.windows.window import Delta, Rows, RowsSlide, Session, TupleSlide, Window


class Context(Enum):
    """The class of a window; each holds the one before it."""

    FREE = "context free"
    """Nothing: the row alone tells its windows, and operators fold it into panes when it comes."""
    FORWARD_FREE = "forward-context free"
    """What came before, as a count per partition: its windows are known when it comes."""
    FORWARD_AWARE = "forward-context aware"
    """What is still to come: its windows are bound when punctuation has passed it."""


def context_of(window: Window) -> Context:
    """The class, with regard to the order of arrival.

    Rows counted in stream order are forward-context aware: one that comes later with an earlier time moves the number.
    """
    match window:
        case TupleSlide() | Delta() | Session():
            return Context.FORWARD_AWARE
        case RowsSlide(numbered="row_num"):
            return Context.FORWARD_FREE
        case RowsSlide() | Rows():
            return Context.FORWARD_AWARE
        case _:
            return Context.FREE
